"""A made-up finished run, with everything in its folder that a real one leaves."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from miles_core.observe.folder import RunFolder
from miles_core.observe.jsonl import JsonLines
from miles_core.observe.trajectories import write_groups
from miles_core.types.sequence import Sequence, Span
from miles_core.types.task import Task
from miles_core.types.trajectory import Disposition, Group, Score, Trajectory

PROMPT = "<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"


def sequence(prompt: int, sampled: int, *, version: int = 1, seed: int = 0) -> Sequence:
    """`prompt` masked tokens (byte values of PROMPT), then `sampled` tokens with log-probs."""
    rng = np.random.default_rng(seed)
    n = prompt + sampled
    mask = np.arange(n) >= prompt
    text = (PROMPT * (n // len(PROMPT) + 1)).encode()
    logprobs = np.where(mask, -rng.exponential(1.0, n), 0.0).astype(np.float32)
    return Sequence(
        tokens=np.frombuffer(text[:n], np.uint8).astype(np.int32),
        sampled=mask,
        logprobs=logprobs,
        versions=np.where(mask, version, 0).astype(np.int32),
        spans=(Span(prompt, n, version, "engine-0", f"r{seed}"),),
    )


def group(number: int, size: int, *, version: int = 1, task: str = "chain_sum:7") -> Group:
    """Trajectories with the rewards 0, 1/(size-1), ..., 1."""
    members = tuple(
        Trajectory(
            id=f"g{number}.{index}",
            task_id=task,
            index=index,
            sequences=(sequence(60, 12 + index, version=version, seed=number * 100 + index),),
            text=f"answer {index}",
            reward=index / max(size - 1, 1),
            scores={"exact": Score(index / max(size - 1, 1), "why <b>not</b>")},
        )
        for index in range(size)
    )
    return Group(Task(task, "What is 3 + 4?", "7", {"<script>": 1}), number, 0, members)


def all_of(one: Group, disposition: Disposition) -> dict[str, Disposition]:
    return {trajectory.id: disposition for trajectory in one.trajectories}


def finished_run(root: Path, steps: int = 12) -> RunFolder:
    folder = RunFolder.create(root, "quickstart")
    metrics, events = JsonLines(folder.metrics), JsonLines(folder.events)
    for step in range(steps):
        metrics.append(_metrics(step, steps))
        one = group(step, 8, version=step + 1)
        write_groups(folder.trajectories, f"step-{step:06d}", [(one, all_of(one, Disposition.TRAINED))], step=step)
    for step in (0, steps // 2, steps):
        scores = {f"chain_sum:{k}": float((k * 7 + step) % 10 < 1 + 4 * step / steps) for k in range(128)}
        mean = sum(scores.values()) / len(scores)
        events.append(
            {"event": "evaluated", "name": "held-out", "step": step, "version": step + 1, "score": mean, "skipped": "",
             "scores": scores}
        )  # fmt: skip
        one = group(0, 1, version=step + 1)
        write_groups(
            folder.trajectories,
            f"evaluation-held-out-{step:06d}",
            [(one, all_of(one, Disposition.EVALUATION))],
            step=step,
        )
    folder.recipe.write_text("miles: 1\nseed: 1\nmodel: {use: '<smollm2> & co'}\n")
    plugin = {"name": "torch", "distribution": "miles-plugin-torch", "version": "0.1.0", "record": "ab" * 32}
    folder.lock.write_text(json.dumps({"format": 1, "plugins": [{**plugin, "editable": False}]}))
    folder.write_status(state="done", steps_done=steps, steps=steps)
    metrics.close()
    events.close()
    return folder


def _metrics(step: int, steps: int) -> dict[str, float | str]:
    part = step / steps
    return {
        "step": step,
        "phase": "rl",
        "version": step + 1,
        "reward/mean": 0.12 + 0.3 * part + 0.03 * math.sin(step * 2.1),
        "reward/std": 0.2 + 0.05 * math.cos(step),
        "rollout/length_mean": 20 - 6 * part,
        "rollout/length_max": 32 - (step % 5),
        "loss/total": 0.01 * math.sin(step),
        "correction/mismatch": 2e-4 * (1 + part),
        "trainer/grad_norm": 1.2 - 0.4 * part,
        "time/rollout": 5 + math.sin(step),
        "time/train": 3.2,
        "time/publish": 0.3,
        "time/evaluate": 4.0 if step % 6 == 5 else 0.0,
        "time/step": 9 + math.sin(step),
        "time/tokens_per_second": 410 + 20 * math.cos(step),
    }
