"""A staleness policy: says which waiting groups are too old for the weights in use."""

from __future__ import annotations

import numpy as np

from miles_core.contracts.rollout import Staleness, Verdict
from miles_core.testing.fakes.makers import make_group, make_sequence, make_task, make_trajectory
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.samples import snapshot
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.trajectory import Group


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


@check("staleness", Grade.GOLD, "a group that it keeps changed has the same tokens, and no more of them to learn from")
def only_masks(subject: ComponentSubject) -> None:
    policy: Staleness = subject.build()
    task = make_task()
    rows = [make_sequence(str(task.prompt), ("ab", "cd"), versions=versions) for versions in ((1, 9), (9, 9))]
    trajectories = tuple(
        make_trajectory("cd", 1.0, task=task, index=index, id=f"g0/{index}", sequences=[row])
        for index, row in enumerate(rows)
    )
    group = Group(task, 0, 0, trajectories)
    changed = [verdict.instead for version in range(9, 20) if (verdict := policy.judge(group, version)).instead]
    if not changed:
        inapplicable("it keeps groups as they are, or not at all")
    for other in changed:
        assert other is not None
        expect(
            [t.id for t in other.trajectories] == [t.id for t in trajectories], "trajectories are missing", "keep all"
        )
        for theirs, ours in zip(other.trajectories, trajectories, strict=True):
            for new, old in zip(theirs.sequences, ours.sequences, strict=True):
                expect(np.array_equal(new.tokens, old.tokens), "tokens differ", "change only what is learned from")
                more = new.sampled & ~old.sampled
                expect(not more.any(), "more tokens are to be learned from than were sampled", "only mask tokens out")


@check("staleness", Grade.GOLD, "what it calls hopeless it finds stale, whatever comes beside it and ever after")
def hopeless_is_stale(subject: ComponentSubject) -> None:
    policy = subject.build()
    hopeless = getattr(policy, "hopeless", None)
    if hopeless is None:
        inapplicable("it foresees nothing: attempts in flight go on to their end")
    task = make_task()
    begun = make_group(("a",), (1.0,), task=task, version=1)
    for version in range(1, 40):
        why = hopeless(begun, version)
        expect(isinstance(why, str), f"hopeless returned {why!r:.100}", 'a reason, or "" when it may still be trained')
        if not why:
            continue
        young = make_trajectory("b", 0.0, task=task, index=1, id="g0.1", version=version)
        whole = begun.replacing((*begun.trajectories, young))
        for later in (version, version + 1, version + 10):
            kept = policy.judge(whole, later).keep
            expect(not kept, f"hopeless at version {version}, and kept at {later}", "cancel only what is lost for sure")


@check("staleness", Grade.GOLD, "the trajectories that it wants made again are some of the group, and not all")
def again_is_some(subject: ComponentSubject) -> None:
    policy: Staleness = subject.build()
    task = make_task()
    made = tuple(
        make_trajectory("ab", 1.0, task=task, index=index, id=f"g0.{index}", version=version)
        for index, version in enumerate((1, 9, 9))
    )
    asked = [v for v in (policy.judge(Group(task, 0, 0, made), version) for version in range(9, 20)) if v.again]
    if not asked:
        inapplicable("it asks for none")
    for verdict in asked:
        expect(not verdict.keep and verdict.reason.strip(), f"{verdict!r:.100}", 'Verdict(False, "why", again=(…,))')
        fits = set(verdict.again) < {0, 1, 2}
        expect(fits, f"again is {verdict.again} of a group of 3", "indices of the group; if all are old, drop it whole")
