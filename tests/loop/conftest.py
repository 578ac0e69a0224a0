"""A toy recipe in a folder of its own: the whole ring, real processes, no torch."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

RECIPE: dict[str, Any] = {
    "miles": 1,
    "name": "toy",
    "seed": 1,
    "plugins": ["toy"],
    "model": {"use": "toy"},
    "data": {"use": "file", "path": "tasks.jsonl", "held_out": "held_out.jsonl"},
    "schedule": {"use": "sync", "groups_per_step": 3, "group_size": 4},
    "generator": {"use": "single-turn", "sampling": {"max_new_tokens": 8}},
    "rewards": [{"use": "toy_rewards:share_of_a"}],
    "filters": [{"use": "unequal-rewards"}],
    "advantage": {"use": "toy"},
    "loss": {"use": "toy"},
    "engine": {"use": "toy"},
    "trainer": {"use": "toy"},
    "evaluate": [{"use": "shared", "every": 3, "tasks": 8}],
    "checkpoint": {"every": 2, "keep": 2},
    "steps": 6,
}


class Bench:
    """A folder with data, a reward and recipes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        (folder / "tasks.jsonl").write_text(_rows("p", 24))
        (folder / "held_out.jsonl").write_text(_rows("h", 8))
        (folder / "toy_rewards.py").write_text(
            "def share_of_a(text):\n    return text.count('a') / max(len(text), 1)\n"
            "def broken(text):\n    raise ValueError('no idea')\n"
            "def nan(text):\n    return float('nan')\n"
            "def text(text):\n    return '0.5'\n"
            "def leaves(text):\n    raise SystemExit(0)\n"
            "def cancels(text):\n    import asyncio\n    raise asyncio.CancelledError\n"
            "class Odd:\n    def __call__(self, text):\n        return 1.0\n"
        )

    def recipe(self, **changes: Any) -> Path:
        """Write RECIPE with top-level sections replaced (None removes one)."""
        recipe = {**copy.deepcopy(RECIPE), **changes}
        path = self.folder / "recipe.yaml"
        path.write_text(yaml.safe_dump({k: v for k, v in recipe.items() if v is not None}, sort_keys=False))
        return path


def _rows(prefix: str, n: int) -> str:
    return "".join(json.dumps({"id": f"{prefix}{i}", "prompt": f"{prefix}{i}", "answer": "a"}) + "\n" for i in range(n))


@pytest.fixture
def bench(tmp_path, monkeypatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path)
