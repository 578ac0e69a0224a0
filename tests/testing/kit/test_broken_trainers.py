"""Broken trainers: each check catches what it is for. All are the toy trainer, changed in one place."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace

import numpy as np
import pytest
from bench_trying import assert_caught, assert_passes, try_on_bench

from miles_core.contracts.trainer import StepReport, TrainerFacts
from miles_core.errors import RequestError, RunError
from miles_core.testing.kit.reference import ReferenceLlama
from miles_core.testing.kit.run import all_checks
from miles_core.testing.toy.trainer import ToyTrainer
from miles_core.types.batch import Batch

counter = itertools.count(1)


class Miscounting(ToyTrainer):
    def facts(self):
        return replace(super().facts(), parameters=7)


class Untrainable(ToyTrainer):
    def facts(self):
        return replace(super().facts(), trainable=0)


class DoublePrecision(ToyTrainer):
    def score(self, sequences):
        return [score.astype(np.float64) for score in super().score(sequences)]


class ScoresPrompts(ToyTrainer):
    def score(self, sequences):
        return [np.where(score == 0, np.float32(-1), score) for score in super().score(sequences)]


class Cold(ToyTrainer):
    """Scores at temperature 1 whatever the span says."""

    def _score(self, sequences):
        plain = [replace(s, spans=tuple(replace(span, temperature=1.0) for span in s.spans)) for s in sequences]
        return super()._score(plain)


class Restless(ToyTrainer):
    def score(self, sequences):
        self._logits = self._logits + 1e-3 * np.arange(128)
        return super().score(sequences)


class Neighbourly(ToyTrainer):
    def score(self, sequences):
        return [score * np.float32(1 + 0.01 * place) for place, score in enumerate(super().score(sequences))]


class Ascending(ToyTrainer):
    def step(self, batch):
        return super().step(Batch(batch.step, tuple(replace(r, advantages=-r.advantages) for r in batch.rows)))


class Silent(ToyTrainer):
    def step(self, batch):
        super().step(batch)
        return StepReport({"loss/total": float("nan")})


class IgnoresDemonstrations(ToyTrainer):
    def step(self, batch):
        sampled = tuple(row for row in batch.rows if row.sequence.logprobs is not None)
        return super().step(Batch(batch.step, sampled)) if sampled else StepReport()


class Unmoved(ToyTrainer):
    """Steps on whatever the loss says, NaN as well, as 0."""

    def step(self, batch):
        try:
            return super().step(batch)
        except RunError:
            return StepReport({"loss/total": 0.0})


class Nameless(ToyTrainer):
    def step(self, batch):
        try:
            return super().step(batch)
        except RunError:
            raise RunError("something is not finite") from None


class TooLate(ToyTrainer):
    def step(self, batch):
        try:
            return super().step(batch)
        except RunError:
            self._logits = self._logits + 1e-3 * np.arange(128)
            raise


class Backwards(ToyTrainer):
    """Announces two tensors and sends one."""

    def facts(self):
        facts = super().facts()
        return replace(facts, tensors=(*facts.tensors, replace(facts.tensors[0], name="more")))


class Stale(ToyTrainer):
    def _tensors(self):
        kept, self._logits = self._logits, np.zeros(128)
        yield from super()._tensors()
        self._logits = kept


class Random(ToyTrainer):
    def step(self, batch):
        report = super().step(batch)
        self._logits = self._logits + 1e-3 * next(counter) * np.arange(128)
        return report


class StartsOver(ToyTrainer):
    def begin_phase(self, parts):
        super().begin_phase(parts)
        self._logits = np.zeros(128)


class Rounding(ToyTrainer):
    def save(self, folder):
        kept = self._logits
        self._logits = kept.astype(np.float16)
        super().save(folder)
        self._logits = kept


class Momentum(ToyTrainer):
    """Has momentum, and forgets it in a checkpoint."""

    _last = 0.0

    def step(self, batch):
        before = self._logits
        report = super().step(batch)
        self._last = 0.9 * self._last + (self._logits - before)
        self._logits = before + self._last
        return report


BROKEN = [
    ("states-its-facts", Miscounting),
    ("states-its-facts", Untrainable),
    ("scores-sampled-tokens", DoublePrecision),
    ("scores-sampled-tokens", ScoresPrompts),
    ("scores-at-the-temperature-of-the-span", Cold),
    ("scores-without-side-effects", Restless),
    ("scores-without-side-effects", Neighbourly),
    ("learns-what-the-advantages-say", Ascending),
    ("learns-what-the-advantages-say", Silent),
    ("learns-demonstrations", IgnoresDemonstrations),
    ("refuses-what-is-not-finite", Unmoved),
    ("refuses-what-is-not-finite", Nameless),
    ("refuses-what-is-not-finite", TooLate),
    ("sends-what-it-has", Backwards),
    ("sends-what-it-has", Stale),
    ("repeats-itself", Random),
    ("begins-another-phase", StartsOver),
    ("continues-from-a-checkpoint", Rounding),
    ("continues-from-a-checkpoint", Momentum),
]


@pytest.mark.parametrize(("name", "broken"), BROKEN)
def test_broken_trainers(name, broken):
    assert_caught(try_on_bench(f"trainer/{name}", broken))


def test_a_good_one_passes():
    for each in all_checks():
        if each.kind == "trainer":
            assert_passes(try_on_bench(each.id, ToyTrainer))


class Llama(ToyTrainer):
    """Scores the tiny Llama and never learns: good enough for checks of scores, exports and other models."""

    def __init__(self, options, context):
        super().__init__(options, context)
        self._folder = context.model.path
        self._card = context.model.card
        self._reference = ReferenceLlama(context.model.path)

    def facts(self):
        return TrainerFacts(self._card.parameters, self._card.parameters, super().facts().tensors)

    def score(self, sequences):
        found = []
        for line in sequences:
            temperature = (line.spans[0].temperature if line.spans else 1.0) or 1.0
            logprobs = self._reference.logprobs(line.tokens, temperature)
            found.append(np.where(line.sampled, logprobs, 0.0).astype(np.float32))
        return found

    def save(self, folder):
        (folder / "layers").write_text(str(self._card.layers))

    def load(self, folder):
        if (folder / "layers").read_text() != str(self._card.layers):
            raise RequestError("the checkpoint is of another model")

    def export(self, folder):
        for file in self._folder.iterdir():
            shutil.copyfile(file, folder / file.name)


class NextToken(Llama):
    """Off by one: scores a token with the distribution that follows it."""

    def score(self, sequences):
        return [
            np.roll(score, -1) * line.sampled for score, line in zip(super().score(sequences), sequences, strict=True)
        ]


class Greedy(Llama):
    """Divides by the span's temperature as it stands, 0 kept apart by a tiny number."""

    def score(self, sequences):
        odd = [
            replace(s, spans=tuple(replace(p, temperature=p.temperature or 0.01) for p in s.spans)) for s in sequences
        ]
        return super().score(odd)


class LoadsAnything(Llama):
    def load(self, folder):
        pass


class ExportsNothing(Llama):
    def export(self, folder):
        pass


class ExportsOthers(Llama):
    def export(self, folder):
        from miles_core.testing.fakes.tiny_model import tiny_model

        tiny_model(folder, seed=99)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("scores-sampled-tokens", NextToken),
        ("scores-sampled-tokens", Greedy),
        ("refuses-another-models-checkpoint", LoadsAnything),
        ("exports-what-it-trained", ExportsNothing),
        ("exports-what-it-trained", ExportsOthers),
    ],
)
def test_broken_trainers_of_a_model_with_files(name, broken):
    assert_passes(try_on_bench(f"trainer/{name}", Llama, own_model=False))
    assert_caught(try_on_bench(f"trainer/{name}", broken, own_model=False))
