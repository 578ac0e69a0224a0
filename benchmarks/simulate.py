"""Whether `miles simulate --like RUN` forecasts what a run measures: each schedule, for real and simulated.

    python benchmarks/simulate.py [--seconds-per-token 0.03] [--steps 20]

The toy recipe, with an engine that takes its time over each token, so that engine and trainer each have a process and
the driver little to do. Compared is what trainer and engine stood idle between a tenth and seven tenths of the steps.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import miles_core
from miles_core.observe import jsonl
from miles_core.recipe.plan import load_plan
from miles_core.simulate.lengths import read_lengths
from miles_core.simulate.measured import measure
from miles_core.simulate.service import read_service
from miles_core.simulate.simulate import STEADY, Question, phase_of, simulate

RECIPE = Path(__file__).parents[1] / "recipes" / "toy-async.yaml"


def run(schedule: str, steps: int, seconds_per_token: float, folder: Path) -> Path:
    """The folder of a real run."""
    settings = [
        f"schedule={{use: {schedule}, groups_per_step: 8, group_size: 8}}",
        f"engine.seconds_per_token={seconds_per_token}",
        "generator.sampling.max_new_tokens=12",
        "filters=[]",
        "evaluate=[]",
        f"steps={steps}",
    ]
    return miles_core.run(RECIPE, name=schedule, runs_dir=folder, view="none", set=settings).folder.path


def measured(run: Path) -> tuple[float, float]:
    """Trainer and engine idle, over the steady steps."""
    records = jsonl.read(run / "metrics.jsonl")
    steady = records[int(STEADY[0] * len(records)) or 1 : int(STEADY[1] * len(records))]
    parts = {part: sum(record[f"time/{part}"] for record in steady) for part in ("rollout", "train", "publish", "step")}
    idle = sum(record["time/engine_idle"] * record["time/step"] for record in steady)
    return parts["rollout"] / (parts["rollout"] + parts["train"] + parts["publish"]), idle / parts["step"]


def forecast(run: Path) -> tuple[float, float]:
    plan, _ = load_plan(run / "recipe.yaml")
    service = read_service((), measure(str(run), run.parent))
    question = Question(plan.replicas, None, read_lengths(str(run), run.parent), service, plan.seed)
    steady = simulate(plan, phase_of(plan, None), question)["steady"]
    return steady["trainer_idle"], steady["engine_idle"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds-per-token", type=float, default=0.03)
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    print(f"{'':<14}{'trainer idle':>14}{'forecast':>10}{'engine idle':>13}{'forecast':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for schedule in ("sync", "one-step-off", "async"):
            made = run(schedule, asked.steps, asked.seconds_per_token, Path(folder))
            real, simulated = measured(made), forecast(made)
            trainer, engine = (f"{a:>13.1%}{b:>10.1%}" for a, b in zip(real, simulated, strict=True))
            print(f"{schedule:<14} {trainer}{engine}", flush=True)


if __name__ == "__main__":
    main()
