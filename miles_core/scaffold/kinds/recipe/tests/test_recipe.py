"""The recipe runs, and learns."""

from importlib.resources import files
from pathlib import Path

from miles_core import run

RECIPE = Path(str(files("miles_plugin_xyz") / "recipes" / "xyz.yaml"))


def test_it_learns(tmp_path: Path) -> None:
    done = run(RECIPE, runs_dir=tmp_path, runtime={"use": "in-process"}, view="none")
    held_out = done.summary["evaluations"]["held-out"]
    assert held_out["after"] > held_out["before"]
    assert len(done.metrics) == 20
