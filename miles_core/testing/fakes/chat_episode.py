"""An episode with a real chat endpoint: what an agent is tried on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from miles_core.contracts.lifecycle import RealClock
from miles_core.contracts.rollout import Episode
from miles_core.testing.fakes.char_renderer import CharRenderer
from miles_core.testing.fakes.contexts import make_attempt
from miles_core.testing.fakes.scripted_engine import Answers, ScriptedEngine
from miles_core.types.sampling import Sampling
from miles_core.types.task import Task


@asynccontextmanager
async def chat_episode(
    answers: Answers | ScriptedEngine | None = None,
    *,
    task: Task | None = None,
    sampling: Sampling | None = None,
    deadline: float | None = None,
) -> AsyncIterator[Episode]:
    """An episode whose `base_url` is served on the loopback interface, by the session server of a run.

    `answers` are what the model says, as in `ScriptedEngine`, or such an engine, whose `log` then has every request:

        async with chat_episode(["7"], task=make_task("Which digit?", answer="7")) as episode:
            outcome = await agent.run(episode)
    """
    from miles_core.session.server import SessionServer  # an HTTP server is imported by tests that serve one

    engine = answers if isinstance(answers, ScriptedEngine) else ScriptedEngine(answers)
    server = SessionServer(engine, CharRenderer(), RealClock(), model="scripted", context=4096)
    await server.start()
    try:
        attempt = make_attempt(task, sampling=sampling)
        address = await server.open(attempt)
        yield Episode(
            attempt.task, address.base_url, address.api_key, attempt.sampling, deadline, cancelled=asyncio.Event()
        )
    finally:
        await server.stop()
