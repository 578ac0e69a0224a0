"""Checks of the kind `loss`. See `contracts.learning.Loss`."""

from __future__ import annotations

from typing import Any

import numpy as np

from miles_core.testing.fakes.makers import make_batch, make_group, make_sequence, make_task, make_trajectory
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.testing.kit.tensors import Tensors, check_terms, flat_inputs, tensors_of
from miles_core.types.batch import Row
from miles_core.types.sequence import Array
from miles_core.types.trajectory import Group

KIND = "loss"
COLUMNS = ("logprobs", "old_logprobs", "rollout_logprobs", "reference_logprobs", "advantages", "correction")


class Step:
    """The rows of one optimizer step, with made-up log-probs near each other."""

    def __init__(self, subject: ComponentSubject) -> None:
        self.tensors = tensors_of(subject)
        self.loss: Any = subject.build()
        self.rows = list(make_batch(_groups(), 0.0).rows)
        random = np.random.default_rng(5)
        self.columns: dict[str, list[Array]] = {name: [] for name in COLUMNS}
        for row in self.rows:
            count = row.sequence.sampled_count
            old = -random.uniform(0.1, 4.0, count)
            for name in COLUMNS[:4]:
                self.columns[name].append(np.minimum(old + 0.1 * random.standard_normal(count), -0.01))
            self.columns["advantages"].append(np.full(count, random.choice([-1.5, 0.8, 2.0])))
            self.columns["correction"].append(random.uniform(0.5, 1.5, count))

    @property
    def needs(self) -> tuple[bool, bool]:
        return bool(self.loss.needs_rollout_logprobs), bool(self.loss.needs_reference)

    @property
    def count(self) -> int:
        return sum(row.sequence.sampled_count for row in self.rows)

    def inputs(self, places: list[int] | None = None) -> Any:
        """LossInputs of the rows at these places (default: all)."""
        places = list(range(len(self.rows))) if places is None else places
        columns = {name: [arrays[place] for place in places] for name, arrays in self.columns.items()}
        return flat_inputs([self.rows[place] for place in places], columns, self.tensors, self.needs)

    def weights(self) -> list[Array]:
        """Of each row, at its sampled tokens."""
        given = self.loss.weights(self.rows)
        return [np.asarray(w)[row.sequence.sampled] for w, row in zip(given, self.rows, strict=True)]

    def total(self, places: list[int]) -> tuple[float, Array | None]:
        """Weights x values summed over these rows in float64, and its gradient to their log-probs."""
        inputs, flat = self.inputs(places), np.concatenate([self.weights()[place] for place in places])
        values = self.loss.per_token(inputs).values
        if self.tensors.carries_gradients:
            (values * self.tensors.of(flat)).sum().backward()
        total = float((self.tensors.array(values) * flat).sum())
        return total, _gradient(inputs.logprobs, self.tensors)


@check(KIND, Grade.SILVER, "it says with a bool each whether it needs rollout and reference log-probs")
def says_what_it_needs(subject: ComponentSubject) -> None:
    loss = subject.build()
    for name in ("needs_rollout_logprobs", "needs_reference"):
        value = getattr(loss, name, None)
        expect(isinstance(value, bool), f"{name} is {value!r}", f"make {name} a property or attribute that is a bool")


@check(KIND, Grade.SILVER, "it weighs every row: float32 [n], finite, 0 at tokens that were not sampled")
def weighs_every_row(subject: ComponentSubject) -> None:
    step = Step(subject)
    weights = step.loss.weights(step.rows)
    expect(
        isinstance(weights, list) and len(weights) == len(step.rows),
        f"weights() gave {type(weights).__name__} of {len(weights)} for {len(step.rows)} rows",
        "return a list with one array for each row, in the rows' order",
    )
    for weight, row in zip(weights, step.rows, strict=True):
        _check_weight(weight, row)
    expect(
        any(weight.any() for weight in weights),
        "every weight of the step is 0: nothing would be learned",
        "give sampled tokens a weight, such as 1 / (sampled tokens of the step)",
    )


@check(KIND, Grade.GOLD, "every sampled token gets one finite value, and one number of each metric")
def gives_a_value_for_every_token(subject: ComponentSubject) -> None:
    step = Step(subject)
    check_terms(step.loss.per_token(step.inputs()), step.tensors, step.count, "per_token")


@check(KIND, Grade.GOLD, "it works without the inputs that it says it does not need")
def needs_no_more_than_it_says(subject: ComponentSubject) -> None:
    step = Step(subject)
    rollout, reference = step.needs
    if rollout and reference:
        inapplicable("it says that it needs everything")
    try:
        step.loss.per_token(step.inputs())
    except (TypeError, AttributeError) as error:
        names = [n for n, needed in (("rollout_logprobs", rollout), ("reference_logprobs", reference)) if not needed]
        expect(
            False,
            f"with {' and '.join(names)} None, per_token raised {type(error).__name__}: {error}",
            "say True in needs_rollout_logprobs or needs_reference, or do without",
        )


