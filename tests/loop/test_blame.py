"""Who is named when a plugin fails in a run, and what goes on all the same."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from miles_core.errors import PluginError, RunError
from miles_core.testing import run_recipe

CODE = """
import asyncio
from miles_core import GeneratorMiddleware, Score

class Tracker:
    def __init__(self, options, context):
        self.seen = []
    def start(self, run, recipe):
        pass
    def log(self, step, metrics):
        metrics["poison"] = 1
    def close(self, outcome):
        pass

class DiskFull(Tracker):
    def log(self, step, metrics):
        raise OSError("disk full")

class Unreachable(Tracker):
    def start(self, run, recipe):
        raise ConnectionError("nobody there")

class Other(Tracker):
    def log(self, metrics):
        pass

class NoClose:
    def __init__(self, options, context):
        pass
    def start(self, run, recipe):
        pass
    async def log(self, step, metrics):
        pass

class Forgets(GeneratorMiddleware):
    def __init__(self, options, context):
        pass
    async def generate(self, attempt, context):
        return self.inner.generate(attempt, context)

class SyncReward:
    def __init__(self, options, context):
        pass
    def score(self, group):
        return [Score(1.0) for _ in group.trajectories]

class Breaks:
    needs_engine = True
    def __init__(self, options, context):
        pass
    async def generate(self, attempt, context):
        raise RuntimeError("no door")

class Numbers:
    def __init__(self, options, context):
        pass
    async def score(self, group):
        return [0.0 for _ in group.trajectories]
"""

Go = Callable[..., Any]


@pytest.fixture
def go(tmp_path: Path) -> Go:
    """Runs the toy ring with sections replaced, in a folder that holds the code above."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "made_to_fail.py").write_text(CODE, encoding="utf-8")

    def run(strict_plugins: bool = False, **sections: Any) -> Any:
        return run_recipe(tmp_path, code=[str(tmp_path / "code")], steps=2, strict_plugins=strict_plugins, **sections)

    return run


def test_a_tracker_that_fails_is_counted_and_named_and_the_others_go_on(
    go: Go, caplog: pytest.LogCaptureFixture
) -> None:
    run = go(trackers=[{"use": "made_to_fail:DiskFull"}, {"use": "made_to_fail:Tracker"}])
    assert run.summary["state"] == "done"
    uses = {use["name"]: use for use in run.summary["plugins"]}
    failing = next(use for name, use in uses.items() if "DiskFull" in name)
    assert (failing["calls"], failing["failures"], failing["last_error"]) == (4, 2, "OSError: disk full")
    assert any("disk full" in record.message and "made_to_fail.py:" in record.message for record in caplog.records)
    assert all("poison" not in step for step in run.metrics), "a tracker changed what the run records"


def test_a_strict_run_ends_with_its_first_failure(go: Go) -> None:
    with pytest.raises(PluginError, match=r"failed in log: OSError: disk full .*made_to_fail.py:17"):
        go(strict_plugins=True, trackers=[{"use": "made_to_fail:DiskFull"}])


def test_a_tracker_that_cannot_start_ends_the_run_before_any_work(go: Go, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"failed in start: ConnectionError: nobody there"):
        go(trackers=[{"use": "made_to_fail:Unreachable"}])
    status = json.loads(next(tmp_path.glob("**/run.json")).read_text())
    assert (status["state"], status["steps_done"]) == ("failed", 0)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"trackers": [{"use": "made_to_fail:Other"}]}, ["takes (metrics), expected (step, metrics)"]),
        ({"trackers": [{"use": "made_to_fail:NoClose"}]}, ["`async def`", "has no method close"]),
        ({"rewards": [{"use": "made_to_fail:SyncReward"}]}, ["SyncReward.score is `def`", "async def score"]),
    ],
)
def test_what_lacks_its_contract_is_refused_before_any_work(go: Go, section: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(PluginError) as caught:
        go(**section)
    text = "\n".join(map(str, caught.value.problems))
    assert all(word in text for word in told), text


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_middleware_that_forgets_to_await_is_named(go: Go) -> None:
    with pytest.raises(PluginError, match=r"inside middleware .*Forgets.* gave <coroutine"):
        go(middleware=[{"use": "made_to_fail:Forgets"}])


def test_a_generator_that_always_fails_is_told_once_with_its_place(go: Go, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(RunError, match=r"no door \(.*made_to_fail.py:\d+\)"):
        go(generator={"use": "made_to_fail:Breaks", "sampling": {"max_new_tokens": 4}})
    told = [record for record in caplog.records if "no door" in record.message]
    assert 1 <= len(told) <= 3
    assert sum(record.exc_info is not None and bool(record.exc_info) for record in told) == 1


def test_a_reward_that_returns_numbers_is_told_what_to_write(go: Go) -> None:
    with pytest.raises(PluginError) as caught:
        go(rewards=[{"use": "made_to_fail:Numbers"}])
    assert "returned 0.0" in str(caught.value) and "miles_core.Score" in (caught.value.problems[0].mend or "")
