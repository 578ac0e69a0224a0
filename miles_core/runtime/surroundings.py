"""What a worker process of any runtime finds: environment variables and import path; and what it leaves: last words."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from miles_core.contracts.last_words import last_words as end_of

LAST_WORDS_LINES = 12

DEFAULTS = {"PYDANTIC_DISABLE_PLUGINS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""What a worker's environment has unless the driver's says otherwise. pydantic would list every folder on the import
path for plugins of its own, and die of one distribution whose metadata is damaged. OpenMP's threads would spin while
they wait for each other; where another process has the core, that makes small tensors 20 to 100 times slower."""


def worker_path() -> list[str]:
    """The import path of workers: they import what the driver could, research code beside a recipe included."""
    return [entry for entry in sys.path if entry]


def worker_environment(more: Mapping[str, str]) -> dict[str, str]:
    """All environment variables of a worker on the driver's machine; `more` are the recipe's."""
    return {**DEFAULTS, **os.environ, "PYTHONPATH": os.pathsep.join(worker_path()), **more}


def last_words(log: Path) -> str:
    """The end of a worker's log, indented, to be put behind the words that it died; "" when it said nothing."""
    said = end_of(log.read_text(errors="replace"), lines=LAST_WORDS_LINES)
    return "; its last words:\n" + "\n".join(f"    {line}" for line in said.splitlines()) if said else ""
