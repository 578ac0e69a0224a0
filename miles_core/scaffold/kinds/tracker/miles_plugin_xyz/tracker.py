"""Metrics as a CSV file."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from miles_core import BuildContext

from miles_plugin_xyz.options import XyzOptions


class XyzTracker:
    """The file is complete after each step, so a run may be killed at any time. See `miles_core.Tracker`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._file = (context.folder or Path()) / options.file
        self._prefix = options.prefix

    def start(self, run: str, recipe: Mapping[str, Any]) -> None:
        if not self._file.exists():
            self._write([("step", "name", "value")])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        chosen = sorted(name for name in metrics if name.startswith(self._prefix))
        self._write([(step, name, metrics[name]) for name in chosen])

    def close(self, outcome: str) -> None:
        pass

    def _write(self, rows: list[tuple[object, ...]]) -> None:
        with self._file.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
