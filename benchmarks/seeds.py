"""What a recipe does over several seeds: each seed's evaluations before and after, and the mean over the seeds.

    python benchmarks/seeds.py recipes/quickstart.yaml --seeds 1 2 3

Writes `NAME.evidence.json` beside the recipe: the record that `miles recipes list` reads its evidence from. It is
`verified` when, for every seed, the paired 95 % interval of the first evaluation's difference lies above 0, over the
whole run and over its last phase; the record holds the recipe's sha256, so that it says nothing of a recipe that was
changed since.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import miles_core
from miles_core.observe import jsonl
from miles_core.observe.statistics import mean_and_interval, paired_difference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    arguments = parser.parse_args()
    runs = [measure(arguments.recipe, seed, arguments.runs_dir) for seed in arguments.seeds]
    record = {
        "format": "miles.evidence",
        "version": 1,
        "evidence": "verified" if all(improved(each) for run in runs for each in proofs(run)) else "not-verified",
        "recipe": arguments.recipe.name,
        "recipe_sha256": hashlib.sha256(arguments.recipe.read_bytes()).hexdigest(),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "by": "benchmarks/seeds.py",
        "miles_core": miles_core.__version__,
        "machine": {"system": platform.platform(), "processors": os.cpu_count(), "processor": processor()},
        "runs": runs,
        "over_seeds": over_seeds([run["difference"] for run in runs]),
    }
    place = arguments.recipe.with_suffix(".evidence.json")
    place.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["over_seeds"]), record["evidence"], place)


def measure(recipe: Path, seed: int, runs_dir: Path) -> dict[str, Any]:
    """One run: its first evaluation's figures, seconds, and the load of the machine before and after."""
    before, began = os.getloadavg()[0], time.monotonic()
    run = miles_core.run(
        recipe, set=[f"seed={seed}"], name=f"{recipe.stem}-seed{seed}", runs_dir=runs_dir, view="plain"
    )
    name, figures = next(iter(run.summary["evaluations"].items()))
    return {
        "seed": seed,
        "evaluation": name,
        **{key: figures[key] for key in ("before", "after", "difference", "low", "high", "n")},
        "phases": over_phases(jsonl.read(run.folder.events), name),
        "seconds": round(time.monotonic() - began, 1),
        "load_before": before,
        "load_after": os.getloadavg()[0],
    }


def over_phases(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """What each phase of several did to an evaluation that was made where it began and where it ended."""
    scores = {
        event["step"]: event["scores"] for event in events if event["event"] == "evaluated" if event["name"] == name
    }
    begun = [(event["step"], event["name"]) for event in events if event["event"] == "phase_started"]
    ends = [*(step for step, _ in begun[1:]), max(scores)]
    phases = []
    for (first, phase), end in zip(begun, ends, strict=True):
        if len(begun) > 1 and scores.get(first) and scores.get(end):
            compared = paired_difference(scores[first], scores[end])
            figures = {"before": compared.before_mean, "after": compared.after_mean, "difference": compared.mean}
            phases.append({"phase": phase, **figures, "low": compared.low, "high": compared.high, "n": compared.n})
    return phases


def proofs(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The comparisons that must show an improvement."""
    return [run, *run["phases"][-1:]]


def improved(compared: dict[str, Any]) -> bool:
    return compared["low"] is not None and compared["low"] > 0


def over_seeds(differences: list[float]) -> dict[str, float | int | None]:
    """Mean difference over the seeds with its Student-t interval."""
    estimate = mean_and_interval(differences)
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "n": estimate.n}


def processor() -> str:
    """The processor's name, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


if __name__ == "__main__":
    main()
