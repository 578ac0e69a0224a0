"""Checks of the kind `engine`: what a request asks for and gets. See `contracts.engine.Engine`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from miles_core.contracts.engine import EngineCapabilities, Finish, GenerateRequest, GenerateResult
from miles_core.errors import RequestError
from miles_core.testing.kit.bench_engine import EngineBench, engine_bench, refused, same_tokens, soon
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sequence import TokenArray

KIND = "engine"
gold = partial(check, KIND, Grade.GOLD, reduced=True)
TOLERANCE = 0.02
"""Of log-probs against float64: room for bfloat16, none for another temperature or a truncated distribution."""


@check(
    KIND,
    Grade.SILVER,
    "it says what it can do: a context within the model's, pause modes, forms of weights",
    reduced=True,
)
async def declares_its_capabilities(subject: ComponentSubject) -> None:
    async with engine_bench(subject, publish=False) as bench:
        said = bench.engine.capabilities()
        expect(
            isinstance(said, EngineCapabilities),
            f"capabilities() gave {said!r:.100}",
            "give miles_core.EngineCapabilities",
        )
        longest = bench.model.files.card.context
        expect(
            0 < said.context <= longest,
            f"it says a context of {said.context}, the model's card says {longest}",
            "take the smaller of the engine's own limit and the model's context",
        )
        expect(
            said.pause_modes and said.forms,
            f"pause_modes {set(said.pause_modes)}, forms {set(said.forms)}",
            "name at least one of each: an engine that cannot be updated cannot be trained",
        )


@gold("token ids in, token ids out: types, lengths, spans and the reason of ending agree")
async def gives_tokens_that_agree_with_themselves(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        requests = [bench.request(f"r{n}", "2+2=" + "1" * n, max_new_tokens=1 + 5 * n) for n in range(4)]
        kept = [request.tokens.copy() for request in requests]
        results = await asyncio.gather(*(bench.engine.generate(request) for request in requests))
        for request, result in zip(requests, results, strict=True):
            _check_result(bench, request, result)
        unchanged = all(np.array_equal(r.tokens, k) for r, k in zip(requests, kept, strict=True))
        expect(unchanged, "the tokens of a request changed", "copy a request's tokens before you write")


@gold("log-probs are log-softmax(logits / temperature) of the sampled token, greedy at 1")
async def reports_honest_logprobs(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        reference = bench.model.reference(1)
        if reference is None:
            inapplicable("its model is the plugin's own: no general reference knows its log-probs")
        for temperature in (1.0, 0.7, 1.5, 0.0):
            request = bench.request(f"t{temperature}", temperature=temperature, ignore_stop=True)
            result = await bench.engine.generate(request)
            tokens, prompt = np.concatenate([request.tokens, result.tokens]), len(request.tokens)
            wanted = reference.logprobs(tokens, temperature or 1.0)[prompt:]
            worst = float(np.abs(result.logprobs - wanted).max())
            expect(
                worst <= TOLERANCE,
                f"at temperature {temperature} a log-prob is off by {worst:.4g} nats from a float64 reference",
                "report log-softmax(logits / temperature) of the sampled token under the weights in use, before any "
                "truncation; at temperature 0, of the logits as they are",
            )
            if temperature == 0:
                best = reference.distributions(tokens)[prompt - 1 : -1].max(-1)
                greedy = float((best - wanted).max()) <= TOLERANCE
                expect(
                    greedy, "at temperature 0 a token is not the most likely one", "take the argmax at temperature 0"
                )


@gold("a NoiseKey alone decides the noise, whatever is sampled beside it")
async def is_a_function_of_its_noise_key(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        if not bench.capabilities.noise_keyed:
            inapplicable("it declares noise_keyed=False")
        alone = await bench.generate("a", ignore_stop=True)
        await bench.engine.flush_cache()
        names = ["b", "c", "a", "d", "e"]
        crowd = await asyncio.gather(*(bench.generate(name, ignore_stop=True) for name in names))
        mend = "seed a generator by request.noise.digest() and the position, never by arrival or a global seed"
        expect(same_tokens(alone, crowd[2]), "the same request alone and in a batch gave different tokens", mend)
        different = {tuple(result.tokens.tolist()) for result in crowd}
        expect(len(different) > 1, "requests with different keys gave the same tokens", mend)
        other = await bench.generate("a", seed=2, ignore_stop=True)
        expect(not same_tokens(alone, other), "another seed gave the same tokens", mend)


@gold("sampling ends with a stop token, which is included, or at max_new_tokens")
async def stops_where_it_is_told(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        free = await bench.generate(max_new_tokens=20, ignore_stop=True)
        expect(
            (len(free.tokens), free.finish) == (20, Finish.LENGTH),
            f"with ignore_stop, 20 tokens asked for: {len(free.tokens)} came, finish {free.finish}",
            "sample on when request.sampling.ignore_stop, up to max_new_tokens",
        )
        if not bench.capabilities.noise_keyed:
            return
        stop = int(free.tokens[7])
        end = int(np.flatnonzero(free.tokens == stop)[0]) + 1
        told = await bench.generate(max_new_tokens=20, stop_tokens=(stop,))
        natural = [int(np.flatnonzero(free.tokens == t)[0]) + 1 for t in (0,) if t in free.tokens[:end]]
        expect(
            told.finish is Finish.STOP and len(told.tokens) in (end, *natural),
            f"the token {stop} was sampled at place {end - 1}; as a stop token it ended the request with "
            f"{len(told.tokens)} tokens and finish {told.finish}",
            "end after the first token of request.sampling.stop_tokens, with that token in the output",
        )


@gold("what it can never do is refused with RequestError, at once")
async def refuses_impossible_requests(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        vocabulary, context = bench.model.files.card.vocabulary, bench.capabilities.context
        good = bench.request()
        cases = {
            "a prompt and max_new_tokens beyond the context": bench.request(max_new_tokens=context),
            "a token id outside the vocabulary": _with_tokens(good, [50, vocabulary]),
            "a negative token id": _with_tokens(good, [50, -1]),
            "an empty prompt": _with_tokens(good, []),
        }
        if not bench.capabilities.truncation:
            cases["top_p=0.5, which it does not declare,"] = bench.request(top_p=0.5)
            cases["top_k=2, which it does not declare,"] = bench.request(top_k=2)
        for what, request in cases.items():
            await refused(
                bench.engine.generate(request), RequestError, what, "check a request before it waits for its turn"
            )
        _check_result(bench, good, await bench.engine.generate(good))


@gold("truncated sampling is truncated, and its log-probs are those before truncation")
async def truncates_as_declared(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        if not bench.capabilities.truncation:
            inapplicable("it declares truncation=False, and refuses it")
        greedy = await bench.generate(temperature=0.0, ignore_stop=True)
        for what, sampling in (("top_k=1", {"top_k": 1}), ("top_p near 0", {"top_p": 1e-6})):
            cut = await bench.generate(temperature=1.0, ignore_stop=True, **sampling)
            expect(
                same_tokens(cut, greedy),
                f"with {what} it sampled other tokens than greedy decoding",
                "leave out what top_k and top_p leave out, or declare truncation=False and refuse them",
            )
            expect(
                np.allclose(cut.logprobs, greedy.logprobs, atol=TOLERANCE),
                f"with {what} the log-probs are {cut.logprobs[:3]}, before truncation they are {greedy.logprobs[:3]}",
                "take log-probs from the whole distribution, before top_k and top_p",
            )


@gold("a request that is cancelled frees its slot, and nothing else ends with it")
async def a_cancelled_request_frees_its_slot(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        await bench.engine.pause(bench.mode)  # so that it is surely unfinished
        going = [asyncio.create_task(bench.generate(f"r{n}", max_new_tokens=60, ignore_stop=True)) for n in range(3)]
        await asyncio.sleep(0.02)
        going[1].cancel()
        await asyncio.wait(going[1:2], timeout=10)
        expect(going[1].done(), "cancelling generate does not end it", "let CancelledError pass: clean up and raise it")
        mend = "take a cancelled request out of the batch and the queue (try/finally around the wait)"
        held = await soon(lambda: _holds_at_most(bench, 2))
        expect(held, "while paused, a cancelled request is still held", mend)
        await bench.engine.resume()
        for task in (going[0], going[2]):
            result = await asyncio.wait_for(task, 30)
            expect(len(result.tokens) == 60, "another request was cut short", "end nothing but the cancelled request")

        idle = await soon(lambda: _holds_at_most(bench, 0))
        expect(idle, f"afterwards stats says {await bench.engine.stats()}", mend)


@gold("stats count the tokens of prompts and outputs")
async def counts_what_it_does(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        before = await bench.engine.stats()
        results = await asyncio.gather(*(bench.generate(f"r{n}") for n in range(3)))
        after = await bench.engine.stats()
        sampled = sum(len(result.tokens) for result in results)
        counted = after.sampled_tokens - before.sampled_tokens
        expect(counted == sampled, f"{sampled} tokens were sampled, stats counts {counted}", "count every output token")
        asked = 3 * len(bench.request().tokens)
        counted = after.prompt_tokens - before.prompt_tokens
        expect(
            counted == asked,
            f"prompts had {asked} tokens, stats counts {counted}",
            "count every prompt token, also those from the cache (cached_tokens says how many of them those are)",
        )


@gold("close is idempotent, and a request afterwards is an error, not a hang")
async def closes(subject: ComponentSubject) -> None:
    async with engine_bench(subject) as bench:
        await bench.generate()
        await bench.engine.close()
        await bench.engine.close()
        task = asyncio.create_task(bench.generate())
        await asyncio.wait([task], timeout=5)
        expect(task.done(), "generate on a closed engine never ends", "raise RunError when the engine is closed")
        expect(
            task.exception() is not None,
            "a closed engine answers requests",
            "raise miles_core.RunError from generate once the engine is closed",
        )


async def _holds_at_most(bench: EngineBench, count: int) -> bool:
    stats = await bench.engine.stats()
    return bool(stats.running + stats.waiting <= count)


def _with_tokens(request: GenerateRequest, tokens: list[int]) -> GenerateRequest:
    array: TokenArray = np.array(tokens, np.int32)
    return replace(request, tokens=array)


def _check_result(bench: EngineBench, request: GenerateRequest, result: Any) -> None:
    expect(isinstance(result, GenerateResult), f"generate gave {result!r:.100}", "return miles_core.GenerateResult")
    count, limit = len(result.tokens), request.sampling.max_new_tokens
    for name, array, dtype in (("tokens", result.tokens, np.int32), ("logprobs", result.logprobs, np.float32)):
        expect(
            isinstance(array, np.ndarray) and array.dtype == dtype and array.shape == (count,),
            f"{name} is {getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}, "
            f"for {count} sampled tokens",
            f"give {name} as a numpy array {np.dtype(dtype)} [m], one entry for each sampled token",
        )
    names = (result.id, result.engine) == (request.id, bench.name)
    expect(names, f"it is named {result.id!r} by {result.engine!r}", "give the request's id and the context's name")
    expect(1 <= count <= limit, f"{count} tokens for max_new_tokens {limit}", "sample at least 1 and at most that many")
    vocabulary = bench.model.files.card.vocabulary
    inside = ((result.tokens >= 0) & (result.tokens < vocabulary)).all()
    expect(inside, "a sampled token is outside the vocabulary", "mask padding ids of the output layer")
    honest = np.isfinite(result.logprobs).all() and (result.logprobs <= 0).all()
    expect(honest, f"log-probs are {result.logprobs[:4]}", "a log-prob is finite and at most 0")
    covered = [place for span in result.spans for place in range(span.start, span.stop)]
    expect(
        covered == list(range(count)),
        f"the spans are {result.spans} for {count} tokens",
        "let spans follow each other without gaps and cover [0, m)",
    )
    stopped = int(result.tokens[-1]) in request.sampling.stop_tokens
    wanted = Finish.STOP if stopped else Finish.LENGTH
    expect(
        result.finish is wanted or (stopped and count == limit),
        f"the last token {'is' if stopped else 'is not'} a stop token, and finish is {result.finish!r}",
        "STOP with the stop token in the output, LENGTH at max_new_tokens",
    )
    early = [t for t in result.tokens[:-1].tolist() if t in request.sampling.stop_tokens]
    expect(not early, "there is a stop token before the end", "end at the first stop token")
