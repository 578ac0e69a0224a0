"""Broken rewards, filters, staleness policies, schedules and matchers: each check catches what it is for."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace

import pytest
from trying import try_check

from miles_core.contracts.options import ScheduleOptions
from miles_core.contracts.rollout import Draw, Verdict
from miles_core.rollout.single_turn import SingleTurn
from miles_core.rollout.sync_schedule import SyncSchedule
from miles_core.testing.fakes.two_tasks import TwoTasks
from miles_core.testing.kit.check import CheckResult
from miles_core.types.task import Task
from miles_core.types.trajectory import Score

counter = itertools.count()


class Good:
    def __init__(self, options, context):
        pass


class Length(Good):
    """A good reward."""

    async def score(self, group):
        return [Score(float(len(t.text))) for t in group.trajectories]


class Sorted(Length):
    async def score(self, group):
        return sorted(await super().score(group), key=lambda score: score.value)


class Counting(Length):
    async def score(self, group):
        return [Score(float(next(counter))) for _ in group.trajectories]


class Mutating(Length):
    async def score(self, group):
        group.task.metadata["seen"] = True
        return await super().score(group)


class NeedsText(Length):
    async def score(self, group):
        return [Score(float(ord(t.text[0]))) for t in group.trajectories]


class Silent(Length):
    async def score(self, group):
        if group.task.answer is None:
            raise ValueError
        return await super().score(group)


class TooFew(Length):
    async def score(self, group):
        return (await super().score(group))[1:]


class Sleeping(Length):
    async def score(self, group):
        for _ in group.trajectories:
            time.sleep(0.05)
        return await super().score(group)


class InAThread(Length):
    """A good one: what blocks is not in the loop."""

    async def score(self, group):
        await asyncio.to_thread(time.sleep, 0.4)
        return await super().score(group)


class SlowAtFirst(Length):
    """A good one: it imports something when it is first asked."""

    async def score(self, group):
        if not hasattr(self, "ready"):
            self.ready = time.sleep(0.3)
        return await super().score(group)


class Unequal(Good):
    """A good filter."""

    def judge(self, group):
        rewards = {t.reward for t in group.trajectories}
        return Verdict(True) if len(rewards) > 1 else Verdict(False, "equal")


class Raising(Unequal):
    def judge(self, group):
        return Verdict(max(t.reward for t in group.trajectories) > 0, "low")


class Bare(Unequal):
    def judge(self, group):
        return bool(group.trajectories)


class WithoutReason(Unequal):
    def judge(self, group):
        return replace(super().judge(group), reason="")


class Alternating(Unequal):
    def judge(self, group):
        return Verdict(next(counter) % 2 == 0, "odd")


class Age(Good):
    """A good staleness policy."""

    def judge(self, group, version):
        if group.oldest_version is None or version - group.oldest_version <= 2:
            return Verdict(True)
        return Verdict(False, "too old")


class AlwaysStale(Age):
    def judge(self, group, version):
        return Verdict(False, "stale")


class JustThree(Age):
    def judge(self, group, version):
        return Verdict(version - (group.oldest_version or version) != 3, "three")


class AgeByMood(Age):
    def judge(self, group, version):
        return Verdict(next(counter) % 7 > 0, "mood")


class LosesTrajectories(Age):
    def judge(self, group, version):
        return Verdict(True, "less", group.replacing(group.trajectories[:1]))


class OneTooMany(SyncSchedule):
    def __init__(self, options, context):
        super().__init__(options, context)
        self.group_size += 1


class Starving(SyncSchedule):
    def reach(self, step, taken):
        return step


class NeverPublishes(SyncSchedule):
    def publishes(self, step):
        return False


class Remembering(SyncSchedule):
    def publishes(self, step):
        self.asked = getattr(self, "asked", 0) + 1
        return self.asked % 3 == 0


class Equal(Good):
    """Messages that are equal in every field, of whatever shape, and no others at all."""

    def matches(self, stored, replayed):
        return stored == replayed


class Anything(Equal):
    def matches(self, stored, replayed):
        return True


class Nothing(Equal):
    def matches(self, stored, replayed):
        return False


class NeedsContent(Equal):
    def matches(self, stored, replayed):
        return stored["content"] == replayed["content"]


class Undocumented(Good):
    def matches(self, stored, replayed):
        return stored == replayed


GOOD = {"reward": Length, "filter": Unequal, "staleness": Age, "schedule": SyncSchedule, "matcher": Equal}
BROKEN = [
    ("reward/order-under-concurrency", Sorted),
    ("reward/order-under-concurrency", TooFew),
    ("reward/deterministic", Counting),
    ("reward/leaves-the-group-alone", Mutating),
    ("reward/any-text", NeedsText),
    ("reward/leaves-the-loop-free", Sleeping),
    ("reward/failed-attempts", Silent),
    ("filter/judges-any-group", Raising),
    ("filter/judges-any-group", Bare),
    ("filter/reasons", WithoutReason),
    ("filter/pure", Alternating),
    ("staleness/keeps-what-is-fresh", AlwaysStale),
    ("staleness/monotonic", JustThree),
    ("staleness/pure", AgeByMood),
    ("staleness/only-masks", LosesTrajectories),
    ("schedule/batch-arithmetic", OneTooMany),
    ("schedule/reaches-every-batch", Starving),
    ("schedule/publishes", NeverPublishes),
    ("schedule/publishes", Remembering),
    ("matcher/reflexive", Anything),
    ("matcher/reflexive", Nothing),
    ("matcher/robust", NeedsContent),
    ("matcher/documents-merges", Undocumented),
]


def tried(check_id, factory):
    schedule = check_id.startswith("schedule")
    example = {"groups_per_step": 2, "group_size": 4} if schedule else {}
    return try_check(check_id, factory, options=ScheduleOptions if schedule else None, example=example, summary="")


@pytest.mark.parametrize(("check_id", "factory"), BROKEN)
def test_a_broken_one_is_caught(check_id, factory):
    finding = tried(check_id, factory)
    assert finding.result is CheckResult.FAILED, finding
    assert finding.detail
    assert finding.mend


@pytest.mark.parametrize("check_id", sorted({check_id for check_id, _ in BROKEN}))
def test_a_good_one_passes(check_id):
    finding = tried(check_id, GOOD[check_id.partition("/")[0]])
    assert finding.result in (CheckResult.PASSED, CheckResult.INAPPLICABLE), finding


def test_a_reward_is_tried_on_the_tasks_of_its_own_plugin_in_any_language():
    class Words(Length):
        """Takes nothing but tasks of its own data."""

        async def score(self, group):
            assert group.task.metadata["language"] == "ru"
            return [Score(float(t.text == group.task.answer)) for t in group.trajectories]

    class Questions(TwoTasks):
        TASKS = tuple(
            Task(
                f"q{n}",
                ({"role": "user", "content": f"сколько {n}?"},),
                answer=f"ответ {n}",
                metadata={"language": "ru"},
            )
            for n in range(5)
        )

        def __init__(self, options, context):
            super().__init__()

        def draw(self):
            draw = super().draw()
            return Draw(self.TASKS[self._position % len(self.TASKS)], draw.draw)

    for check_id in sorted({check_id for check_id, _ in BROKEN if check_id.startswith("reward/")}):
        finding = try_check(check_id, Words, beside={"data": Questions})
        assert finding.result is CheckResult.PASSED, finding
    assert try_check("reward/any-text", Words).result is CheckResult.FAILED
    finding = try_check("generator/token-exact", SingleTurn, beside={"data": Questions})
    assert finding.result is CheckResult.PASSED, finding


def test_what_waits_elsewhere_does_not_hold_the_loop():
    for good in (InAThread, SlowAtFirst):
        finding = try_check("reward/leaves-the-loop-free", good)
        assert finding.result is CheckResult.PASSED, finding
    mend = try_check("reward/leaves-the-loop-free", Sleeping).mend
    assert "await asyncio.sleep" in mend
    assert "asyncio.to_thread" in mend
