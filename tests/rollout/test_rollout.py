"""The rollout wing with plain objects: rounds, filters, failures, finite data, scoring."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Several

import numpy as np
import pytest

from miles_core import (
    BuildContext,
    Disposition,
    Group,
    PluginError,
    RealClock,
    RequestError,
    RolloutContext,
    RunError,
    Sampling,
    Score,
    Sequence,
    Span,
    Status,
    Task,
    Trajectory,
    Verdict,
)
from miles_core.rollout.fifo_buffer import FifoBuffer, FifoOptions
from miles_core.rollout.file_data import FileData, FileDataOptions
from miles_core.rollout.function_reward import FunctionReward, FunctionRewardOptions
from miles_core.rollout.groups import GroupsOptions, GroupsRollout
from miles_core.rollout.scoring import Scorer, WeighedReward
from miles_core.rollout.unequal_rewards import UnequalRewards, UnequalRewardsOptions

CONTEXT = BuildContext(1, "test")


class Silent:
    def emit(self, name: str, /, **facts: object) -> None:
        pass


def sampled(n: int = 2, version: int = 1) -> Sequence:
    ones = np.ones(n, bool)
    logprobs = np.full(n, -1, np.float32)
    return Sequence(
        np.zeros(n, np.int32), ones, logprobs, np.full(n, version, np.int32), (Span(0, n, version, "e", "r"),)
    )


async def attempt_of(attempt) -> Trajectory:
    return Trajectory(
        attempt.id, attempt.task.id, attempt.index, (sampled(),), text=f"{attempt.task.id}/{attempt.index}"
    )


def tasks_file(tmp_path, n: int = 10):
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f'{{"prompt": "p{i}", "answer": "{i}", "level": {i}}}\n' for i in range(n)))
    return path


def parts(tmp_path, *, n=10, epochs=None, filters=(), score=None, generate=attempt_of, capacity=2.0, per_step=2):
    data = FileData(FileDataOptions(path=tasks_file(tmp_path, n), shuffle=False, epochs=epochs), CONTEXT)
    buffer = FifoBuffer(FifoOptions(capacity=capacity), CONTEXT)
    buffer.connect(per_step, filters, None)

    async def same(group: Group) -> Group:
        return group

    context = RolloutContext(data, buffer, generate, score or same, Sampling(), 2, 1, RealClock(), Silent())
    return buffer, context, data


async def test_a_grant_makes_exactly_that_many_groups_in_order(tmp_path):
    buffer, context, _ = parts(tmp_path)
    rollout = GroupsRollout(GroupsOptions(), CONTEXT)
    await rollout.start(context)
    rollout.grant(3)
    groups = [await buffer.get(1) for _ in range(3)]
    assert sorted(g.number for g in groups) == [0, 1, 2]
    assert [t.text for t in groups[0].trajectories] == [f"{groups[0].task.id}/0", f"{groups[0].task.id}/1"]
    await rollout.drain()
    assert rollout.state() == {"next_number": 3}
    await rollout.close()


async def test_a_full_buffer_makes_the_rollout_wait(tmp_path):
    buffer, context, _ = parts(tmp_path, capacity=0.5, per_step=2)
    rollout = GroupsRollout(GroupsOptions(), CONTEXT)
    await rollout.start(context)
    rollout.grant(4)
    await asyncio.sleep(0.05)
    assert buffer.metrics()["buffer/queue_size"] == 1
    assert [(await buffer.get(1)).number for _ in range(4)] == [0, 1, 2, 3]
    await rollout.close()


class EvenTasksOnly:
    def judge(self, group: Group) -> Verdict:
        return Verdict(group.task.metadata["level"] % 2 == 0, "odd")


async def test_rejected_groups_are_replaced_and_counted(tmp_path):
    buffer, context, _ = parts(tmp_path, filters=(EvenTasksOnly(),))
    rollout = GroupsRollout(GroupsOptions(), CONTEXT)
    await rollout.start(context)
    rollout.grant(4)
    groups = [await buffer.get(1) for _ in range(4)]
    assert [g.task.metadata["level"] for g in sorted(groups, key=lambda g: g.number)] == [0, 2, 4, 6]
    discards = buffer.discarded()
    assert {d.disposition for d in discards} == {Disposition.FILTERED}
    assert [d.group.task.metadata["level"] for d in discards] == [1, 3, 5]
    assert buffer.metrics()["buffer/filtered/odd"] == 3
    await rollout.close()


async def test_finite_data_ends_the_buffer(tmp_path):
    buffer, context, _ = parts(tmp_path, n=3, epochs=1)
    rollout = GroupsRollout(GroupsOptions(), CONTEXT)
    await rollout.start(context)
    rollout.grant(5)
    assert [(await buffer.get(1)).number for _ in range(3)] == [0, 1, 2]
    assert await buffer.get(1) is None
    await rollout.close()


class Nothing:
    def judge(self, group: Group) -> Verdict:
        return Verdict(False, "never")


async def test_a_filter_that_rejects_everything_stops_the_run_with_its_reason(tmp_path):
    buffer, context, _ = parts(tmp_path, filters=(Nothing(),))
    rollout = GroupsRollout(GroupsOptions(fruitless_rounds=4), CONTEXT)
    await rollout.start(context)
    rollout.grant(2)
    with pytest.raises(RunError, match=r"4 rounds in a row.*never"):
        await buffer.get(1)
    await rollout.close()


async def test_an_error_in_the_rollout_reaches_the_driver(tmp_path):
    async def broken(attempt):
        raise PluginError("the generator is broken")

    buffer, context, _ = parts(tmp_path, generate=broken)
    rollout = GroupsRollout(GroupsOptions(), CONTEXT)
    await rollout.start(context)
    rollout.grant(2)
    with pytest.raises(PluginError, match="the generator is broken"):
        await buffer.get(1)
    await rollout.close()


async def test_aborted_groups_are_discarded_at_put_and_stale_ones_at_get():
    class AtMostOneOld:
        def judge(self, group: Group, version: int) -> Verdict:
            return Verdict(version - (group.oldest_version or 0) <= 1, "old")

    buffer = FifoBuffer(FifoOptions(), CONTEXT)
    buffer.connect(4, (), AtMostOneOld())
    task = Task("t", "p")
    aborted = Group(task, 0, 0, (Trajectory("a", "t", 0, (), Status.ABORTED),))
    assert not (await buffer.put(aborted)).keep
    for number, version in ((1, 1), (2, 2), (3, 3)):
        await buffer.put(Group(task, number, 0, (Trajectory(f"b{number}", "t", 0, (sampled(version=version),)),)))
    assert (await buffer.get(3)).number == 2
    assert [(d.group.number, d.disposition) for d in buffer.discarded()] == [
        (0, Disposition.ABORTED),
        (1, Disposition.STALE),
    ]
    metrics = buffer.metrics()
    assert (metrics["buffer/aborted"], metrics["buffer/stale"], metrics["buffer/staleness_max"]) == (1, 1, 2)
    assert (metrics["buffer/queue_size"], metrics["buffer/waiting_staleness_max"]) == (1, 0)


class Gives:
    def __init__(self, scores) -> None:
        self._scores = scores

    async def score(self, group: Group) -> Several[Score | None]:
        if isinstance(self._scores, Exception):
            raise self._scores
        return self._scores


def group_of(n: int = 2) -> Group:
    return Group(Task("the-task", "p"), 0, 0, tuple(Trajectory(f"a{i}", "the-task", i, (sampled(),)) for i in range(n)))


async def test_the_reward_is_the_weighted_sum_and_weight_zero_only_measures():
    scorer = Scorer(
        [
            WeighedReward("x", 2.0, Gives([Score(1.0), Score(0.5)]), "d"),
            WeighedReward("y", -1.0, Gives([Score(0.25), Score(0.0)]), "d"),
            WeighedReward("z", 0.0, Gives([None, Score(9.0)]), "d"),
        ]
    )
    judged = await scorer(group_of())
    assert [t.reward for t in judged.trajectories] == [1.75, 1.0]
    assert judged.trajectories[1].scores["z"] == Score(9.0)


async def test_no_verdict_is_never_zero():
    judged = await Scorer([WeighedReward("x", 1.0, Gives([None, Score(0.0)]), "d")])(group_of())
    assert [t.reward for t in judged.trajectories] == [None, 0.0]


@pytest.mark.parametrize(
    ("scores", "says"),
    [([Score(1.0)], "1 scores for 2"), (ValueError("boom"), "ValueError: boom"), ([1.0, 2.0], "expected a Score")],
)
async def test_a_bad_reward_is_named_with_its_task(scores, says):
    with pytest.raises(PluginError, match=rf"(?s)owner-dist 1\.0.*the-task.*{says}"):
        await Scorer([WeighedReward("x", 1.0, Gives(scores), "owner-dist 1.0")])(group_of())


async def test_a_function_reward_takes_what_it_names(tmp_path, monkeypatch):
    (tmp_path / "my_rewards.py").write_text(
        "def length(text): return len(text)\n"
        "async def later(task, trajectory): return None if task.answer else trajectory.index\n"
        "def wrong(prompt): return 0\n"
        "def nan(text): return float('nan')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    async def scores(name):
        return await FunctionReward(FunctionRewardOptions(path=f"my_rewards:{name}"), CONTEXT).score(group_of())

    assert await scores("length") == [Score(0.0), Score(0.0)]
    assert await scores("later") == [Score(0.0), Score(1.0)]
    with pytest.raises(RequestError, match="prompt"):
        await scores("wrong")
    nan = FunctionReward(FunctionRewardOptions(path="my_rewards:nan"), CONTEXT)
    with pytest.raises(PluginError, match="finite"):
        await Scorer([WeighedReward("nan", 1.0, nan, "my_rewards")])(group_of())


def test_equal_rewards_are_dropped_with_their_value():
    judge = UnequalRewards(UnequalRewardsOptions(), CONTEXT).judge
    group = group_of()
    rewarded = group.replacing(tuple(t.judged(r, {}) for t, r in zip(group.trajectories, (0.5, 0.5), strict=True)))
    assert judge(rewarded) == Verdict(False, "all-equal-0.5")
    assert judge(group) == Verdict(False, "no-verdict")
    uneven = group.replacing(tuple(t.judged(r, {}) for t, r in zip(group.trajectories, (0.5, 0.4), strict=True)))
    assert judge(uneven).keep


def test_groups_that_waited_at_a_checkpoint_are_never_lost_silently():
    buffer = FifoBuffer(FifoOptions(), CONTEXT)
    buffer.restore({"waiting": []})
    with pytest.raises(RequestError, match=r"\[3, 4\] waited"):
        buffer.restore({"waiting": [3, 4]})
