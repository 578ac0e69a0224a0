"""Scores as programs tell them, and what an evaluator may return: numbers with intervals, or what is wrong."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_core import Estimate, Evaluation, RunError, Task, ValidationError, pass_at_k
from miles_core.loop.measuring import checked
from miles_core.loop.told_scores import Reading

READING = Reading("bench", version=3, step=2, pass_at=(2,), bounds=(-1.0, 1.0))


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_all_draws_of_k_with_one_that_is_right(case):
    attempts, right, k = case
    draws = list(itertools.combinations([True] * right + [False] * (attempts - right), k))
    assert pass_at_k(attempts, right, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize("case", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_pass_at_k_of_what_cannot_be_is_refused(case):
    with pytest.raises(ValidationError, match="pass@"):
        pass_at_k(*case)


def test_attempts_become_a_mean_and_pass_at_k():
    found = READING.read('noise\n{"scores": {"a": [1, 0, 0], "b": [1, 1]}, "figures": {"length": 12}}\n')
    assert found.scores == {"a": pytest.approx(1 / 3), "b": 1.0}
    assert found.figures["pass@2"].mean == pytest.approx((2 / 3 + 1) / 2)
    assert found.figures["length"].mean == 12


def test_a_mean_has_the_interval_that_is_told():
    told = {"score": 0.5, "n": 10, "low": 0.25, "high": 0.7}
    assert READING.read(json.dumps(told, indent=1)).total == Estimate(0.5, 0.25, 0.7, 10)
    assert READING.read('{"score": 0.5}').total == Estimate(0.5, None, None, 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no scores"),
        ("loss 0.3", "no JSON"),
        ("[1, 2]", r"no JSON|expected a JSON object"),
        ("{}", "neither `scores` nor `score`"),
        ('{"datasets": {}}', "one key for each dataset"),
        ('{"datasets": {"a": 1}}', "dataset 'a' is 1"),
        ('{"scores": {}}', "has no scores"),
        ('{"scores": {"t": []}}', "has no attempt"),
        ('{"scores": {"t": [1]}}', "pass@2 needs 2 attempts"),
        ('{"scores": {"t": [1, true]}}', "is True, expected a number"),
        ('{"scores": {"t": [1, Infinity]}}', "is inf"),
        ('{"scores": {"t": [1, 1.5]}}', "outside \\[-1, 1\\]"),
        ('{"score": 1e999}', "is inf"),
        ('{"score": 1' + "0" * 400 + "}", "too large"),
        ('{"score": 0.5, "n": -3}', "how many tasks"),
        ('{"score": null}', "expected a number"),
        ('{"score": 0.5, "low": 0.4}', "only one of `low` and `high`"),
    ],
)
def test_what_is_no_score_says_why(text, why):
    with pytest.raises(RunError, match=why):
        READING.read(text)


@given(
    st.text()
    | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5).map(json.dumps)
)
def test_whatever_is_told_is_read_or_refused_in_words(text):
    try:
        found = READING.read(text)
    except RunError as error:
        assert str(error)
    else:
        assert isinstance(found, Evaluation)


def check(found: Any, tasks: tuple[str, ...] = ("a", "b")) -> Evaluation:
    evaluator: Any = SimpleNamespace(name="e", tasks=lambda data: [Task(each, "?") for each in tasks])
    context: Any = SimpleNamespace(data=None)
    return checked(found, evaluator, 2, 3, context)


def test_numbers_of_other_libraries_become_plain_ones():
    import numpy as np

    found = check(Evaluation("e", 3, 2, {"a": np.float32(0.5), "b": np.int64(1)}))  # type: ignore[dict-item]
    assert json.dumps(dict(found.scores)) == '{"a": 0.5, "b": 1.0}'


def test_parts_are_checked_as_the_whole_is():
    good = Evaluation(
        "e",
        3,
        2,
        parts=(Evaluation("x", 3, 2, {"other": 1.0}), Evaluation("y", 3, 2, total=Estimate(1, None, None, 3))),
    )
    assert check(good).parts[1].total == Estimate(1.0, None, None, 3)
    bad = Evaluation("e", 3, 2, parts=(Evaluation("x", 3, 2, {"a": float("inf")}),))
    with pytest.raises(RunError, match="dataset 'x': the score of task 'a' is inf"):
        check(bad)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"score": 0.5, "low": 0.7, "high": 0.3}, "from 0.7 to 0.3: its low end is above"),
        ({"score": 0.5, "stderr": -0.1}, "its low end is above"),
        ({"score": 0.9, "low": 0.3, "high": 0.7}, "the total is 0.9, outside of its own interval from 0.3 to 0.7"),
        ({"score": 1, "figures": {"f": {"mean": 3, "low": 0, "high": 1}}}, "f is 3, outside of its own interval"),
        *(
            ({"datasets": {name: {"score": 1}}}, "a dataset is named")
            for name in ("", " ", "a/b", "..", "score", "a\n")
        ),
        ({"datasets": {"fine": {"score": 1}, "scores": {"score": 1}}}, "a dataset is named 'scores'"),
    ],
)
def test_what_cannot_be_filed_or_believed_is_missing_with_the_reason(told, why):
    with pytest.raises(RunError, match=why):
        check(Reading("e", version=3, step=2).read(json.dumps(told)))


def test_a_rounded_interval_is_believed_and_names_are_not_twice():
    told = {"datasets": {"a b": {"score": 0.333333333, "low": 0.3333334, "high": 0.5}}}
    assert check(Reading("e", version=3, step=2).read(json.dumps(told))).parts
    part = Evaluation("x", 3, 2, total=Estimate(1, None, None, 3))
    with pytest.raises(RunError, match="'x' names several datasets"):
        check(Evaluation("e", 3, 2, parts=(part, part)))


@pytest.mark.parametrize("value", [float("nan"), None, "0.5", True, 10**400])
def test_what_is_no_finite_number_is_no_score(value):
    with pytest.raises(RunError, match="the score of task 'a' is"):
        check(Evaluation("e", 3, 2, {"a": value, "b": 1.0}))
