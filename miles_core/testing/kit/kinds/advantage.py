"""Checks of the kind `advantage`. See `contracts.learning.Advantage`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from miles_core.errors import MilesError
from miles_core.testing.fakes.makers import make_group, make_sequence, make_task, make_trajectory
from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sequence import Array
from miles_core.types.trajectory import Group

KIND = "advantage"


@check(KIND, Grade.SILVER, "every trajectory gets one float32 array for each of its sequences, as long as it")
def gives_an_array_for_every_sequence(subject: ComponentSubject) -> None:
    groups = _groups()
    found = subject.build().compute(groups)
    expect(isinstance(found, Mapping), f"compute gave {type(found).__name__}", "return a dict by trajectory id")
    ids = {t.id for group in groups for t in group.trajectories}
    expect(
        set(found) == ids,
        f"compute was given the trajectories {sorted(ids)} and returned {sorted(map(str, found))}",
        "return an entry for every trajectory of every group, under its id, and no other",
    )
    for group in groups:
        for trajectory in group.trajectories:
            arrays = found[trajectory.id]
            wanted = [len(sequence) for sequence in trajectory.sequences]
            expect(
                isinstance(arrays, tuple) and [getattr(a, "shape", None) for a in arrays] == [(n,) for n in wanted],
                f"{trajectory.id} has sequences of {wanted} tokens and got {_described(arrays)}",
                "return a tuple with one array for each sequence, as long as its tokens",
            )
            expect(
                all(a.dtype == np.float32 for a in arrays),
                f"the arrays of {trajectory.id} are {[str(a.dtype) for a in arrays]}",
                "compute in float64 if you like, and return float32: array.astype(np.float32)",
            )


@check(KIND, Grade.GOLD, "advantages are finite, also where all rewards of a group or of the batch are equal")
def is_finite_for_equal_rewards(subject: ComponentSubject) -> None:
    equal = [make_group(["3", "4", "5"], [0.7, 0.7, 0.7]), make_group(["1", "2"], [0.0, 0.0], number=1)]
    for title, groups in (("unequal rewards", _groups()), ("equal rewards", equal), ("one equal group", equal[:1])):
        found = subject.build().compute(groups)
        wrong = [t for t, values in _values(found, groups).items() if not np.isfinite(values).all()]
        expect(
            not wrong,
            f"for {title}, the advantages of {wrong} are not finite",
            "guard the division: a deviation of 0 divides nothing, or epsilon is added to it",
        )


@check(KIND, Grade.GOLD, "a group that shrank to one trajectory gets finite advantages, or is refused in words")
def handles_a_group_of_one(subject: ComponentSubject) -> None:
    groups = [make_group(["3"], [1.0])]
    try:
        found = subject.build().compute(groups)
    except MilesError as error:
        expect(str(error).strip(), "the error has no words", "say that a group of one cannot be compared")
        return
    expect(
        all(np.isfinite(values).all() for values in _values(found, groups).values()),
        "the advantage in a group of one is not finite",
        "a group may be smaller than the recipe's group_size: give 0, or raise miles_core.ValidationError",
    )


@check(KIND, Grade.GOLD, "the order of groups and of trajectories does not matter")
def does_not_depend_on_order(subject: ComponentSubject) -> None:
    groups = _groups()
    turned = [group.replacing(group.trajectories[::-1]) for group in groups][::-1]
    first, second = (_values(subject.build().compute(given), given) for given in (groups, turned))
    wrong = [t for t in first if not np.allclose(first[t], second[t], rtol=1e-5, atol=1e-6)]
    expect(
        not wrong,
        f"the trajectories {wrong} have other advantages when groups and trajectories come in reverse",
        "tell trajectories apart by id, never by place: what arrives first is chance",
    )


@check(KIND, Grade.GOLD, "the same groups give the same advantages to the last bit, also from a fresh component")
def repeats_itself(subject: ComponentSubject) -> None:
    groups, component = _groups(), subject.build()
    runs = [_values(one.compute(groups), groups) for one in (component, component, subject.build())]
    same = all(np.array_equal(runs[0][t], other[t]) for other in runs[1:] for t in runs[0])
    expect(same, "the advantages differ from call to call", "keep no state between calls and draw no random numbers")


@check(KIND, Grade.GOLD, "what it is given stays as it was")
def changes_nothing_it_is_given(subject: ComponentSubject) -> None:
    groups = _groups()
    before = _arrays(groups)
    found = subject.build().compute(groups)
    after = _arrays(groups)
    expect(
        all(np.array_equal(a, b) for a, b in zip(before, after, strict=True)),
        "arrays of the groups' sequences changed during compute",
        "write into arrays of your own: the groups are saved and audited after you",
    )
    given = {id(a) for group in groups for t in group.trajectories for s in t.sequences for a in _columns(s)}
    shared = [t for t, arrays in found.items() if any(id(a) in given for a in arrays)]
    expect(not shared, f"the advantages of {shared} are arrays of the sequences themselves", "return copies")


def _groups() -> list[Group]:
    """Groups of different sizes with rewards in [0, 1]; one trajectory has two sequences, one has two turns."""
    task = make_task(id="other", answer="7")
    branching = make_trajectory(
        "7", 1.0, task=task, index=2, id="g1/2", sequences=[make_sequence("q", "7"), make_sequence("q", "seven")]
    )
    second = make_group(["2", "9"], [0.25, 0.0], task=task, number=1)
    return [
        make_group(["3", "4", ["5", "3"], "none"], [1.0, 0.0, 0.5, 0.0]),
        second.replacing((*second.trajectories, branching)),
    ]


def _values(found: Mapping[str, Any], groups: list[Group]) -> dict[str, Array]:
    """The advantages of each trajectory where its tokens were sampled."""
    return {
        t.id: np.concatenate([a[s.sampled] for a, s in zip(found[t.id], t.sequences, strict=True)])
        for group in groups
        for t in group.trajectories
    }


def _columns(sequence: Any) -> list[Array]:
    return [sequence.tokens, sequence.sampled, sequence.logprobs, sequence.versions]


def _arrays(groups: list[Group]) -> list[Array]:
    return [a.copy() for group in groups for t in group.trajectories for s in t.sequences for a in _columns(s)]


def _described(arrays: Any) -> str:
    if not isinstance(arrays, tuple | list):
        return type(arrays).__name__
    return f"a {type(arrays).__name__} of {[getattr(a, 'shape', type(a).__name__) for a in arrays]}"
