"""Checks of the kind `engine`: weights, versions and what happens to requests meanwhile. See `contracts.engine`."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import numpy as np

from miles_core.contracts.engine import Finish, GenerateResult, PauseMode
from miles_core.contracts.transport import Delivery, Form, TensorInfo, UpdateManifest
from miles_core.errors import RunError
from miles_core.testing.kit.bench_engine import EngineBench, engine_bench, refused, same_tokens
from miles_core.testing.kit.check import Grade, check, expect, inapplicable, skip
from miles_core.testing.kit.subject import ComponentSubject

KIND = "engine"
gold = partial(check, KIND, Grade.GOLD, reduced=True)
LONG = 180
"""Tokens of a request that an update is to meet in flight."""


@check(KIND, Grade.SILVER, "it has no version before its first update, and refuses to generate", reduced=True)
async def has_no_version_at_first(subject: ComponentSubject) -> None:
    async with engine_bench(subject, publish=False) as bench:
        version = await bench.engine.version()
        expect(version is None, f"version() gave {version!r} before any update", "give None until finish_update")
        await refused(bench.generate(), RunError, "generate without weights", "there is nothing to sample from yet")


@gold("after an update it reports the new version, and samples under the new weights")
async def reports_the_version_it_uses(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        first = await bench.generate(ignore_stop=True)
        await bench.engine.pause(bench.mode)
        finished = await bench.update(2, 2)
        expect(finished == 2, f"finish_update gave {finished!r} for version 2", "return the manifest's version")
        await bench.engine.resume()
        version = await bench.engine.version()
        expect(version == 2, f"version() gave {version!r} after version 2", "report the version of the last update")
        second = await bench.generate(ignore_stop=True)
        for number, result in ((1, first), (2, second)):
            versions = [span.version for span in result.spans]
            expect(versions == [number], f"under version {number} the spans say {versions}", "stamp the version in use")
        mend = "use the new tensors, and drop what the old weights had cached"
        expect(not np.array_equal(first.logprobs, second.logprobs), "other weights gave the same log-probs", mend)
        await bench.publish(3, number=1)
        again = await bench.generate(ignore_stop=True)
        same = np.allclose(again.logprobs[:1], first.logprobs[:1], atol=1e-5)
        expect(same, "the first weights, published again, give other log-probs", mend)


@gold("an update is refused unless it is paused and the only one")
async def keeps_the_order_of_an_update(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        tensors = bench.model.tensors(2)
        manifest = bench.manifest(2, tensors)
        engine = bench.engine
        await refused(engine.begin_update(manifest), RunError, "begin_update while it runs", "it must be paused first")
        await engine.pause(bench.mode)
        await engine.pause(bench.mode)
        await engine.begin_update(manifest)
        await refused(engine.begin_update(manifest), RunError, "a second begin_update", "one update is open already")
        await refused(engine.finish_update(), RunError, "finish_update without the tensors", "they never arrived")
        await engine.discard_update()
        await engine.discard_update()
        await bench.update(2, 2)
        await engine.resume()
        expect(await engine.version() == 2, "after a discarded update the next one failed", "forget a discarded update")


@gold("unknown tensors and other shapes are refused, and the old weights are untouched")
async def refuses_tensors_that_do_not_fit(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        if bench.form is not Form.TENSORS:
            inapplicable("it reads directories: its manifests name no tensors")
        before = await bench.generate(ignore_stop=True)
        infos = [tensor.info for tensor in bench.model.tensors(2)]
        unknown = [*infos, TensorInfo("no.such.tensor", (3,), "float32")]
        wrong = [TensorInfo(infos[0].name, (*infos[0].shape, 2), infos[0].dtype), *infos[1:]]
        await bench.engine.pause(bench.mode)
        for what, given in (("an unknown tensor", unknown), ("a tensor of another shape", wrong)):
            manifest = UpdateManifest(2, Form.TENSORS, tuple(given))
            await refused(
                bench.engine.begin_update(manifest),
                RunError,
                f"a manifest with {what}",
                "compare names and shapes with the model's in begin_update, before anything is changed",
            )
        await bench.engine.resume()
        after = await bench.generate(ignore_stop=True)
        _check_unchanged(before, after, await bench.engine.version())


@gold("an update that lacks tensors cannot be finished, and discarding it leaves what was declared")
async def cannot_finish_half_an_update(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        if bench.form is not Form.TENSORS:
            inapplicable("it reads directories: its manifests name no tensors")
        before = await bench.generate(ignore_stop=True)
        tensors = bench.model.tensors(2)
        await bench.engine.pause(bench.mode)
        await bench.engine.begin_update(bench.manifest(2, tensors))
        if len(tensors) > 1:
            await bench.engine.load(bench.delivery(2, tensors[:-1]))
        await refused(
            bench.engine.finish_update(),
            RunError,
            f"finish_update with {len(tensors) - 1} of {len(tensors)} tensors",
            "compare what arrived with the manifest: a tensor that was missed must not pass",
        )
        await bench.engine.discard_update()
        if bench.capabilities.atomic_update:
            await bench.engine.resume()
            after = await bench.generate(ignore_stop=True)
            _check_unchanged(before, after, await bench.engine.version())
        else:
            version = await bench.engine.version()
            expect(version is None, f"version() gave {version!r} after half an update", "without atomic_update: None")
            await refused(bench.engine.resume(), RunError, "resume after half an update", "its weights are unusable")
        await bench.publish(3)


@gold("while paused nothing is sampled; requests wait, and go on after resume")
async def samples_nothing_while_paused(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        for mode in sorted(bench.capabilities.pause_modes):
            await bench.engine.pause(mode)
            before = (await bench.engine.stats()).sampled_tokens
            waiting = asyncio.create_task(bench.generate(f"while {mode}"))
            await asyncio.sleep(0.05)
            expect(
                not waiting.done(),
                f"a request that came while paused ({mode}) ended at once",
                "let new requests wait until resume; abort ends those that were in flight at the pause",
            )
            sampled = (await bench.engine.stats()).sampled_tokens - before
            expect(sampled == 0, f"{sampled} tokens were sampled while paused ({mode})", "compute nothing until resume")
            await bench.engine.resume()
            result = await asyncio.wait_for(waiting, 20)
            expect(result.finish is not Finish.ABORT, "a request that had waited was aborted", "sample it after resume")


@gold("a request in flight over an update carries both versions, or is aborted, as the mode says")
async def carries_requests_over_an_update(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        for place, mode in enumerate(sorted(bench.capabilities.pause_modes)):
            results = await _caught_in_flight(bench, mode, 2 + 20 * place)
            if mode is PauseMode.ABORT:
                _check_aborted(results)
            else:
                _check_carried_over(results, mode)


@gold("it reads a Hugging Face directory, where it declares that form")
async def reads_a_directory(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        if Form.DISK not in bench.capabilities.forms:
            inapplicable("it does not declare Form.DISK")
        await bench.publish(2)
        sent = await bench.generate(ignore_stop=True)
        await bench.engine.pause(bench.mode)
        await bench.engine.begin_update(UpdateManifest(3, Form.DISK))
        await bench.engine.load(Delivery(Form.DISK, "disk", {"path": str(bench.model.directory(2))}))
        await bench.engine.finish_update()
        await bench.engine.resume()
        read = await bench.generate(ignore_stop=True)
        expect([s.version for s in read.spans] == [3], f"the spans say {read.spans}", "stamp the manifest's version")
        expect(
            not bench.model.tiny or same_tokens(sent, read),
            "the same weights, sent and read from a directory, give different tokens",
            "read every *.safetensors of the directory by name",
        )


def _check_unchanged(before: GenerateResult, after: GenerateResult, version: int | None) -> None:
    expect(
        version == 1 and np.array_equal(before.logprobs[:1], after.logprobs[:1]),
        f"after a refused update, version() is {version!r} and the log-prob of the same token went from "
        f"{before.logprobs[:1]} to {after.logprobs[:1]}",
        "gather new tensors beside the old ones, and take them into use in finish_update only",
    )


async def _caught_in_flight(bench: EngineBench, mode: PauseMode, version: int) -> list[GenerateResult]:
    """Results of requests that an update met in the middle, to judge by the time that they take alone."""

    def start(name: str) -> list[asyncio.Task[GenerateResult]]:
        calls = (bench.generate(f"{mode}/{name}/{n}", max_new_tokens=LONG, ignore_stop=True) for n in range(4))
        return [asyncio.create_task(call) for call in calls]

    begun = time.perf_counter()
    await asyncio.gather(*start("alone"))
    delay = (time.perf_counter() - begun) / 2
    met: list[GenerateResult] = []
    for attempt in range(6):
        going = start(str(attempt))
        await asyncio.sleep(delay)
        unfinished = any(not task.done() for task in going)
        await bench.publish(version + attempt, mode=mode)
        results = await asyncio.wait_for(asyncio.gather(*going), 40)
        met = results if unfinished else met
        if any(0 < _sampled_before(result, version + attempt) < LONG for result in results):
            return results
        delay *= 1.3 if unfinished else 0.6
    if not met:
        skip("no request could be caught in the middle of its tokens: the engine is too quick here")
    return met


def _sampled_before(result: GenerateResult, version: int) -> int:
    return sum(span.stop - span.start for span in result.spans if span.version < version)


def _check_aborted(results: list[GenerateResult]) -> None:
    for result in results:
        cut = len(result.tokens) < LONG
        expect(
            result.finish is (Finish.ABORT if cut else Finish.LENGTH),
            f"a request with {len(result.tokens)} of {LONG} tokens has finish {result.finish}",
            "end requests in flight with Finish.ABORT and the tokens that they have",
        )
    versions = [sorted({span.version for span in result.spans}) for result in results]
    expect(
        all(len(v) <= 1 for v in versions), f"with mode abort, results have versions {versions}", "sample no further"
    )


def _check_carried_over(results: list[GenerateResult], mode: PauseMode) -> None:
    for result in results:
        expect(
            (len(result.tokens), result.finish) == (LONG, Finish.LENGTH),
            f"with mode {mode} a request has {len(result.tokens)} of {LONG} tokens and finish {result.finish}",
            "keep what was sampled, and go on after resume",
        )
        covered = [place for span in result.spans for place in range(span.start, span.stop)]
        expect(covered == list(range(LONG)), f"the spans are {result.spans}", "cover every token once")
    both = any(len({span.version for span in result.spans}) == 2 for result in results)
    expect(both, "no result carries both versions", "stamp each token with the version that sampled it")
