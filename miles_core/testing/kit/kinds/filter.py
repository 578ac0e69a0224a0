"""A filter: a pure judge of scored groups, who gives a reason for what is dropped."""

from __future__ import annotations

from miles_core.contracts.rollout import Filter, Verdict
from miles_core.testing.fakes.makers import make_group
from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.samples import snapshot
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.trajectory import Group, Status


@check("filter", Grade.GOLD, "it gives a Verdict for any group: one reward, equal ones, others, or none at all")
def judges_any_group(subject: ComponentSubject) -> None:
    judge: Filter = subject.build()
    for group in _groups():
        verdict = judge.judge(group)
        expect(
            isinstance(verdict, Verdict), f"judge returned {verdict!r:.100}", "return miles_core.Verdict(keep, reason)"
        )
        expect(isinstance(verdict.keep, bool), f"keep is {verdict.keep!r}", "keep is True or False")


@check("filter", Grade.GOLD, "what it drops has a reason of few words, which metrics are counted under")
def reasons(subject: ComponentSubject) -> None:
    judge: Filter = subject.build()
    for group in _groups():
        verdict = judge.judge(group)
        if not verdict.keep:
            rewards = [t.reward for t in group.trajectories]
            expect(verdict.reason.strip(), f"it drops rewards {rewards} without a reason", 'Verdict(False, "why")')
            expect(
                len(verdict.reason) <= 80, f"the reason is {verdict.reason!r}", "the reason names a metric: be short"
            )


@check("filter", Grade.GOLD, "its verdict depends on the group alone, and it changes nothing of it")
def pure(subject: ComponentSubject) -> None:
    judge, other = subject.build(), subject.build()
    groups = _groups()
    before = [snapshot(group) for group in groups]
    first = [judge.judge(group) for group in groups]
    expect(
        [judge.judge(group) for group in reversed(groups)] == first[::-1],
        "a group gets another verdict when others were judged before it",
        "keep no state: groups arrive in any order, and a resumed run begins anew",
    )
    expect([other.judge(g) for g in groups] == first, "another object gives other verdicts", "decide by options alone")
    expect([snapshot(group) for group in groups] == before, "a group was changed", "judge, and change nothing")


def _groups() -> list[Group]:
    rewards: list[list[float | None]] = [
        [1.0, 0.0],
        [0.0, 0.0],
        [1.0, 1.0],
        [None, None],
        [0.5, None],
        [0.25],
        [-1e30, 1e30],
    ]
    groups = [
        make_group([str(place) for place in range(len(each))], each, number=number)
        for number, each in enumerate(rewards)
    ]
    failed = make_group(("", ""), statuses=(Status.FAILED, Status.FAILED), number=len(groups))
    return [*groups, failed, make_group(("1", ""), (1.0, None), statuses=(Status.COMPLETED, Status.FAILED), number=9)]
