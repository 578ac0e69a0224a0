"""Staleness policies against a plain recount, on groups whose tokens span several versions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from miles_core import BuildContext, Disposition, Group
from miles_core.loop.batch import choose
from miles_core.rollout.staleness import (
    OLD_TOKENS,
    MeanVersion,
    MeanVersionOptions,
    OldestToken,
    OldestTokenOptions,
    PerToken,
    PerTokenOptions,
)
from miles_core.testing import make_sequence, make_task, make_trajectory

CONTEXT = BuildContext(1, "test")
TASK = make_task()
TURNS = st.lists(st.tuples(st.integers(1, 6), st.text("abc", min_size=1, max_size=4)), min_size=1, max_size=4)


def group_of(attempts) -> Group:
    trajectories = []
    for index, turns in enumerate(attempts):
        sequence = make_sequence(answer=[t for _, t in turns], versions=[v for v, _ in turns])
        trajectories.append(make_trajectory(task=TASK, index=index, reward=float(index), sequences=(sequence,)))
    return Group(TASK, 0, 0, tuple(trajectories))


def versions_of(group: Group) -> list[int]:
    return [int(v) for t in group.trajectories for s in t.sequences for v in s.versions[s.sampled]]


GROUPS = st.lists(TURNS, min_size=1, max_size=3).map(group_of)


@given(group=GROUPS, limit=st.integers(0, 6))
def test_oldest_and_mean(group, limit):
    ages = [7 - version for version in versions_of(group)]
    oldest = OldestToken(OldestTokenOptions(limit=limit), CONTEXT).judge(group, 7)
    mean = MeanVersion(MeanVersionOptions(limit=limit), CONTEXT).judge(group, 7)
    assert oldest.keep == (max(ages) <= limit)
    assert mean.keep == (sum(ages) / len(ages) <= limit)
    assert oldest.reason == "" if oldest.keep else str(max(ages)) in oldest.reason


@given(group=GROUPS, limit=st.integers(0, 6))
def test_per_token_keeps_exactly_the_young(group, limit):
    verdict = PerToken(PerTokenOptions(limit=limit), CONTEXT).judge(group, 7)
    young = [version for version in versions_of(group) if 7 - version <= limit]
    assert verdict.keep == bool(young)
    if not verdict.keep:
        return
    kept = verdict.instead or group
    assert sorted(versions_of(kept)) == sorted(young)
    assert (verdict.instead is None) == (len(young) == len(versions_of(group)))
    for before, after in zip(group.trajectories, kept.trajectories, strict=True):
        assert before.reward == after.reward
        assert after.metadata.get(OLD_TOKENS, 0) == before.sampled_count - after.sampled_count
        for old, new in zip(before.sequences, after.sequences, strict=True):
            assert old.tokens.tolist() == new.tokens.tolist()
            assert new.logprobs[new.sampled].tolist() == old.logprobs[new.sampled].tolist()


def test_a_trajectory_of_old_tokens_alone_is_stale_and_the_others_teach():
    group = group_of([[(1, "ab")], [(6, "ab")]])
    young = PerToken(PerTokenOptions(limit=2), CONTEXT).judge(group, 7).instead
    chosen = choose([young], needs_reward=True)
    assert list(chosen.dispositions.values()) == [Disposition.STALE, Disposition.TRAINED]
    assert [len(g.trajectories) for g in chosen.groups] == [1]
