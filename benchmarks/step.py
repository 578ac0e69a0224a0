"""A whole GRPO step: TRL's GRPOTrainer over Miles, in time and memory, and whether their gradients agree.

    python benchmarks/step.py                  the parts `full`, `natural`, `last`, `gradient`: some minutes
    python benchmarks/step.py checkpointed     one part; this one recomputes activations on both sides, as TRL does by
                                               default, which the other parts leave out on both sides

SmolLM2-135M-Instruct in float32, 4 prompts of 45 tokens x 8 completions, AdamW, one thread on both sides, each side in
a process of its own, one after the other. A step is rollout, rewards, advantages, gradient, optimizer and, in Miles,
the update of the engine's weights; the first step only warms up. `step_trl.py` says which defaults of TRL are changed.

Time: CPU seconds of all processes of a side (cores may be shared with others), wall seconds beside. Memory: the peak of
the proportional set size (PSS), summed over a side's processes, so that engine, trainer and driver all count; sampled
twice a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import step_shared as shared

HERE = Path(__file__).parent
STEPS = 2
EVERY = 0.5

RUNS = {
    "full": ("full", "full"),
    "natural": ("natural", "full"),
    "last": ("full", "last"),
    "checkpointed": ("full", "checkpointed"),
}
"""Part -> (scenario, what is trained)."""

USUAL = ("full", "natural", "last", "gradient")


def memory_of(process: psutil.Process) -> dict[int, float]:
    """MiB of PSS of a process and those below it, by process id."""
    found = {}
    for member in [process, *process.children(recursive=True)]:
        try:
            lines = Path(f"/proc/{member.pid}/smaps_rollup").read_text().splitlines()
        except (OSError, ProcessLookupError):  # it ended meanwhile
            continue
        found[member.pid] = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return found


def run(side: str, scenario: str, train: str, out: Path, steps: int = STEPS) -> list[float]:
    """Run one side to its end; its result is in `out`. Returns the MiB of each process, largest first, when their sum
    was highest."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(shared.THREADS),
        "MKL_NUM_THREADS": str(shared.THREADS),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": str(HERE),
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, str(HERE / f"step_{side}.py"), scenario, train, str(steps), str(out)]
    log = out.with_suffix(".log")
    with log.open("wb") as file:
        process = psutil.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT, cwd=HERE)
        peak: list[float] = []
        while process.poll() is None:
            peak = max(peak, sorted(memory_of(process).values(), reverse=True), key=sum)
            time.sleep(EVERY)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{log.read_text()[-3000:]}")
    return peak


def measure(part: str, folder: Path) -> dict[str, dict]:
    """Both sides of one part, shown and returned."""
    scenario, train = RUNS[part]
    results = {}
    for side in ("trl", "miles"):
        out = folder / f"{part}-{side}.json"
        parts = run(side, scenario, train, out)
        result = json.loads(out.read_text())
        result |= {"memory": sum(parts), "largest": parts[0]}
        lengths = result.get("lengths")
        mean = sum(lengths) / len(lengths) if lengths else result["length_mean"]
        split = ", ".join(f"{name} {value:.1f}" for name, value in result["split"].items())
        print(
            f"{part:12} {side:5}  cpu {result['cpu'][-1]:6.1f} s  wall {result['wall'][-1]:6.1f} s  "
            f"memory {' + '.join(f'{part:.0f}' for part in parts)} MiB  mean length {mean:4.1f}  ({split})",
            flush=True,
        )
        results[side] = result
    return results


def gradient_difference(folder: Path) -> float:
    """|ours - TRL's| / |TRL's| over all weights, on the same completions and rewards."""
    import torch

    found = {}
    for side in ("trl", "miles"):
        out = folder / f"gradient-{side}.pt"
        run(side, "gradient", "full", out, steps=1)
        found[side] = torch.load(out)
    theirs, ours = found["trl"], found["miles"]
    if set(theirs) != set(ours):
        raise SystemExit(f"the two sides trained other weights: {sorted(set(theirs) ^ set(ours))[:5]}")
    difference = sum(float((ours[name] - theirs[name]).double().square().sum()) for name in theirs)
    size = sum(float(theirs[name].double().square().sum()) for name in theirs)
    return (difference / size) ** 0.5


def main() -> None:
    parts = sys.argv[1:] or list(USUAL)
    unknown = sorted(set(parts) - {*RUNS, "gradient"})
    if unknown:
        raise SystemExit(f"unknown part {', '.join(unknown)}; there are {', '.join([*RUNS, 'gradient'])}")
    shared.model_folder()
    print(f"{shared.PROMPTS} prompts of {shared.PROMPT_TOKENS} tokens x {shared.GROUP}, {shared.THREADS} thread(s), "
          "TRL 1.16.0, float32", flush=True)  # fmt: skip
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = {part: measure(part, folder) for part in RUNS if part in parts}
        if "gradient" in parts:
            lines.append(f"ratio step-gradient-difference {gradient_difference(folder):.2e} |Miles - TRL| over |TRL|")
    for part, sides in results.items():
        theirs, ours = sides["trl"], sides["miles"]
        what = "TRL's CPU seconds for a step over Miles's"
        lines.append(f"ratio step-time-{part} {theirs['cpu'][-1] / ours['cpu'][-1]:.2f} {what}")
        lines.append(
            f"ratio step-memory-{part} {ours['memory'] / theirs['memory']:.2f} "
            "Miles's peak memory (driver, engine and trainer together) over TRL's"
        )
        lines.append(
            f"ratio step-memory-{part}-trainer {ours['largest'] / theirs['memory']:.2f} "
            "the peak memory of Miles's largest process over TRL's"
        )
    if {"full", "last"} <= set(results):
        share = results["last"]["miles"]["memory"] / results["full"]["trl"]["memory"]
        lines.append(
            f"ratio step-memory-last-over-full {share:.2f} "
            f"Miles's peak memory with the last {shared.LAST_LAYERS} layers over TRL's with all"
        )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
