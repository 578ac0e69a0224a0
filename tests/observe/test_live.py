from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from miles_core.observe.live import LiveView
from miles_core.observe.screen import Screen
from miles_core.observe.standing import TIMES, Standing

METRICS = {
    "step": 0, "reward/mean": 0.25, "reward/std": 0.5, "correction/mismatch": 1.5e-4, "time/tokens_per_second": 412.3,
    "time/rollout": 3.0, "time/train": 1.0, "time/step": 4.2, "rollout/length_mean": 14.2,
}  # fmt: skip
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("run_started", {"folder": "runs/x", "recipe": {}}),
    ("workers_ready", {"seconds": 2.5}),
    (
        "evaluated",
        {"name": "held-out", "step": 0, "version": 1, "score": 0.125, "skipped": "", "low": 0.1, "high": 0.15},
    ),
    ("phase_started", {"name": "rl"}),
    ("progress", {"what": "rollout", "done": 3, "total": 4}),
    ("group_finished", {"group": "g0", "task": "t", "disposition": "buffered", "reward": 0.5}),
    ("step_finished", {"step": 0, "metrics": METRICS}),
    ("weights_published", {"version": 2, "seconds": 0.1}),
    ("evaluated", {"name": "held-out", "step": 1, "version": 2, "score": None, "skipped": "engine died"}),
    ("checkpoint_saved", {"step": 1, "folder": Path("runs/x/checkpoints/step-000001")}),
    ("an_event_of_the_future", {"what": "?"}),
]


def lines_of(view: str) -> list[str]:
    out = io.StringIO()
    with LiveView("quickstart", 12, out=out, view=view) as live:  # type: ignore[arg-type]
        for name, facts in EVENTS:
            live.on(name, facts)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("view", ["plain", "live"])
def test_without_a_terminal_there_is_one_plain_line_for_each_step_and_event(view: str) -> None:
    assert lines_of(view) == [
        "run in runs/x: starting its processes",
        "engines and trainer ready after 2.5 s",
        "evaluation held-out 0.125 [0.100, 0.150] at version 1",
        "phase rl",
        "step 1/12 · reward 0.250 ± 0.500 · mismatch 0.00015 · tokens/s 412 · 4.2 s (rollout 75%, train 25%)",
        "evaluation held-out skipped: engine died",
        "checkpoint after step 1 in runs/x/checkpoints/step-000001",
    ]


def test_none_shows_nothing() -> None:
    assert lines_of("none") == []


SHOW = """
import sys, time
sys.path.insert(0, sys.argv[1])
from miles_core.observe.live import LiveView
from test_live import EVENTS
with LiveView("quickstart", 12) as live:
    for name, facts in EVENTS:
        live.on(name, facts)
    print("a line of a library", file=sys.stderr)
"""


def test_a_terminal_shows_a_live_screen_and_is_left_in_order(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "NO_COLOR": "1"}
    command = [sys.executable, "-c", SHOW, str(Path(__file__).parent)]
    with subprocess.Popen(command, stderr=follower, stdout=follower, env=environment) as process:
        os.close(follower)
        screen = bytearray()
        while chunk := _read(leader):
            screen += chunk
        assert process.wait() == 0
    os.close(leader)
    text = screen.decode()
    for part in (
        "quickstart", "step 1/12", "0.250 ± 0.500", "412, mean length 14.2", "rollout 75%", "1.50e-04 mean |r - 1|",
        "held-out skipped: engine died", "weights version 2", "a line of a library",
    ):  # fmt: skip
        assert part in text, part
    assert text.rstrip().endswith("\x1b[?25h"), "the cursor is hidden"


def test_every_part_of_a_step_has_a_place_on_the_screen() -> None:
    standing = Standing(3)
    standing.take("step_finished", {"step": 0, "metrics": {f"time/{part}": 1.0 for part in TIMES}})
    shown = Console(file=io.StringIO(), width=200)
    screen = Screen("x", io.StringIO(), standing)
    screen.close()
    shown.print(screen._draw())
    assert isinstance(shown.file, io.StringIO)
    assert all(f"{part} 17%" in shown.file.getvalue() for part in TIMES), shown.file.getvalue()


def test_a_screen_that_cannot_draw_says_so_and_costs_the_run_nothing() -> None:
    standing = Standing(3)
    standing.take("step_finished", {"step": 0, "metrics": {"correction/mismatch": "high"}})
    out = io.StringIO()
    screen = Screen("x", out, standing)
    screen.close()
    assert "the live view failed: ValueError" in out.getvalue()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how a terminal says that its other end is closed
        return b""
