"""Means with their uncertainty, and the paired comparison of two evaluations of the same tasks.

Intervals are two-sided 95 % Student-t intervals: mean +- t(0.975, n - 1) * s / sqrt(n), where s is the sample standard
deviation with n - 1 in its denominator. A paired comparison applies this to the differences task by task, so that the
spread between easy and hard tasks does not blur the difference that training made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from miles_core.errors import ValidationError
from miles_core.types.estimate import Estimate

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Comparison:
    """after - before over the `n` tasks that both evaluations scored. `mean` is the difference, `low` and `high` its
    95 % interval (None when n < 2); `before_mean` and `after_mean` are taken over the same n tasks."""

    mean: float
    low: float | None
    high: float | None
    n: int
    before_mean: float
    after_mean: float

    @property
    def outside_noise(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def mean_and_interval(values: Iterable[float]) -> Estimate:
    """The mean of finite values with its interval. Raises ValidationError when there are none, or one is not finite."""
    numbers = [float(value) for value in values]
    if not numbers:
        raise ValidationError("the mean of no values was asked for")
    for number in numbers:
        if not math.isfinite(number):
            raise ValidationError(f"the mean of values that hold {number} was asked for, expected finite numbers")
    n = len(numbers)
    mean = math.fsum(numbers) / n
    if n < 2:
        return Estimate(mean, None, None, n)
    variance = math.fsum((number - mean) ** 2 for number in numbers) / (n - 1)
    half = student_t_quantile((1 + CONFIDENCE) / 2, n - 1) * math.sqrt(variance / n)
    return Estimate(mean, mean - half, mean + half, n)


def paired_difference(before: Mapping[str, float], after: Mapping[str, float]) -> Comparison:
    """The difference that lies between two evaluations, paired by task id.

    Tasks that only one of them scored are left out of every figure. Raises ValidationError when no task is in both.
    """
    tasks = sorted(before.keys() & after.keys())
    if not tasks:
        raise ValidationError("two evaluations that share no task cannot be compared")
    difference = mean_and_interval(after[task] - before[task] for task in tasks)
    return Comparison(
        mean=difference.mean,
        low=difference.low,
        high=difference.high,
        n=difference.n,
        before_mean=mean_and_interval(before[task] for task in tasks).mean,
        after_mean=mean_and_interval(after[task] for task in tasks).mean,
    )


def student_t_quantile(probability: float, degrees: int) -> float:
    """The x with P(T <= x) = probability for Student's t with `degrees` >= 1 degrees of freedom; 0.5 <= p < 1.

    Found by bisection of the distribution function, to the last bits of a float.
    """
    if degrees < 1:
        raise ValidationError(f"Student's t has {degrees} degrees of freedom, expected 1 or more")
    if not 0.5 <= probability < 1:
        raise ValidationError(f"the quantile of {probability} was asked for, expected 0.5 <= p < 1")
    low, high = 0.0, 1.0
    while _student_t_cdf(high, degrees) < probability:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _student_t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _student_t_cdf(x: float, degrees: int) -> float:
    """P(T <= x) for x >= 0: 1 - I_z(v/2, 1/2) / 2 with z = v / (v + x^2) (Abramowitz and Stegun 26.7.1)."""
    return 1 - _regularized_beta(degrees / (degrees + x * x), degrees / 2, 0.5) / 2


def _regularized_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b) by its continued fraction (Abramowitz and Stegun 26.5.8), evaluated where it converges fast."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _regularized_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _beta_fraction(x, a, b))


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction 1 + d1/(1 + d2/(1 + ...)) by Lentz's method (Thompson and Barnett, 1986)."""
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 0.0
    for k in range(1, 10_000):
        m = k // 2
        if k % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
