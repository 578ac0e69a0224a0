"""Sampling with the torch engine against transformers' `generate`: same model, prompts, lengths and thread count.

    .venv/bin/python benchmarks/decode.py [--model DIRECTORY] [--repeats N] [--quick]

Prints one line `ratio <name> <value> <what over what>` for each figure. CPU seconds are compared, since cores may be
shared; wall seconds stand beside them. Every side runs REPEATS times, alternating, and its least CPU time counts: what
other processes take away only ever adds.

full-length    4 groups of 8 prompts (45 tokens), 32 new tokens each: what is computed is the same, but for the prompts
natural-32     the same 32 requests with lengths as the model's answers have: generate decodes until the longest ends
natural-128    16 groups; generate takes batches of 32, the engine refills its 32 places
full-share     what the matrix products of the full-length run (with weights, and of attention in decoding) take alone,
               in the engine's own layout, over what the engine takes; full-share-weights leaves attention out
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from miles_plugin_torch.engine.options import TorchEngineOptions
from miles_plugin_torch.engine.torch_engine import TorchEngine
from transformers import AutoModelForCausalLM

from miles_core import (
    BuildContext,
    Delivery,
    Form,
    GenerateRequest,
    ModelFiles,
    NoiseKey,
    PauseMode,
    Sampling,
    UpdateManifest,
)

THREADS = 1
GROUP = 8
AT_ONCE = 32
PROMPT_TOKENS = 45
FULL_LENGTH = 32
REPEATS = 3
SEED = 20
LENGTHS = (2, 3, 6, 7, 8, 8, 9, 9, 10, 12, 12, 14, 15, 18, 21, 23, 28, 32, 35, 38, 45, 52, 62)
"""Quantiles of the lengths of SmolLM2-135M-Instruct's answers to one-digit sums (temperature 1, end token included), of
those answers that end within 64 tokens; mean 20. A request's length is one of them, drawn with SEED."""


@dataclass(frozen=True)
class Work:
    """Requests: prompts int32 [n, PROMPT_TOKENS], equal within a group, and how many tokens each samples."""

    name: str
    prompts: np.ndarray
    lengths: list[int]


@dataclass
class Timed:
    """Seconds that a block took."""

    cpu: float = 0.0
    wall: float = 0.0


@contextmanager
def timed() -> Iterator[Timed]:
    """CPU seconds of all threads of this process, and wall seconds."""
    found = Timed()
    cpu, wall = time.process_time(), time.perf_counter()
    yield found
    found.cpu, found.wall = time.process_time() - cpu, time.perf_counter() - wall


def work(name: str, groups: int, vocabulary: int, natural: bool) -> Work:
    rng = np.random.default_rng(SEED)
    prompts = rng.integers(0, vocabulary, (groups, PROMPT_TOKENS)).astype(np.int32).repeat(GROUP, axis=0)
    lengths = rng.choice(LENGTHS, len(prompts)) if natural else np.full(len(prompts), FULL_LENGTH)
    return Work(name, prompts, lengths.tolist())


async def run_engine(engine: TorchEngine, load: Work) -> Timed:
    """All requests at once; every one ends at its length."""
    await engine.flush_cache()
    requests = [
        GenerateRequest(
            id=f"{load.name}-{index}",
            tokens=prompt,
            sampling=Sampling(temperature=1.0, max_new_tokens=length),
            noise=NoiseKey(SEED, "benchmark", load.name, 0, index),
            affinity="",
        )
        for index, (prompt, length) in enumerate(zip(load.prompts, load.lengths, strict=True))
    ]
    with timed() as found:
        results = await asyncio.gather(*(engine.generate(request) for request in requests))
    assert [len(result.tokens) for result in results] == load.lengths
    return found


def run_transformers(model: torch.nn.Module, load: Work) -> Timed:
    """Batches of AT_ONCE in the same order, each until its longest request ends, as `generate` does."""
    with timed() as found:
        for start in range(0, len(load.prompts), AT_ONCE):
            batch = torch.from_numpy(load.prompts[start : start + AT_ONCE].astype(np.int64))
            longest = max(load.lengths[start : start + AT_ONCE])
            output = model.generate(  # type: ignore[operator]
                batch,
                attention_mask=torch.ones_like(batch),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                min_new_tokens=longest,
                max_new_tokens=longest,
                pad_token_id=0,
            )
            assert output.shape[1] == PROMPT_TOKENS + longest
    return found


