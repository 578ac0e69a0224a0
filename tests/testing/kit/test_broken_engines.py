"""Broken engines: each check catches what it is for. All are the toy engine, changed in one place."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import numpy as np
import pytest
from bench_trying import assert_caught, assert_passes, try_on_bench

from miles_core.contracts.engine import EngineCapabilities, EngineStats, Finish, GenerateResult, PauseMode, VersionSpan
from miles_core.contracts.transport import Form, TensorInfo
from miles_core.errors import RunError
from miles_core.testing import ScriptedEngine
from miles_core.testing.fakes.char_renderer import VOCABULARY
from miles_core.testing.kit import bench_engine
from miles_core.testing.kit.reference import ReferenceLlama
from miles_core.testing.kit.run import all_checks
from miles_core.testing.toy.engine import ToyEngine
from miles_core.testing.toy.model import TENSOR

counter = itertools.count(1)
NOTHING = np.zeros(0, np.int32)


@pytest.fixture(autouse=True)
def impatient_bench(monkeypatch):
    monkeypatch.setattr(bench_engine, "ANSWER_SECONDS", 0.3)


class Changed(ToyEngine):
    """Every result as `change` makes it."""

    def change(self, request, result):
        return result

    async def generate(self, request):
        return self.change(request, await super().generate(request))


class Boastful(ToyEngine):
    def capabilities(self):
        return replace(super().capabilities(), context=10**6)


class Unpausable(ToyEngine):
    def capabilities(self):
        return replace(super().capabilities(), pause_modes=frozenset())


class WideTokens(Changed):
    def change(self, request, result):
        return replace(result, tokens=result.tokens.astype(np.int64))


class Probabilities(Changed):
    def change(self, request, result):
        return replace(result, logprobs=np.exp(result.logprobs))


class TooFewLogprobs(Changed):
    def change(self, request, result):
        return replace(result, logprobs=result.logprobs[:-1])


class NoSpans(Changed):
    def change(self, request, result):
        return replace(result, spans=())


class Gap(Changed):
    def change(self, request, result):
        last = result.spans[-1]
        return replace(result, spans=(VersionSpan(last.version, last.start + 1, last.stop),))


class Anonymous(Changed):
    def change(self, request, result):
        return replace(result, engine="")


class Polite(Changed):
    def change(self, request, result):
        return replace(result, finish=Finish.STOP)


class Overwriting(Changed):
    def change(self, request, result):
        request.tokens[:] = 1
        return result


class Endless(ToyEngine):
    async def generate(self, request):
        longer = replace(request.sampling, max_new_tokens=request.sampling.max_new_tokens + 1)
        return await super().generate(replace(request, sampling=longer))


class ByArrival(ToyEngine):
    async def generate(self, request):
        return await super().generate(replace(request, noise=replace(request.noise, draw=next(counter))))


class OneSeed(ToyEngine):
    async def generate(self, request):
        return await super().generate(replace(request, noise=replace(request.noise, seed=0, task="")))


class DeafToStops(ToyEngine):
    async def generate(self, request):
        return await super().generate(replace(request, sampling=replace(request.sampling, stop_tokens=())))


class StopsAnyway(ToyEngine):
    async def generate(self, request):
        stops = tuple(range(60))
        return await super().generate(
            replace(request, sampling=replace(request.sampling, ignore_stop=False, stop_tokens=stops))
        )


class Credulous(ToyEngine):
    def _check(self, request):
        pass


class Crashing(ToyEngine):
    def _check(self, request):
        assert len(request.tokens) and request.tokens.max() < 128 and request.tokens.min() >= 0


class Pretending(ToyEngine):
    """Declares truncation, and samples as if nothing were asked."""

    def capabilities(self):
        return replace(super().capabilities(), truncation=True)

    async def generate(self, request):
        return await super().generate(replace(request, sampling=replace(request.sampling, top_p=1.0, top_k=0)))


class Leaking(ToyEngine):
    async def generate(self, request):
        self._in_flight += 1
        result = await super().generate(request)
        self._in_flight -= 1
        return result


class Uncancellable(ToyEngine):
    async def generate(self, request):
        return await asyncio.shield(asyncio.ensure_future(super().generate(request)))


class Uncounted(ToyEngine):
    async def stats(self):
        return EngineStats()


class Immortal(ToyEngine):
    async def close(self):
        pass


class Nought(ToyEngine):
    async def version(self):
        return await super().version() or 0


class Patient(ToyEngine):
    async def generate(self, request):
        while self._logits is None:
            await asyncio.sleep(0.01)
        return await super().generate(request)


class OneBehind(ToyEngine):
    async def finish_update(self):
        await super().finish_update()
        self._version -= 1
        return self._version


class Forgetful(ToyEngine):
    """Reports the new version, and samples from the old weights."""

    async def finish_update(self):
        before = self._logits
        version = await super().finish_update()
        self._logits = self._logits if before is None else before
        return version


class StaleSpans(Changed):
    def change(self, request, result):
        return replace(result, spans=(VersionSpan(1, 0, len(result.tokens)),))


class Hasty(ToyEngine):
    """Takes an update at any time."""

    async def begin_update(self, manifest):
        self._update, self._staged = manifest, None


class Incomplete(ToyEngine):
    async def finish_update(self):
        if self._staged is None:
            self._staged = self._logits
        return await super().finish_update()


class Open(ToyEngine):
    """Takes any tensors."""

    async def begin_update(self, manifest):
        if self._update is not None or self._paused is None:
            raise RunError("not now")
        self._update, self._staged = manifest, None


class Destructive(ToyEngine):
    """Refuses what does not fit, and has lost its weights by then."""

    async def begin_update(self, manifest):
        if self._logits is not None:
            self._logits = self._logits + 1e-3 * np.arange(128, dtype=np.float32)
        await super().begin_update(manifest)


class Restless(ToyEngine):
    async def pause(self, mode):
        self._paused = mode
        self._remembered = mode

    async def _until_running(self, aborts):
        await asyncio.sleep(0)


class AbortsNewcomers(ToyEngine):
    async def generate(self, request):
        if self._paused is PauseMode.ABORT:
            return GenerateResult(request.id, self._name, NOTHING, NOTHING.astype(np.float32), (), Finish.ABORT)
        return await super().generate(request)


class AlwaysAborts(ToyEngine):
    async def pause(self, mode):
        await super().pause(PauseMode.ABORT)


class NeverAborts(ToyEngine):
    async def pause(self, mode):
        await super().pause(PauseMode.RETRACT)


class OneVersion(Changed):
    def change(self, request, result):
        return replace(result, spans=(VersionSpan(self._version, 0, len(result.tokens)),))


class NoDirectory(ToyEngine):
    async def load(self, delivery):
        if delivery.form is Form.DISK:
            raise OSError("no such thing")
        await super().load(delivery)


BROKEN = [
    ("declares-its-capabilities", Boastful),
    ("declares-its-capabilities", Unpausable),
    ("gives-tokens-that-agree-with-themselves", WideTokens),
    ("gives-tokens-that-agree-with-themselves", Probabilities),
    ("gives-tokens-that-agree-with-themselves", TooFewLogprobs),
    ("gives-tokens-that-agree-with-themselves", NoSpans),
    ("gives-tokens-that-agree-with-themselves", Gap),
    ("gives-tokens-that-agree-with-themselves", Anonymous),
    ("gives-tokens-that-agree-with-themselves", Polite),
    ("gives-tokens-that-agree-with-themselves", Overwriting),
    ("gives-tokens-that-agree-with-themselves", Endless),
    ("is-a-function-of-its-noise-key", ByArrival),
    ("is-a-function-of-its-noise-key", OneSeed),
    ("stops-where-it-is-told", DeafToStops),
    ("stops-where-it-is-told", StopsAnyway),
    ("refuses-impossible-requests", Credulous),
    ("refuses-impossible-requests", Crashing),
    ("truncates-as-declared", Pretending),
    ("a-cancelled-request-frees-its-slot", Leaking),
    ("a-cancelled-request-frees-its-slot", Uncancellable),
    ("counts-what-it-does", Uncounted),
    ("closes", Immortal),
    ("has-no-version-at-first", Nought),
    ("has-no-version-at-first", Patient),
    ("reports-the-version-it-uses", OneBehind),
    ("reports-the-version-it-uses", Forgetful),
    ("reports-the-version-it-uses", StaleSpans),
    ("keeps-the-order-of-an-update", Hasty),
    ("keeps-the-order-of-an-update", Incomplete),
    ("refuses-tensors-that-do-not-fit", Open),
    ("refuses-tensors-that-do-not-fit", Destructive),
    ("cannot-finish-half-an-update", Incomplete),
    ("samples-nothing-while-paused", Restless),
    ("samples-nothing-while-paused", AbortsNewcomers),
    ("carries-requests-over-an-update", AlwaysAborts),
    ("carries-requests-over-an-update", NeverAborts),
    ("carries-requests-over-an-update", OneVersion),
    ("reads-a-directory", NoDirectory),
]


@pytest.mark.parametrize(("name", "broken"), BROKEN)
def test_broken_engines(name, broken):
    assert_caught(try_on_bench(f"engine/{name}", broken))


def test_a_good_one_passes():
    for each in all_checks():
        if each.kind == "engine":
            assert_passes(try_on_bench(each.id, ToyEngine))


def scripted(options, context):
    """The public fake, with answers that differ from request to request."""
    return ScriptedEngine(
        lambda request: [60 + (request.noise.digest() >> shift) % 40 for shift in range(20)],
        name=context.name,
        version=None,
        context=context.model.card.context,
        tensors=[TensorInfo(TENSOR, (VOCABULARY,), "float32")],
    )


def test_the_scripted_engine_keeps_the_contract():
    """But for one promise: its log-probs tell the version, not the weights, so that a test can see it."""
    for each in all_checks():
        if each.kind == "engine" and each.id != "engine/reports-the-version-it-uses":
            assert_passes(try_on_bench(each.id, scripted))


class Llama(ToyEngine):
    """The tiny Llama's log-probs of tokens that noise alone chooses: a good engine as far as log-probs go."""

    report_at = staticmethod(lambda temperature: temperature or 1.0)

    def __init__(self, options, context):
        super().__init__(options, context)
        self._folder = context.model.path.parent / "tiny-model-1"  # weights 1, which the check publishes

    def capabilities(self):
        return EngineCapabilities(context=self._context_length)

    async def begin_update(self, manifest):
        self._update = manifest

    async def load(self, delivery):
        self._staged = np.zeros(128, np.float32)

    async def generate(self, request):
        result = await super().generate(request)
        before, reference = len(request.tokens), ReferenceLlama(self._folder)
        tokens = np.concatenate([request.tokens, result.tokens])
        if request.sampling.temperature == 0:
            for place in range(before, len(tokens)):
                tokens[place] = reference.distributions(tokens[:place])[-1].argmax()
        logprobs = reference.logprobs(tokens, self.report_at(request.sampling.temperature))[before:]
        return replace(result, tokens=tokens[before:], logprobs=logprobs.astype(np.float32))


class Tempered(Llama):
    """Reports log-probs at temperature 1 always."""

    report_at = staticmethod(lambda _: 1.0)


class NeverGreedy(Llama):
    async def generate(self, request):
        warm = replace(request.sampling, temperature=request.sampling.temperature or 1.0)
        return await super().generate(replace(request, sampling=warm))


def test_logprobs_are_compared_with_the_reference():
    name = "engine/reports-honest-logprobs"
    assert_passes(try_on_bench(name, Llama, own_model=False))
    for broken in (Tempered, NeverGreedy):
        assert_caught(try_on_bench(name, broken, own_model=False))
