"""How an actor ended, in words: Ray's account without its advice, and the end of what the process printed."""

from __future__ import annotations

import re
from pathlib import Path

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from miles_core import last_words

WORDS_SECONDS = 10.0

_DETAIL = re.compile(r"Worker exit detail: (.*?)(?:\n|$)")


def how_it_ended(error: RayError) -> str:
    """A sentence or two."""
    text = str(error).strip()
    found = _DETAIL.search(text)
    words = found.group(1).partition(" Some common causes")[0] if found else text.rpartition("\n")[2]
    return words.strip() or type(error).__name__


def words_of(log: Path, node: str) -> str:
    """The last words, from this machine's disk or by a task on the machine where the actor was. Blocks."""
    if log.is_file():
        return last_words(log)
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(_read).options(num_cpus=0, scheduling_strategy=there, max_retries=0)
    try:
        words: str = ray.get(task.remote(log), timeout=WORDS_SECONDS)
    except RayError as error:
        return f" (its log on node {node[:8]} cannot be read: {type(error).__name__})"
    return words


def _read(log: Path) -> str:
    return last_words(log)
