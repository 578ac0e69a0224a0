"""Broken advantages, corrections and losses: each check catches what it is for."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from bench_trying import assert_caught, assert_passes
from trying import try_check

from miles_core.contracts.learning import TokenTerms
from miles_core.testing.kit.run import all_checks
from miles_core.testing.toy.learning import ToyAdvantage, ToyLoss

counter = itertools.count(1)


class Changed(ToyAdvantage):
    """Every array as `change` makes it."""

    def change(self, trajectory, arrays):
        return arrays

    def compute(self, groups):
        found = super().compute(groups)
        return {t.id: self.change(t, found[t.id]) for group in groups for t in group.trajectories}


class DoublePrecision(Changed):
    def change(self, trajectory, arrays):
        return tuple(a.astype(np.float64) for a in arrays)


class OneTooShort(Changed):
    def change(self, trajectory, arrays):
        return tuple(a[1:] for a in arrays)


class OneSequenceOnly(Changed):
    def change(self, trajectory, arrays):
        return arrays[:1]


class AList(Changed):
    def change(self, trajectory, arrays):
        return list(arrays)


class Forgetful(Changed):
    def compute(self, groups):
        return dict(list(super().compute(groups).items())[1:])


class Normalised(Changed):
    """By the standard deviation, with nothing that guards a 0."""

    def compute(self, groups):
        found = {}
        for group in groups:
            rewards = np.array([t.reward for t in group.trajectories])
            with np.errstate(all="ignore"):
                values = (rewards - rewards.mean()) / rewards.std(ddof=self.ddof)
            for t, value in zip(group.trajectories, values, strict=True):
                found[t.id] = tuple(np.full(len(s), value, np.float32) for s in t.sequences)
        return found

    ddof = 0


class Unbiased(Normalised):
    ddof = 1


class ByPlace(Changed):
    def compute(self, groups):
        found = dict(super().compute(groups))
        first = groups[0].trajectories[0].id
        return {**found, first: tuple(a + 1 for a in found[first])}


class Random(Changed):
    def change(self, trajectory, arrays):
        return tuple(a + np.float32(next(counter)) for a in arrays)


class Writing(Changed):
    def change(self, trajectory, arrays):
        trajectory.sequences[0].logprobs[:] = 0
        return arrays


class Aliasing(Changed):
    def change(self, trajectory, arrays):
        return tuple(s.logprobs for s in trajectory.sequences)


BROKEN_ADVANTAGES = [
    ("gives-an-array-for-every-sequence", DoublePrecision),
    ("gives-an-array-for-every-sequence", OneTooShort),
    ("gives-an-array-for-every-sequence", OneSequenceOnly),
    ("gives-an-array-for-every-sequence", AList),
    ("gives-an-array-for-every-sequence", Forgetful),
    ("is-finite-for-equal-rewards", Normalised),
    ("handles-a-group-of-one", Unbiased),
    ("does-not-depend-on-order", ByPlace),
    ("repeats-itself", Random),
    ("changes-nothing-it-is-given", Writing),
    ("changes-nothing-it-is-given", Aliasing),
]


class Ratio:
    """A good correction, in numpy."""

    def __init__(self, options, context):
        pass

    def correct(self, log_ratio, row):
        return TokenTerms(self.weigh(np.exp(log_ratio)), {"ratio": np.exp(log_ratio)})

    def weigh(self, ratio):
        return np.minimum(ratio, 2.0)


class TooFew(Ratio):
    def weigh(self, ratio):
        return ratio[1:]


class Undefined(Ratio):
    def weigh(self, ratio):
        with np.errstate(all="ignore"):
            return ratio * np.log(ratio) / np.log(ratio)


class Halved(Ratio):
    def weigh(self, ratio):
        return ratio / 2


class InPlace(Ratio):
    def correct(self, log_ratio, row):
        log_ratio += 1
        return super().correct(log_ratio - 1, row)


class MeanOne(Ratio):
    def weigh(self, ratio):
        return ratio / ratio.mean()


class Counting(Ratio):
    def weigh(self, ratio):
        return ratio * next(counter)


BROKEN_CORRECTIONS = [
    ("gives-a-weight-for-every-token", TooFew),
    ("gives-a-weight-for-every-token", Undefined),
    ("leaves-agreement-alone", Halved),
    ("is-detached-and-changes-nothing", InPlace),
    ("does-not-depend-on-the-micro-batch", MeanOne),
    ("does-not-depend-on-the-micro-batch", Counting),
]


class Words(ToyLoss):
    needs_reference = "no"


class DoubleWeights(ToyLoss):
    def weights(self, rows):
        return [w.astype(np.float64) for w in super().weights(rows)]


class PromptWeights(ToyLoss):
    def weights(self, rows):
        return [np.ones(len(row.sequence), np.float32) for row in rows]


class NoWeights(ToyLoss):
    def weights(self, rows):
        return [w * 0 for w in super().weights(rows)]


class FirstRowOnly(ToyLoss):
    def weights(self, rows):
        return super().weights(rows)[:1]


class OneNumber(ToyLoss):
    def per_token(self, inputs):
        return TokenTerms(super().per_token(inputs).values.mean())


class ShortMetric(ToyLoss):
    def per_token(self, inputs):
        return replace(super().per_token(inputs), means={"half": inputs.logprobs[::2]})


class Secret(ToyLoss):
    def per_token(self, inputs):
        return TokenTerms(-inputs.advantages * (inputs.logprobs - inputs.rollout_logprobs))


class DividesByCount(ToyLoss):
    def per_token(self, inputs):
        return TokenTerms(super().per_token(inputs).values / len(inputs.logprobs))


class Impatient(ToyLoss):
    def per_token(self, inputs):
        inputs.advantages[:] *= 2
        return super().per_token(inputs)


BROKEN_LOSSES = [
    ("says-what-it-needs", Words),
    ("weighs-every-row", DoubleWeights),
    ("weighs-every-row", PromptWeights),
    ("weighs-every-row", NoWeights),
    ("weighs-every-row", FirstRowOnly),
    ("gives-a-value-for-every-token", OneNumber),
    ("gives-a-value-for-every-token", ShortMetric),
    ("needs-no-more-than-it-says", Secret),
    ("micro-batches-add-up", DividesByCount),
    ("repeats-itself-and-changes-nothing", Impatient),
]


@pytest.mark.parametrize(("kind", "good"), [("advantage", ToyAdvantage), ("correction", Ratio), ("loss", ToyLoss)])
def test_a_good_one_passes(kind, good):
    for each in all_checks():
        if each.kind == kind:
            assert_passes(try_check(each.id, good))


@pytest.mark.parametrize(("name", "broken"), BROKEN_ADVANTAGES)
def test_broken_advantages(name, broken):
    assert_caught(try_check(f"advantage/{name}", broken))


@pytest.mark.parametrize(("name", "broken"), BROKEN_CORRECTIONS)
def test_broken_corrections(name, broken):
    assert_caught(try_check(f"correction/{name}", broken))


@pytest.mark.parametrize(("name", "broken"), BROKEN_LOSSES)
def test_broken_losses(name, broken):
    assert_caught(try_check(f"loss/{name}", broken))


def test_torch_is_used_where_the_plugin_uses_it():
    torch = pytest.importorskip("torch")
    home = ModuleType("made_up_with_torch")
    home.torch, sys.modules[home.__name__] = torch, home

    class Gradient(ToyLoss):
        pass

    class Detached(ToyLoss):
        def per_token(self, inputs):
            return TokenTerms(super().per_token(inputs).values.detach())

    class HalfDetached(ToyLoss):
        def per_token(self, inputs):
            first = torch.arange(len(inputs.logprobs)) % 2 == 0
            logprobs = torch.where(first, inputs.logprobs, inputs.logprobs.detach())
            return TokenTerms(-inputs.advantages * logprobs)

    class Learned(Ratio):
        def correct(self, log_ratio, row):
            return TokenTerms(torch.exp(log_ratio) * torch.ones(1, requires_grad=True))

    for made in (Gradient, Detached, HalfDetached, Learned):
        setattr(home, made.__name__, made)
    reach = "loss/its-gradient-reaches-the-logprobs"
    assert_passes(try_check(reach, "made_up_with_torch:Gradient"))
    assert "carry no gradient" in try_check(reach, "made_up_with_torch:Detached").detail
    assert "have a gradient of 0" in try_check(reach, "made_up_with_torch:HalfDetached").detail
    assert_caught(try_check("correction/is-detached-and-changes-nothing", "made_up_with_torch:Learned"))
