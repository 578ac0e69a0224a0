"""What stands in the file, also after a run was resumed."""

from pathlib import Path

from miles_core import BuildContext

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.tracker import XyzTracker


def made(folder: Path, prefix: str = "") -> XyzTracker:
    options = XyzOptions(prefix=prefix)
    tracker = XyzTracker(options, BuildContext(seed=1, name="tracker", folder=folder))
    tracker.start("demo-run", {})
    return tracker


def test_one_line_for_each_number(tmp_path: Path) -> None:
    tracker = made(tmp_path)
    tracker.log(0, {"reward/mean": 0.5, "loss/total": 2.0})
    tracker.close("done")
    assert (tmp_path / "metrics.csv").read_text().splitlines() == [
        "step,name,value",
        "0,loss/total,2.0",
        "0,reward/mean,0.5",
    ]


def test_a_resumed_run_goes_on_in_the_same_file(tmp_path: Path) -> None:
    made(tmp_path).log(0, {"reward/mean": 0.5})
    made(tmp_path).log(1, {"reward/mean": 0.75})
    assert (tmp_path / "metrics.csv").read_text().splitlines()[1:] == ["0,reward/mean,0.5", "1,reward/mean,0.75"]


def test_only_what_the_prefix_chooses(tmp_path: Path) -> None:
    made(tmp_path, prefix="reward/").log(0, {"reward/mean": 0.5, "loss/total": 2.0})
    assert "loss" not in (tmp_path / "metrics.csv").read_text()
