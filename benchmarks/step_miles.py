"""One side of `step.py`: a Miles run. Run as `step_miles.py SCENARIO TRAIN STEPS OUT` by it.

The real thing: a recipe through `miles_core.run`, with engine and trainer in processes of their own. CPU seconds are
those of all its processes together.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil
import step_shared as shared

from miles_core.rollout.single_turn import SingleTurn


def cpu_seconds() -> float:
    """User and system seconds of this process and of every one below it."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


class Clock:
    """A tracker: CPU and wall seconds from one step's end to the next's; the first step only warms up."""

    def __init__(self, options, context) -> None:
        self.file = Path(os.environ["STEP_CLOCK"])

    def start(self, run, recipe) -> None:
        self.file.write_text("")

    def log(self, step, metrics) -> None:
        mark = {"cpu": cpu_seconds(), "wall": time.perf_counter(), "metrics": dict(metrics)}
        with self.file.open("a") as file:
            file.write(json.dumps(mark) + "\n")

    def close(self, outcome) -> None:
        pass


class NaturalLengths(SingleTurn):
    """The `single-turn` generator, with a length of its own for each completion."""

    async def generate(self, attempt, context):
        place = attempt.group % shared.PROMPTS * shared.GROUP + attempt.index
        sampling = replace(attempt.sampling, max_new_tokens=shared.natural_lengths()[place])
        return await super().generate(replace(attempt, sampling=sampling), context)


def recipe(folder: Path, scenario: str, train: str, steps: int) -> dict:
    work = shared.SCENARIOS[scenario]
    tasks = folder / "tasks.jsonl"
    rows = [{"id": str(i), "prompt": text} for i, text in enumerate(shared.questions(shared.PROMPTS * steps))]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trainer = {"use": "torch", "learning_rate": shared.LEARNING_RATE, "threads": shared.THREADS}
    if train == "last":
        trainer["train"] = {"last_layers": shared.LAST_LAYERS}
    if train == "checkpointed":
        trainer["gradient_checkpointing"] = True
    sampling = {"temperature": 1.0, "max_new_tokens": work["new"], "ignore_stop": True}
    return {
        "miles": 1,
        "name": "step",
        "seed": 1,
        "plugins": ["torch", "algorithms", "smollm2"],
        "model": {"use": "smollm2"},
        "data": {"use": "file", "path": str(tasks)},
        "schedule": {"use": "sync", "groups_per_step": shared.PROMPTS, "group_size": shared.GROUP},
        "generator": {
            "use": "step_miles:NaturalLengths" if work["natural"] else "single-turn",
            "sampling": sampling,
        },
        "rewards": [{"use": "step_shared:reward"}],
        "advantage": {"use": "grpo"},
        "loss": {"use": "policy"},
        "engine": {"use": "torch", "threads": shared.THREADS},
        "trainer": trainer,
        "trackers": [{"use": "step_miles:Clock"}],
        "steps": steps,
    }


def measure(scenario: str, train: str, steps: int) -> dict:
    import miles_core

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["STEP_CLOCK"] = str(folder / "clock.jsonl")
        miles_core.run(recipe(folder, scenario, train, steps), runs_dir=folder / "runs", view="none")
        marks = [json.loads(line) for line in (folder / "clock.jsonl").read_text().splitlines()]
    last = marks[-1]["metrics"]
    return {
        "cpu": [b["cpu"] - a["cpu"] for a, b in itertools.pairwise(marks)],
        "wall": [b["wall"] - a["wall"] for a, b in itertools.pairwise(marks)],
        "length_mean": last["rollout/length_mean"],
        "split": {name: value for name, value in last.items() if name.startswith("time/")},
        "metrics": last,
    }


def gradient() -> dict:
    """The gradient of one step on the injected completions and rewards, without clipping."""
    import numpy as np
    from miles_plugin_algorithms.grpo import Grpo, GrpoOptions
    from miles_plugin_smollm2.facts import CARD
    from miles_plugin_torch.trainer.gradient import accumulate, prepare
    from miles_plugin_torch.trainer.metrics import Averages
    from miles_plugin_torch.trainer.options import TorchTrainerOptions
    from miles_plugin_torch.trainer.torch_trainer import TorchTrainer

    from miles_core import BuildContext, ComponentRef, Group, ModelFiles, Row, Sequence, Span, Task, Trajectory

    prompts, completions, rewards = shared.injected()
    groups = []
    for g in range(len(prompts)):
        members = []
        for i in range(shared.GROUP):
            tokens = np.concatenate([prompts[g], completions[g, i]])
            sampled = np.arange(len(tokens)) >= shared.PROMPT_TOKENS
            span = Span(shared.PROMPT_TOKENS, len(tokens), 1, "engine-0", "r")
            line = Sequence(
                tokens, sampled, np.where(sampled, -1, 0).astype(np.float32), sampled.astype(np.int32), (span,)
            )
            members.append(Trajectory(f"g{g}t{i}", str(g), i, (line,), reward=float(rewards[g, i])))
        groups.append(Group(Task(str(g), "injected"), g, 0, tuple(members)))
    advantages = Grpo(GrpoOptions(epsilon=1e-4), None).compute(groups)  # TRL's epsilon
    rows = tuple(
        Row(t.sequences[0], advantages[t.id][0], t.id, group.id) for group in groups for t in group.trajectories
    )
    options = {"reduce": "token-mean"}
    loss = ComponentRef(
        "loss", "policy", "miles_plugin_algorithms.policy:PolicyLoss",
        "miles_plugin_algorithms.policy_options:PolicyOptions", options, "miles-plugin-algorithms", "0",
    )  # fmt: skip
    context = BuildContext(1, "trainer", model=ModelFiles(shared.model_folder(), CARD), parts={"loss": loss})
    trainer = TorchTrainer(TorchTrainerOptions(threads=shared.THREADS), context)
    accumulate(trainer._policy, prepare(rows, trainer._loss), trainer._loss, None, trainer._options, Averages())
    return {name: parameter.grad for name, parameter in trainer._trained.items()}


def main() -> None:
    scenario, train, steps, out = sys.argv[1:]
    if scenario == "gradient":
        import torch

        torch.save(gradient(), out)
    else:
        Path(out).write_text(json.dumps(measure(scenario, train, int(steps))))


if __name__ == "__main__":
    main()
