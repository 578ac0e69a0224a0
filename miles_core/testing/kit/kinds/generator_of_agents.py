"""A generator that runs an agent (capability `needs-agent`): opens a session for each attempt and always closes it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NoReturn

from miles_core.contracts.rollout import Agent, Attempt, Episode, GenerateContext, Generator, Outcome
from miles_core.contracts.sessions import Collected, SessionAddress, SessionRules
from miles_core.errors import WorkerDied
from miles_core.testing.fakes.char_renderer import CharRenderer
from miles_core.testing.fakes.contexts import make_attempt
from miles_core.testing.fakes.makers import make_sequence
from miles_core.testing.fakes.manual_clock import ManualClock
from miles_core.testing.fakes.scripted_engine import ScriptedEngine
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.living import cancelled, nothing_left, settle, soon
from miles_core.testing.kit.samples import renderable_tasks
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.trajectory import Status, Trajectory

NAME = "kit-agent"


@dataclass(slots=True)
class _Sessions:
    """Sessions in memory, in each of which one turn was sampled."""

    broken: Exception | None = None
    opened: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    sampled: dict[str, Collected] = field(default_factory=dict)

    async def open(self, attempt: Attempt, rules: SessionRules = SessionRules()) -> SessionAddress:
        key = f"key-{attempt.id}"
        self.opened.append(key)
        sequence = make_sequence(answer=f"said in {attempt.index}", version=3, request=attempt.id)
        self.sampled[key] = Collected((sequence,), f"said in {attempt.index}", False, 1, {"retried": 0})
        return SessionAddress("http://127.0.0.1:9/v1", key)

    async def watch(self, api_key: str) -> NoReturn:
        await asyncio.sleep(0)
        if self.broken is not None:
            raise self.broken
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def collect(self, api_key: str) -> Collected:
        return self.sampled[api_key]

    async def close(self, api_key: str) -> None:
        self.closed.append(api_key)


@dataclass(slots=True)
class _Agent:
    """Ends with a reward, raises `error`, or hangs whatever it is told."""

    error: Exception | None = None
    hangs: bool = False
    episodes: list[Episode] = field(default_factory=list)
    cancelled: int = 0

    async def run(self, episode: Episode) -> Outcome:
        self.episodes.append(episode)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        try:
            if self.hangs:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return Outcome(0.25, {"moves": 3})


@check("generator", Grade.GOLD, "an agent gets a session of its own, and the trajectory is what was sampled in it")
async def keeps_the_session(subject: ComponentSubject) -> None:
    generator = _generator(subject)
    sessions, agent = _Sessions(), _Agent()
    attempts = [make_attempt(renderable_tasks(subject, 1)[0], index=index) for index in range(3)]
    with nothing_left("attempts of an agent"):
        found = await asyncio.gather(*(_generate(generator, each, agent, sessions) for each in attempts))
    for attempt, trajectory in zip(attempts, found, strict=True):
        collected = sessions.sampled[f"key-{attempt.id}"]
        same = len(trajectory.sequences) == 1 and trajectory.sequences[0] is collected.sequences[0]
        expect(same, "its sequences are not those of its session", "take sessions.collect(key).sequences as they are")
        expect(trajectory.text == collected.text, f"its text is {trajectory.text!r}", "take the session's text")
        expect(trajectory.id == attempt.id and trajectory.status is Status.COMPLETED, "id or status", "as the attempt")
        score = trajectory.scores.get(NAME)
        expect(score and score.value == 0.25, f"the agent's verdict is {score}", "file it under context.agent_name")
    keys = {episode.api_key for episode in agent.episodes}
    expect(keys == set(sessions.opened), f"episodes had the keys {sorted(keys)}", "give each the key of its session")
    expect(sorted(sessions.closed) == sorted(sessions.opened), "sessions stay open", "close each, in `finally`")


@check("generator", Grade.GOLD, "an agent that fails is a failed attempt; what breaks behind its session is raised")
async def agents_fail(subject: ComponentSubject) -> None:
    generator, attempt = _generator(subject), make_attempt(renderable_tasks(subject, 1)[0])
    for agent, broken, wanted in (
        (_Agent(error=LookupError("no such page")), None, LookupError),
        (_Agent(hangs=True), WorkerDied("the engine died"), WorkerDied),
    ):
        sessions = _Sessions(broken)
        with nothing_left("an agent that failed"):
            try:
                result = await soon(_generate(generator, attempt, agent, sessions), "generate", "raise what broke")
            except wanted:
                pass
            except Exception as error:
                expect(False, f"{wanted.__name__} became {type(error).__name__}: {error}", "let it through")
            else:
                expect(False, f"it broke, and there is {result!r:.100}", "an exception is never a trajectory")
        expect(sessions.closed == sessions.opened, "its session stays open", "close it in `finally`")


@check("generator", Grade.GOLD, "when it is cancelled, so is the agent, and the session is closed")
async def cancels_the_agent(subject: ComponentSubject) -> None:
    generator, attempt = _generator(subject), make_attempt(renderable_tasks(subject, 1)[0])
    sessions, agent = _Sessions(), _Agent(hangs=True)
    with nothing_left("a cancelled attempt of an agent"):
        task = asyncio.ensure_future(_generate(generator, attempt, agent, sessions))
        await settle()
        await cancelled(task, "generate")
    expect(agent.cancelled, "the agent was not cancelled", "cancel and await its task")
    expect(sessions.closed == sessions.opened, "its session stays open", "close it in `finally`")


@check("generator", Grade.GOLD, "at the deadline the agent is told to stop, and soon after it is ended")
async def keeps_the_deadline(subject: ComponentSubject) -> None:
    generator, attempt = _generator(subject), make_attempt(renderable_tasks(subject, 1)[0])
    sessions, agent, clock = _Sessions(), _Agent(hangs=True), ManualClock()
    with nothing_left("an attempt beyond its deadline"):
        task = asyncio.ensure_future(_generate(generator, attempt, agent, sessions, clock, deadline=10.0))
        await clock.advance(9.0)
        told = agent.episodes[0].cancelled
        expect(not task.done() and not told.is_set(), "it ended before its deadline", "wait until context.deadline")
        await clock.advance(2.0)
        expect(told.is_set(), "the agent was not told to stop", "set episode.cancelled at the deadline")
        await clock.advance(600.0)
        done, _ = await asyncio.wait({task}, timeout=2)
        expect(done, "it goes on ten minutes after its deadline", "cancel the agent after a time of grace")
        failed = not task.cancelled() and task.exception() is not None
        expect(failed, "an agent that never ended gave a trajectory", "raise TimeoutError")
    expect(sessions.closed == sessions.opened, "its session stays open", "close it in `finally`")


def _generator(subject: ComponentSubject) -> Generator:
    if "needs-agent" not in subject.registered.component.capabilities:
        inapplicable("it runs no agent")
    generator: Generator = subject.build()
    return generator


async def _generate(
    generator: Generator,
    attempt: Attempt,
    agent: Agent,
    sessions: _Sessions,
    clock: ManualClock | None = None,
    deadline: float | None = None,
) -> Trajectory:
    context = GenerateContext(ScriptedEngine(), CharRenderer(), clock or ManualClock(), deadline, agent, NAME, sessions)
    return await generator.generate(attempt, context)