def run_products(engine: TorchEngine, load: Work, attention: bool) -> Timed:
    """Only the matrix products of the engine's run of full-length requests: one prompt a group, then every step.
    With `attention`, those of queries with keys and of weights with values in decoding too."""
    weights, shape = engine._decoder._weights, engine._decoder.shape
    requests, groups = len(load.prompts), len(load.prompts) // GROUP
    longest = PROMPT_TOKENS + FULL_LENGTH
    kept = [torch.ones(requests * shape.kv_heads, longest, shape.head_dim) for _ in range(2 * shape.layers)]
    queries = torch.ones(requests * shape.kv_heads, shape.heads // shape.kv_heads, shape.head_dim)

    def layers(rows: int, width: int) -> None:
        hidden, inner = torch.ones(rows, shape.hidden), torch.ones(rows, shape.intermediate)
        mixed = torch.ones(rows, shape.q_size)
        for index, layer in enumerate(weights.layers):
            layer.qkv.product(hidden)
            if width and attention:
                scores = torch.bmm(queries, kept[2 * index][:, :width].transpose(1, 2))
                torch.bmm(scores, kept[2 * index + 1][:, :width])
            layer.out.product(mixed)
            layer.gate_up.product(hidden)
            layer.down.product(inner)

    with timed() as found, torch.inference_mode():
        layers(groups * PROMPT_TOKENS, 0)
        for step in range(FULL_LENGTH):
            if step:
                layers(requests, PROMPT_TOKENS + step)
            weights.head.product(torch.ones(requests, shape.hidden))
    return found


async def started_engine(files: ModelFiles) -> TorchEngine:
    options = TorchEngineOptions(threads=THREADS, max_running=AT_ONCE)
    engine = TorchEngine(options, BuildContext(SEED, "benchmark", model=files))
    await engine.start()
    await engine.pause(PauseMode.RETRACT)
    await engine.begin_update(UpdateManifest(1, Form.DISK))
    await engine.load(Delivery(Form.DISK, "disk", {"path": str(files.path)}))
    await engine.finish_update()
    await engine.resume()
    return engine


def model_files(folder: Path | None) -> ModelFiles:
    """SmolLM2-135M-Instruct out of its plugin, or any directory of the same architecture."""
    from miles_plugin_smollm2.model import CARD, converted_folder

    return ModelFiles(folder or converted_folder(), CARD)


def least(runs: list[Timed]) -> Timed:
    return min(runs, key=lambda run: run.cpu)


def report(name: str, over: Timed, under: Timed, what: str) -> str:
    """One figure: prints both sides, returns the line to print last."""
    print(
        f"{name}: transformers {over.cpu:.2f} CPU s ({over.wall:.2f} wall), "
        f"engine {under.cpu:.2f} CPU s ({under.wall:.2f} wall)",
        flush=True,
    )
    return f"ratio {name} {over.cpu / under.cpu:.2f} {what}"


async def compare(files: ModelFiles, repeats: int, quick: bool) -> None:
    torch.set_num_threads(THREADS)
    model = AutoModelForCausalLM.from_pretrained(files.path, dtype=torch.float32).eval()
    engine = await started_engine(files)
    vocabulary = files.card.vocabulary
    loads = [work("full-length", 4, vocabulary, False), work("natural-32", 4, vocabulary, True)]
    if not quick:
        loads.append(work("natural-128", 16, vocabulary, True))
    lines = []
    for load in loads:
        sides: dict[str, Callable[[], Timed]] = {"transformers": lambda load=load: run_transformers(model, load)}
        if load.name == "full-length":
            sides["all products"] = lambda load=load: run_products(engine, load, attention=True)
            sides["weights' products"] = lambda load=load: run_products(engine, load, attention=False)
        runs: dict[str, list[Timed]] = {side: [] for side in [*sides, "engine"]}
        for _ in range(repeats):
            for side, run in sides.items():
                runs[side].append(run())
            runs["engine"].append(await run_engine(engine, load))
        ours = least(runs["engine"])
        what = f"CPU s of transformers generate over ours, {len(load.prompts)} requests of {sum(load.lengths)} tokens"
        lines.append(report(load.name, least(runs["transformers"]), ours, what))
        for name, side in (("full-share", "all products"), ("full-share-weights", "weights' products")):
            if side in runs:
                share = least(runs[side]).cpu / ours.cpu
                lines.append(f"ratio {name} {share:.2f} CPU s of {side} alone over CPU s of the engine")
    await engine.close()
    print("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a Hugging Face directory; default: SmolLM2-135M-Instruct")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--quick", action="store_true", help="without the 128 queued requests")
    arguments = parser.parse_args()
    asyncio.run(compare(model_files(arguments.model), arguments.repeats, arguments.quick))


if __name__ == "__main__":
    main()
