"""What components may do beside their contract, done wrong: each check catches what it is for."""

from __future__ import annotations

import pytest
from trying import try_check

from miles_core.contracts.rollout import Verdict
from miles_core.rollout.adaptive_schedule import AdaptiveOptions, AdaptiveSchedule
from miles_core.rollout.fifo_buffer import FifoBuffer, FifoOptions
from miles_core.rollout.groups import GroupsOptions, GroupsRollout
from miles_core.rollout.staleness import OldestToken, OldestTokenOptions, Resample, ResampleOptions
from miles_core.rollout.sync_schedule import SyncSchedule
from miles_core.testing.kit.check import CheckResult


class Hasty(OldestToken):
    def hopeless(self, group, version):
        return "soon" if version > 1 else ""


class Greedy(Resample):
    def judge(self, group, version):
        verdict = super().judge(group, version)
        return Verdict(False, "all", again=(0, 1, 2)) if verdict.again else verdict


class Silent(AdaptiveSchedule):
    def adapt(self, step, metrics):
        super().adapt(step, metrics)
        return ()


class Forgetful(AdaptiveSchedule):
    def restore(self, state):
        pass


class Once(FifoBuffer):
    """Forgets the trajectories that a group keeps."""

    def _tell(self, discard):
        object.__setattr__(discard, "kept", None)
        super()._tell(discard)


class Keeping(FifoBuffer):
    async def put(self, group):
        await self._order.enter(group)
        return Verdict(True)


class Overflowing(FifoBuffer):
    def resize(self, groups):
        super().resize(100)


class Anew(GroupsRollout):
    """Makes the whole group again."""

    def remake(self, kept):
        super().remake(kept.replacing(()))


class Unsaid(GroupsRollout):
    pass


class Patient(GroupsRollout):
    def foresee(self, version):
        pass


class Ruthless(GroupsRollout):
    def foresee(self, version):
        super().foresee(version + 1)


class Steady(GroupsRollout):
    def repace(self, pace):
        pass


REMAKES = {"capabilities": frozenset({"remakes"})}
SCHEDULE = {"options": AdaptiveOptions, "example": {"groups_per_step": 2, "group_size": 4, "update_every": (1, 3)}}
POLICY = {"options": OldestTokenOptions, "example": {"limit": 2}}
MENDING = {"options": ResampleOptions, "example": {"limit": 2}}
BUFFER = {"options": FifoOptions}
ROLLOUT = {"options": GroupsOptions}
TRIED = [
    ("staleness/hopeless-is-stale", Hasty, OldestToken, POLICY),
    ("staleness/again-is-some", Greedy, Resample, MENDING),
    ("schedule/adapts", Silent, AdaptiveSchedule, SCHEDULE),
    ("schedule/adapts", Forgetful, AdaptiveSchedule, SCHEDULE),
    ("buffer/parts-are-told", Once, FifoBuffer, BUFFER),
    ("buffer/cancelled-groups", Keeping, FifoBuffer, BUFFER),
    ("buffer/resizes", Overflowing, FifoBuffer, BUFFER),
    ("rollout/remakes", Anew, GroupsRollout, {**ROLLOUT, **REMAKES}),
    ("rollout/gives-up", Patient, GroupsRollout, ROLLOUT),
    ("rollout/gives-up", Ruthless, GroupsRollout, ROLLOUT),
    ("rollout/repaces", Steady, GroupsRollout, ROLLOUT),
]


@pytest.mark.parametrize(("check_id", "broken", "good", "more"), TRIED)
def test_a_broken_one_is_caught_and_a_good_one_passes(check_id, broken, good, more):
    finding = try_check(check_id, broken, **more)
    assert finding.result is CheckResult.FAILED and finding.detail and finding.mend, finding
    assert try_check(check_id, good, **more).result is CheckResult.PASSED


def test_what_is_declared_and_what_is_there_agree():
    assert try_check("rollout/remakes", Unsaid, **ROLLOUT).result is CheckResult.FAILED


def test_who_does_nothing_beside_is_none_the_worse():
    class Plain(OldestToken):
        hopeless = None

    assert try_check("staleness/hopeless-is-stale", Plain, **POLICY).result is CheckResult.INAPPLICABLE
    assert try_check("staleness/again-is-some", OldestToken, **POLICY).result is CheckResult.INAPPLICABLE
    example = {"groups_per_step": 2, "group_size": 4}
    found = try_check("schedule/adapts", SyncSchedule, options=AdaptiveOptions, example=example)
    assert found.result is CheckResult.INAPPLICABLE
