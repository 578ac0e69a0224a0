"""A staleness policy: says which waiting groups are too old for the weights in use."""

from __future__ import annotations

from miles_core.contracts.rollout import Staleness, Verdict
from miles_core.testing.fakes.makers import make_group
from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.samples import snapshot
from miles_core.testing.kit.subject import ComponentSubject


@check("staleness", Grade.GOLD, "what the current weights sampled is kept, and so is what no engine sampled")
def keeps_what_is_fresh(subject: ComponentSubject) -> None:
    policy: Staleness = subject.build()
    for version in (1, 5):
        verdict = policy.judge(make_group(version=version), version)
        expect(isinstance(verdict, Verdict), f"judge returned {verdict!r:.100}", "return miles_core.Verdict")
        expect(verdict.keep, f"a group of version {version} is stale at version {version}", "age 0 is never too old")
    demonstration = make_group((), ())
    expect(policy.judge(demonstration, 3).keep, "a group without sampled tokens is stale", "no version is no age")


@check("staleness", Grade.GOLD, "older is never fresher, and what is dropped has a reason")
def monotonic(subject: ComponentSubject) -> None:
    policy: Staleness = subject.build()
    verdicts = [policy.judge(make_group(version=1), version) for version in range(1, 40)]
    kept = [verdict.keep for verdict in verdicts]
    expect(kept == sorted(kept, reverse=True), f"kept by age: {kept}", "an older group is dropped if a younger one is")
    silent = [verdict for verdict in verdicts if not verdict.keep and not verdict.reason.strip()]
    expect(not silent, "it drops groups without a reason", 'Verdict(False, "why")')


@check("staleness", Grade.GOLD, "its verdict depends on group and version alone, and it changes nothing")
def pure(subject: ComponentSubject) -> None:
    policy: Staleness = subject.build()
    group = make_group(version=2)
    before = snapshot(group)
    first = [policy.judge(group, version) for version in range(2, 20)]
    again = [policy.judge(group, version) for version in reversed(range(2, 20))][::-1]
    expect(first == again, "the same group at the same version is judged differently", "keep no state")
    expect(snapshot(group) == before, "the group was changed", "judge, and change nothing")
