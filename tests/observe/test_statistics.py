"""Against printed tables and an example worked by hand; independent of the code under test."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_core.errors import ValidationError
from miles_core.observe.statistics import mean_and_interval, paired_difference, student_t_quantile

# Critical values of Student's t as printed in the usual tables (three decimals).
TABLE = [
    (0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 3, 3.182), (0.975, 4, 2.776), (0.975, 5, 2.571), (0.975, 9, 2.262),
    (0.975, 10, 2.228), (0.975, 20, 2.086), (0.975, 30, 2.042), (0.975, 60, 2.000), (0.975, 120, 1.980),
    (0.95, 1, 6.314), (0.95, 10, 1.812), (0.995, 5, 4.032), (0.995, 30, 2.750), (0.9, 4, 1.533),
]  # fmt: skip


@pytest.mark.parametrize(("probability", "degrees", "printed"), TABLE)
def test_quantiles_equal_the_printed_tables(probability: float, degrees: int, printed: float) -> None:
    assert student_t_quantile(probability, degrees) == pytest.approx(printed, abs=5.1e-4)


@pytest.mark.parametrize("p", [0.6, 0.9, 0.975, 0.999])
def test_quantiles_equal_the_closed_forms_of_one_and_two_degrees(p: float) -> None:
    """v = 1 is Cauchy's distribution: tan(pi (p - 1/2)); v = 2: (2p - 1) sqrt(2 / (4 p (1 - p)))."""
    assert student_t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-9)
    assert student_t_quantile(p, 2) == pytest.approx((2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p))), rel=1e-9)


def test_quantiles_tend_to_the_normal_distribution() -> None:
    assert student_t_quantile(0.975, 10**7) == pytest.approx(1.959964, abs=1e-6)


def test_the_median_is_zero() -> None:
    assert student_t_quantile(0.5, 7) == pytest.approx(0, abs=1e-9)


def test_interval_worked_by_hand() -> None:
    """Values 2, 4, 4, 6: mean 4, s^2 = (4+0+0+4)/3 = 8/3, s/sqrt(4) = 0.81650, t(0.975, 3) = 3.18245: 4 +- 2.5985."""
    found = mean_and_interval([2, 4, 4, 6])
    assert (found.mean, found.n) == (4, 4)
    assert found.low == pytest.approx(4 - 2.59846, abs=1e-4)
    assert found.high == pytest.approx(4 + 2.59846, abs=1e-4)


def test_paired_difference_worked_by_hand() -> None:
    """Ten patients, extra sleep under two drugs (Student 1908, Cushny and Peebles' data): mean difference 1.58,
    95 % interval [0.7001, 2.4599]."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = paired_difference(
        {f"p{i}": value for i, value in enumerate(first)}, {f"p{i}": value for i, value in enumerate(second)}
    )
    assert found.mean == pytest.approx(1.58)
    assert found.low == pytest.approx(0.7001142, abs=1e-6)
    assert found.high == pytest.approx(2.4598858, abs=1e-6)
    assert found.before_mean == pytest.approx(0.75)
    assert found.after_mean == pytest.approx(2.33)
    assert found.outside_noise


def test_only_shared_tasks_are_compared() -> None:
    found = paired_difference({"a": 0.0, "b": 1.0, "gone": 9.0}, {"b": 2.0, "a": 1.0, "new": 9.0})
    assert (found.n, found.mean, found.before_mean, found.after_mean) == (2, 1.0, 0.5, 1.5)


def test_one_value_has_no_interval() -> None:
    found = mean_and_interval([3.0])
    assert (found.mean, found.low, found.high, found.n) == (3.0, None, None, 1)
    assert not paired_difference({"a": 0.0}, {"a": 1.0}).outside_noise


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_mean_of_nothing_and_of_nan(values: list[float]) -> None:
    with pytest.raises(ValidationError):
        mean_and_interval(values)


def test_evaluations_that_share_no_task_are_refused() -> None:
    with pytest.raises(ValidationError, match="share no task"):
        paired_difference({"a": 1.0}, {"b": 1.0})


@given(st.dictionaries(st.text(max_size=3), st.floats(-1e3, 1e3), min_size=2), st.floats(-10, 10))
def test_a_constant_shift_is_found_exactly(before: dict[str, float], shift: float) -> None:
    found = paired_difference(before, {task: value + shift for task, value in before.items()})
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.mean <= found.high
    assert found.mean == pytest.approx(shift, abs=1e-9)
