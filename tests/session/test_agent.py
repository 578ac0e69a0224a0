"""The `agent` generator: what becomes of an agent's outcome, and of one that fails, hangs, leaves or outstays."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from serving import check_against_log, client_of, served, user

from miles_core import Group, Outcome, PluginError, RequestError, Score, Status, WorkerDied
from miles_core.contracts.options import NoOptions
from miles_core.contracts.sessions import SessionAddress
from miles_core.rollout.agent import AgentGenerator, AgentGeneratorOptions, EpisodeFailed
from miles_core.rollout.agent_reward import AgentReward
from miles_core.rollout.scoring import Scorer, WeighedReward
from miles_core.testing import (
    ManualClock,
    ScriptedEngine,
    make_attempt,
    make_generate_context,
    make_task,
    make_trajectory,
)


class Chats:
    """Asks as often as it is told to, then does what `end` says."""

    def __init__(self, turns=1, end=None, reward=0.5):
        self.turns, self.end, self.reward = turns, end, reward
        self.episode = None
        self.events = []

    async def run(self, episode):
        self.episode = episode
        client = client_of(SessionAddress(episode.base_url, episode.api_key))
        messages = list(episode.task.messages)
        try:
            for _ in range(self.turns):
                completion = await client.chat.completions.create(model="m", messages=messages)
                messages += [completion.choices[0].message.model_dump(), user("and?")]
            if self.end is not None:
                return await self.end(self)
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise
        return Outcome(self.reward, {"turns": self.turns})


@asynccontextmanager
async def at_work(agent, engine=None, clock=None, **options):
    """A function that makes one attempt."""
    engine = engine or ScriptedEngine()
    async with served(engine) as server:
        context = make_generate_context(engine, clock=clock)
        context = replace(context, agent=agent, agent_name="mine", sessions=server)
        generator = AgentGenerator(AgentGeneratorOptions(**options), None)

        async def make(attempt=None):
            try:
                return await generator.generate(attempt or make_attempt(), context)
            finally:
                assert len(server.store) == 0, "its session was left open"

        yield make


async def test_an_episode_becomes_a_trajectory():
    agent, engine = Chats(turns=3), ScriptedEngine()
    async with at_work(agent, engine) as make:
        made = await make()
    check_against_log(made.sequences[0], engine.log)
    assert (made.status, made.reward, made.scores) == (Status.COMPLETED, 0.5, {"mine": Score(0.5)})
    assert made.metadata == {"agent": "mine", "session": {"turns": 3}, "outcome": {"turns": 3}}
    assert agent.episode.cancelled.is_set()
    assert agent.episode.api_key not in repr(agent.episode)


async def test_a_cut_answer_is_a_truncated_trajectory():
    agent, engine = Chats(), ScriptedEngine(["x" * 100])
    async with at_work(agent, engine) as make:
        made = await make()
    assert (made.status, len(made.text)) == (Status.TRUNCATED, 16)


async def test_no_verdict_is_no_score():
    async with at_work(Chats(reward=None)) as make:
        made = await make()
    assert made.reward is None and made.scores == {"mine": None}


async def raises(agent):
    raise ValueError("the shell is gone")


async def leaves(agent):
    raise SystemExit(3)


async def cancels(agent):
    raise asyncio.CancelledError


async def wrong(agent):
    return 1.0


async def not_finite(agent):
    return Outcome(float("nan"))


@pytest.mark.parametrize(
    ("end", "error", "text"),
    [
        (raises, ValueError, "the shell is gone"),
        (leaves, EpisodeFailed, "sys.exit"),
        (cancels, asyncio.CancelledError, None),
        (wrong, PluginError, "expected an Outcome"),
        (not_finite, ValueError, "Outcome.reward is nan"),
    ],
)
async def test_an_agents_failure_is_the_attempts(end, error, text):
    async with at_work(Chats(end=end)) as make:
        with pytest.raises(error, match=text):
            await make()


async def test_an_agent_that_never_asked_gave_nothing():
    async with at_work(Chats(turns=0)) as make:
        with pytest.raises(EpisodeFailed, match="without a model call"):
            await make()


async def test_without_an_agent_the_recipe_is_wrong():
    with pytest.raises(RequestError, match="no agent"):
        await AgentGenerator(AgentGeneratorOptions(), None).generate(make_attempt(), make_generate_context())


async def outstays(agent):
    await asyncio.Event().wait()


async def heeds(agent):
    await agent.episode.cancelled.wait()
    return Outcome(0.25)


async def clings(agent):
    """Goes on, once, after it was cancelled."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        agent.events.append("cleaned up")
        await asyncio.sleep(0)
        raise


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("end", [heeds, outstays, clings])
async def test_a_deadline_is_told_and_then_enforced(end):
    clock, agent = ManualClock(), Chats(end=end)
    async with at_work(agent, clock=clock, seconds=60, grace_seconds=5) as make:
        making = asyncio.create_task(make())
        await until(lambda: agent.episode is not None)
        assert agent.episode.deadline == 60
        await until(lambda: clock.sleeping)
        await asyncio.sleep(0.1)  # its call over HTTP is not on this clock
        await clock.advance(59)
        assert not agent.episode.cancelled.is_set()
        await clock.advance(1.5)
        assert agent.episode.cancelled.is_set()
        if end is heeds:
            assert (await making).reward == 0.25
            return
        assert not making.done()
        await clock.advance(5)
        with pytest.raises(TimeoutError, match="deadline"):
            await making
    assert agent.events[-1:] == ["cancelled"]


async def test_cancelling_the_attempt_cancels_the_agent_with_time_to_clean_up():
    agent = Chats(end=clings)
    async with at_work(agent) as make:
        making = asyncio.create_task(make())
        await until(lambda: agent.episode is not None)
        await asyncio.sleep(0.1)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
    assert agent.events == ["cleaned up", "cancelled"]


class Retries(Chats):
    """Swallows every error, and asks again."""

    async def run(self, episode):
        self.episode = episode
        client = client_of(SessionAddress(episode.base_url, episode.api_key))
        while True:
            try:
                await client.chat.completions.create(model="m", messages=list(episode.task.messages))
            except Exception as error:
                self.events.append(error)
            await asyncio.sleep(0.01)


async def test_a_dead_engine_is_raised_though_the_agent_would_go_on():
    agent, engine = Retries(), ScriptedEngine()
    async with at_work(agent, engine) as make:
        making = asyncio.create_task(make())
        await until(lambda: len(engine.log) > 1)
        engine.die()
        with pytest.raises(WorkerDied):
            await making


async def test_the_agents_verdict_counts_through_the_agent_reward_and_stays_on_record():
    mine = [
        replace(make_trajectory(index=i), scores={"mine": score}, metadata={"agent": "mine"}, reward=None)
        for i, score in enumerate([Score(0.25), None])
    ]
    other = make_trajectory(index=2)
    group = Group(make_task(), 0, 0, (*mine, other))
    reward = AgentReward(NoOptions(), None)
    assert await reward.score(group) == [Score(0.25), None, None]
    scored = await Scorer([WeighedReward("verdict", 2.0, reward, "core")])(group)
    assert [t.reward for t in scored.trajectories] == [0.5, None, None]
    assert scored.trajectories[0].scores == {"mine": Score(0.25), "verdict": Score(0.25)}
