"""Sequences refuse to contradict themselves, and name the field that does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_core import NO_VERSION, Score, Sequence, Span, Trajectory, ValidationError


def sequence(prompt: int = 2, sampled: int = 3, version: int = 1) -> Sequence:
    n = prompt + sampled
    mask = np.arange(n) >= prompt
    return Sequence(
        tokens=np.arange(n, dtype=np.int32),
        sampled=mask,
        logprobs=np.where(mask, np.float32(-0.5), np.float32(0)),
        versions=np.where(mask, np.int32(version), np.int32(NO_VERSION)),
        spans=(Span(prompt, n, version, "engine-0", "r"),),
    )


def test_a_sound_sequence_knows_its_lengths():
    found = sequence(prompt=2, sampled=3)
    assert (len(found), found.prompt_length, found.sampled_count) == (5, 2, 3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tokens", np.arange(5, dtype=np.int64)),
        ("tokens", np.array([0, 1, -2, 3, 4], np.int32)),
        ("sampled", np.ones(4, bool)),
        ("sampled", np.ones(5, np.int32)),
        ("logprobs", np.full(5, -0.5, np.float32)),  # not 0 on the prompt
        ("logprobs", np.array([0, 0, -1, np.nan, -1], np.float32)),
        ("logprobs", np.array([0, 0, -1, 0.5, -1], np.float32)),
        ("logprobs", None),  # but spans say that an engine sampled it
        ("versions", np.array([0, 0, 1, 2, 1], np.int32)),
        ("spans", ()),
        ("spans", (Span(2, 4, 1, "e", "r"),)),
        ("spans", (Span(2, 5, 0, "e", "r"),)),
        ("spans", (Span(3, 5, 1, "e", "r"), Span(2, 3, 1, "e", "r"))),
        ("spans", (Span(2, 6, 1, "e", "r"),)),
        ("routing", np.zeros((5, 2, 2), np.uint8)),
    ],
)
def test_a_contradiction_names_the_field(field, value):
    with pytest.raises(ValidationError, match=rf"Sequence\.{field}"):
        replace(sequence(), **{field: value})


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(0, 3))
def test_spans_of_several_versions_cover_the_sampled_tokens(lengths, prompt):
    spans, versions = [], [NO_VERSION] * prompt
    for version, length in enumerate(lengths, start=1):
        spans.append(Span(len(versions), len(versions) + length, version, "e", "r"))
        versions += [version] * length
    n = len(versions)
    mask = np.arange(n) >= prompt
    found = Sequence(np.zeros(n, np.int32), mask, -mask.astype(np.float32), np.array(versions, np.int32), tuple(spans))
    trajectory = Trajectory("a", "t", 0, (found,))
    assert trajectory.oldest_version == 1
    assert trajectory.sampled_count == sum(lengths)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", None])
def test_a_score_is_a_finite_number(value):
    with pytest.raises(ValidationError, match=r"Score\.value"):
        Score(value)


def test_a_finished_trajectory_has_a_sequence():
    with pytest.raises(ValidationError, match=r"Trajectory\.sequences"):
        Trajectory("a", "t", 0, ())
