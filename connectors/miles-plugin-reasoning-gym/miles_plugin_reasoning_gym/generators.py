"""reasoning-gym's generators by name: what they accept, and the entry that a recipe's configuration gives.

An entry is a function of (generator, configuration, seed, size, index). A task carries these five, as JSON data, and
not the entry itself: entries hold tuples, sets and other objects that a file would turn into something else.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from reasoning_gym.dataset import ProceduralDataset  # type: ignore[import-untyped]
from reasoning_gym.factory import DATASETS, create_dataset  # type: ignore[import-untyped]

from miles_core import RunError

_OURS = ("seed", "size")
"""Fields of every generator's configuration that the data source itself sets."""

HASH_DEPENDENT = frozenset(
    {
        "isomorphic_strings",
        "knight_swap",
        "list_functions",
        "polynomial_multiplication",
        "ransom_note",
        "word_ladder",
    }
)
"""Generators that iterate over sets of texts: with the same seed they make other questions in every Python process,
unless PYTHONHASHSEED is fixed. (Those of reasoning-gym 0.1.25; a test looks for others.)"""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an entry comes from. `config` is JSON text, so that an origin can be hashed."""

    generator: str
    config: str
    seed: int
    size: int
    index: int

    def entry(self) -> dict[str, Any]:
        """The generated entry: `question`, `answer` (a text, or None where many are right) and `metadata`."""
        with redirect_stdout(sys.stderr):  # some generators print
            entry: dict[str, Any] = self.dataset()[self.index]
        return entry

    def dataset(self) -> ProceduralDataset:
        return _dataset(self.generator, self.config, self.seed, self.size)

    def to_metadata(self, question: str) -> dict[str, Any]:
        """JSON data of a task; `digest` tells whether the same origin still gives the same question."""
        return {
            "generator": self.generator,
            "config": self.config,
            "seed": self.seed,
            "size": self.size,
            "index": self.index,
            "digest": digest(question),
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Origin:
        """Raises KeyError when the metadata is not of a task of this package."""
        return cls(
            generator=str(metadata["generator"]),
            config=str(metadata["config"]),
            seed=int(metadata["seed"]),
            size=int(metadata["size"]),
            index=int(metadata["index"]),
        )


def digest(question: str) -> str:
    return hashlib.sha256(question.encode()).hexdigest()[:16]


def faults(name: str, config: Mapping[str, Any]) -> Iterator[str]:
    """Sentences that say why reasoning-gym would not accept this generator with this configuration."""
    if name not in DATASETS or name == "composite":
        near = difflib.get_close_matches(name, DATASETS, n=1)
        yield f"reasoning-gym has no generator {name!r}" + (f", the nearest is {near[0]!r}" if near else "")
        return
    if name in HASH_DEPENDENT and os.environ.get("PYTHONHASHSEED") != "0":
        yield (
            f"{name} makes other tasks in every Python process, so a run could not be resumed nor its tasks scored "
            "elsewhere; set the environment variable PYTHONHASHSEED=0 or leave it out"
        )
    config_class: Any = DATASETS[name][1]
    known = [field.name for field in fields(config_class)]
    unknown = [key for key in config if key not in known or key in _OURS]
    for key in unknown:
        near = difflib.get_close_matches(key, known, n=1)
        if key in _OURS:
            yield f"{name}: {key!r} is set beside `tasks`, not inside a generator's config"
        else:
            yield f"{name} has no option {key!r}" + (f", the nearest is {near[0]!r}" if near else "")
    if unknown:
        return
    try:
        json.dumps(config)
        chosen = config_class(**config, seed=0, size=1)
        if hasattr(chosen, "validate"):
            chosen.validate()
    except (AssertionError, TypeError, ValueError, AttributeError, KeyError) as error:
        yield f"{name} does not accept {dict(config)}: {error or type(error).__name__}"


@lru_cache(maxsize=256)
def _dataset(name: str, config: str, seed: int, size: int) -> ProceduralDataset:
    try:
        return create_dataset(name, **json.loads(config), seed=seed, size=size)
    except Exception as error:  # a generator may raise anything
        raise RunError(
            f"reasoning-gym could not set up {name!r}: {type(error).__name__}: {error}",
            where=f"config {config}, size {size}",
            mend="choose another configuration or size, or leave this generator out",
        ) from error
