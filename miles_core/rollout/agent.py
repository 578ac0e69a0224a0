"""The `agent` generator: runs an agent inside a session of its own, and keeps what the engine sampled meanwhile.

The agent sees a chat endpoint and no token; what is trained on comes from the session. Its own verdict is one named
score of the trajectory, never more: an agent that fails, or does not end in time, is a failed attempt and has none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.lifecycle import Clock
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import Agent, Attempt, Episode, GenerateContext, Outcome
from miles_core.contracts.sessions import Collected, SessionRules, Sessions
from miles_core.errors import PluginError, RequestError
from miles_core.types.trajectory import Score, Status, Trajectory

log = logging.getLogger(__name__)

AGENT = "agent"
SESSION = "session"
OUTCOME = "outcome"
"""Keys of the trajectory's metadata: the agent's name, what the session says, what the agent wished to keep."""


class AgentGeneratorOptions(Options):
    """How long an episode may take, and what its harness may do with the history of its chat."""

    history: Literal["linear", "branching"] = Field(
        default="linear",
        description="linear: the chat only grows, any other history is refused; branching: forks, compaction and "
        "sub-agents become branches, each a sequence of the same trajectory",
    )
    seconds: float | None = Field(default=None, gt=0, description="deadline of an episode; absent: none")
    grace_seconds: float = Field(
        default=5.0, ge=0, description="how long an agent that was told to stop may take to clean up"
    )


class EpisodeFailed(Exception):
    """An attempt that gave nothing to train on, although nothing raised."""


class AgentGenerator:
    """See `contracts.rollout.Generator`."""

    needs_engine = True

    def __init__(self, options: AgentGeneratorOptions, context: BuildContext) -> None:
        self._options = options

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        if context.agent is None or context.sessions is None:
            raise RequestError(
                "generator `agent` was given no agent, or no sessions", mend="add an `agent:` section to the recipe"
            )
        rules = SessionRules(self._options.history, context.matcher)
        address = await context.sessions.open(attempt, rules)
        episode = Episode(
            task=attempt.task,
            base_url=address.base_url,
            api_key=address.api_key,
            sampling=attempt.sampling,
            deadline=self._deadline(context),
            cancelled=asyncio.Event(),
        )
        try:
            outcome = await self._run(context.agent, episode, context.sessions, context.clock)
            collected = await context.sessions.collect(address.api_key)
        finally:
            await context.sessions.close(address.api_key)
        return _trajectory(attempt, context.agent_name or AGENT, outcome, collected)

    def _deadline(self, context: GenerateContext) -> float | None:
        own = None if self._options.seconds is None else context.clock.now() + self._options.seconds
        return min((each for each in (own, context.deadline) if each is not None), default=None)

    async def _run(self, agent: Agent, episode: Episode, sessions: Sessions, clock: Clock) -> Outcome:
        """The agent's outcome. Raises what the agent raised, what broke behind its session, or TimeoutError."""
        running = asyncio.create_task(_guarded(agent, episode), name=f"agent at task {episode.task.id}")
        broken = asyncio.create_task(sessions.watch(episode.api_key), name="watching its session")
        waiting: list[asyncio.Task[Any]] = [running, broken]
        if episode.deadline is not None:
            waiting.append(asyncio.create_task(clock.sleep(max(0.0, episode.deadline - clock.now())), name="deadline"))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if broken.done():
                broken.result()
            if not running.done():
                episode.cancelled.set()
                await _wait(running, self._options.grace_seconds, clock)
            if not running.done():
                raise TimeoutError(
                    f"the agent did not end by its deadline, nor {self._options.grace_seconds:g} s later"
                )
            return _checked(running.result())
        finally:
            episode.cancelled.set()
            running.cancel()
            await _wait(running, self._options.grace_seconds, clock)
            await _end(waiting[1:])
            if not running.done():
                log.warning("an agent at task %r goes on although it was cancelled", episode.task.id)


async def _guarded(agent: Agent, episode: Episode) -> Any:
    """An exception that would end the event loop becomes one that does not."""
    try:
        return await agent.run(episode)
    except SystemExit as error:
        raise EpisodeFailed(f"the agent called sys.exit({error.code!r})") from error


def _checked(outcome: Any) -> Outcome:
    if not isinstance(outcome, Outcome):
        raise PluginError(
            f"the agent returned {outcome!r:.80}, expected an Outcome", mend="return miles_core.Outcome(…)"
        )
    return outcome


async def _wait(running: asyncio.Task[Any], seconds: float, clock: Clock) -> None:
    """Until it ends, but not longer. Its result stays in it."""
    if running.done():
        return
    alarm = asyncio.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait({running, alarm}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end([alarm])


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _trajectory(attempt: Attempt, agent: str, outcome: Outcome, collected: Collected) -> Trajectory:
    if not collected.sequences:
        raise EpisodeFailed("the agent ended without a model call that was answered")
    score = None if outcome.reward is None else Score(float(outcome.reward))
    kept = {OUTCOME: dict(outcome.metadata)} if outcome.metadata else {}
    return Trajectory(
        id=attempt.id,
        task_id=attempt.task.id,
        index=attempt.index,
        sequences=collected.sequences,
        status=Status.TRUNCATED if collected.truncated else Status.COMPLETED,
        text=collected.text,
        reward=None if score is None else score.value,
        scores={agent: score},
        metadata={AGENT: agent, SESSION: dict(collected.facts), **kept},
    )


def own_score(trajectory: Trajectory) -> dict[str, Score | None]:
    """The score that the trajectory's agent gave, under the agent's name; empty when no agent made it."""
    agent = trajectory.metadata.get(AGENT)
    return {agent: trajectory.scores.get(agent)} if isinstance(agent, str) else {}
