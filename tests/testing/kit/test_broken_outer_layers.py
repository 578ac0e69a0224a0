"""Broken rollouts and middleware: each check catches what it is for."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from trying import try_check

from miles_core.contracts.middleware import AgentMiddleware, GeneratorMiddleware, RolloutMiddleware
from miles_core.errors import RunError
from miles_core.rollout.groups import GroupsOptions, GroupsRollout
from miles_core.testing.kit.check import CheckResult


class Groups(GroupsRollout):
    """A good rollout."""

    def __init__(self, options, context):
        super().__init__(GroupsOptions(), context)


class OneMore(Groups):
    def grant(self, groups):
        super().grant(groups + 1)


class NoReplacement(Groups):
    async def start(self, context):
        class Buffer:
            def __getattr__(self, name):
                return getattr(context.buffer, name)

            async def put(self, group):
                return replace(await context.buffer.put(group), keep=True)

        await super().start(replace(context, buffer=Buffer()))


class DrainsAtOnce(Groups):
    async def drain(self):
        pass


class NeverEnds(Groups):
    async def close(self):
        pass


class Renumbering(Groups):
    def restore(self, state):
        pass


class Mute(Groups):
    async def start(self, context):
        class Buffer:
            def __getattr__(self, name):
                return getattr(context.buffer, name)

            def end(self, error=None):
                pass

        await super().start(replace(context, buffer=Buffer()))


class Passing(GeneratorMiddleware):
    """A good middleware."""

    def __init__(self, options, context):
        pass

    async def generate(self, attempt, context):
        return await self.inner.generate(attempt, context)


class UnknownLayer(Passing):
    layer = "trainer"


class SyncGenerate(Passing):
    def generate(self, attempt, context):
        return self.inner.generate(attempt, context)


class LastOfAll(Passing):
    async def generate(self, attempt, context):
        self.attempt = attempt
        await asyncio.sleep(0)
        return await self.inner.generate(self.attempt, context)


class Wraps(Passing):
    async def generate(self, attempt, context):
        try:
            return await self.inner.generate(attempt, context)
        except LookupError as error:
            raise RunError("wrapped") from error


class HoldsASlot(Passing):
    def __init__(self, options, context):
        self.room = asyncio.Semaphore(4)

    async def generate(self, attempt, context):
        await self.room.acquire()
        trajectory = await self.inner.generate(attempt, context)
        self.room.release()
        return trajectory


class Misspelt(GeneratorMiddleware):
    def __init__(self, options, context):
        pass

    async def generates(self, attempt, context):
        raise AssertionError("nobody calls it")


class PassingAgent(AgentMiddleware):
    def __init__(self, options, context):
        pass

    async def run(self, episode):
        return await self.inner.run(episode)


class OwnEvent(PassingAgent):
    async def run(self, episode):
        return await self.inner.run(replace(episode, cancelled=asyncio.Event()))


class Sleepy(Passing):
    async def generate(self, attempt, context):
        time.sleep(0.3)
        return await self.inner.generate(attempt, context)


class PassingRollout(RolloutMiddleware):
    def __init__(self, options, context):
        pass


class LosesState(PassingRollout):
    def state(self):
        return {}


BROKEN = [
    ("rollout/keeps-its-grant", OneMore, Groups),
    ("rollout/replaces-rejected", NoReplacement, Groups),
    ("rollout/drains", DrainsAtOnce, Groups),
    ("rollout/closes", NeverEnds, Groups),
    ("rollout/resumes", Renumbering, Groups),
    ("rollout/errors-reach-the-driver", Mute, Groups),
    ("rollout/ends-with-the-data", Mute, Groups),
    ("middleware/keeps-the-layer", UnknownLayer, Passing),
    ("middleware/keeps-the-layer", SyncGenerate, Passing),
    ("middleware/keeps-the-layer", Misspelt, Passing),
    ("middleware/passes-results", LastOfAll, Passing),
    ("middleware/passes-errors", Wraps, Passing),
    ("middleware/passes-cancellation", HoldsASlot, Passing),
    ("middleware/leaves-the-loop-free", Sleepy, Passing),
    ("middleware/agents-stop", OwnEvent, PassingAgent),
    ("middleware/rollouts-live", LosesState, PassingRollout),
]


@pytest.mark.parametrize(("check_id", "factory"), [(check_id, broken) for check_id, broken, _ in BROKEN])
def test_a_broken_one_is_caught(check_id, factory):
    finding = try_check(check_id, factory)
    assert finding.result is CheckResult.FAILED, finding
    assert finding.detail


@pytest.mark.parametrize(("check_id", "good"), sorted({(c, g) for c, _, g in BROKEN}, key=lambda pair: pair[0]))
def test_a_good_one_passes(check_id, good):
    finding = try_check(check_id, good)
    assert finding.result is CheckResult.PASSED, finding


def test_a_misspelt_method_is_told_with_the_right_name():
    finding = try_check("middleware/keeps-the-layer", Misspelt)
    assert "Misspelt overrides nothing of GeneratorMiddleware" in finding.detail
    assert "did you mean `generate`?" in finding.detail