@check(KIND, Grade.GOLD, "the gradient reaches the log-prob of each token that has a weight and an advantage")
def its_gradient_reaches_the_logprobs(subject: ComponentSubject) -> None:
    step = Step(subject)
    if not step.tensors.carries_gradients:
        inapplicable("it computes with numpy, which has no gradients: its trainer differentiates by itself")
    for name in ("logprobs", "old_logprobs", "rollout_logprobs", "reference_logprobs"):
        step.columns[name] = step.columns["logprobs"]  # on-policy: no clipping hides a token
    values = step.loss.per_token(step.inputs()).values
    expect(
        step.tensors.attached(values),
        "the values carry no gradient",
        "compute them from inputs.logprobs without detach(), .item() or numpy: it is what the trainer differentiates",
    )
    _, gradient = step.total(list(range(len(step.rows))))
    assert gradient is not None
    expect(np.isfinite(gradient).all(), "the gradient is not finite", "look for a division by 0 or sqrt(0)")
    expect(
        (gradient != 0).all(),
        f"{int((gradient == 0).sum())} of {step.count} tokens have a gradient of 0, though all have a weight and an "
        "advantage and nothing is off-policy",
        "let the value of every sampled token depend on inputs.logprobs",
    )


@check(KIND, Grade.GOLD, "micro-batches of any size add up to the same loss and gradient")
def micro_batches_add_up(subject: ComponentSubject) -> None:
    step = Step(subject)
    names = list(dict.fromkeys(row.trajectory for row in step.rows))
    apart = [[place for place, row in enumerate(step.rows) if row.trajectory == name] for name in names]
    whole, gradient = step.total([place for places in apart for place in places])
    parts = [step.total(places) for places in apart]
    mend = (
        "decide every normaliser in weights(), which sees the whole step, and divide by nothing in per_token(): "
        "it sees one micro-batch"
    )
    total = sum(part[0] for part in parts)
    expect(
        np.isclose(total, whole, rtol=1e-4, atol=1e-6),
        f"one micro-batch gives the loss {whole:.6g}, one for each trajectory {total:.6g}",
        mend,
    )
    if gradient is not None:
        pieces = np.concatenate([part[1] for part in parts if part[1] is not None])
        expect(
            np.allclose(pieces, gradient, rtol=1e-4, atol=1e-7), "the gradients of micro-batches do not add up", mend
        )


@check(KIND, Grade.GOLD, "the same inputs give the same values, and stay as they were")
def repeats_itself_and_changes_nothing(subject: ComponentSubject) -> None:
    step = Step(subject)
    inputs = step.inputs()
    first = step.tensors.array(step.loss.per_token(inputs).values)
    second = step.tensors.array(step.loss.per_token(inputs).values)
    expect(
        np.array_equal(first, second),
        "two calls with the same inputs gave different values",
        "keep no state between calls, draw no random numbers, and change no input in place",
    )
    for name in COLUMNS:
        tensor = getattr(inputs, name)
        same = tensor is None or np.array_equal(
            step.tensors.array(tensor), np.concatenate(step.columns[name]).astype(np.float32).astype(np.float64)
        )
        expect(same, f"inputs.{name} changed during the call", "use no operation in place on the inputs")


def _groups() -> list[Group]:
    """Two groups of different sizes; one trajectory has two sequences, one has a gap between two turns."""
    branching = make_trajectory(
        "7",
        index=2,
        id="g1/2",
        task=make_task(id="b"),
        sequences=[make_sequence("q", "7"), make_sequence("qq", "seven")],
    )
    second = make_group(
        [
            "2",
            "22",
        ],
        [1.0, 0.0],
        number=1,
        task=make_task(id="b"),
    )
    return [
        make_group(["3", ["4", "5 6"], "long answer"], [1.0, 0.0, 0.5]),
        second.replacing((*second.trajectories, branching)),
    ]


def _check_weight(weight: Any, row: Row) -> None:
    n = len(row.sequence)
    expect(
        isinstance(weight, np.ndarray) and weight.dtype == np.float32 and weight.shape == (n,),
        f"the weights of a row of {n} tokens are {getattr(weight, 'dtype', type(weight).__name__)} "
        f"{getattr(weight, 'shape', '')}",
        "give a numpy array float32 [n] for each row: np.where(row.sequence.sampled, np.float32(w), np.float32(0))",
    )
    expect(np.isfinite(weight).all(), "a weight is not finite", "guard the division by the number of sampled tokens")
    expect(
        not weight[~row.sequence.sampled].any(),
        "a token that was not sampled has a weight",
        "set the weight to 0 where row.sequence.sampled is False",
    )


def _gradient(tensor: Any, tensors: Tensors) -> Array | None:
    if not tensors.carries_gradients:
        return None
    return np.zeros(tensor.shape) if tensor.grad is None else tensors.array(tensor.grad)
