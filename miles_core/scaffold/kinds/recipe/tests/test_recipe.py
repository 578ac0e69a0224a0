"""The recipe runs, and learns."""

from importlib.resources import files
from pathlib import Path

from miles_core import run

RECIPES = Path(str(files("miles_plugin_xyz") / "recipes"))


def test_it_learns(tmp_path: Path) -> None:
    recipe = RECIPES / "xyz.yaml"
    done = run(recipe, runs_dir=tmp_path, runtime={"use": "in-process"}, view="none")
    held_out = done.summary["evaluations"]["held-out"]
    assert held_out["after"] > held_out["before"]
    assert len(done.metrics) == 20
