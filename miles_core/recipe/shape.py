"""From a document to a `Recipe`, going on after faults: what is wrong is noted and replaced, so that the rest of the
recipe is looked at too and all faults are listed at once."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

from pydantic import ValidationError

from miles_core.recipe.document import Document, shown
from miles_core.recipe.faults import Faults
from miles_core.recipe.schema import FORMAT_VERSION, KIND_OF_SECTION, LIST_SECTIONS, Recipe
from miles_core.recipe.validate import add_faults, path_of
from miles_core.recipe.yaml_text import Parts

SPOILED = "\x00spoiled"
"""The `use` of a section that is too wrong to look at; its fault is already noted."""

LARGEST_INTEGER = 2**64
LARGEST_NUMBER = 1e36
"""How far from 0 a number of a recipe may be: integers fit a machine's, and products of some do not overflow."""


def read_shape(document: Document, faults: Faults) -> Recipe:
    """The recipe. After faults it is one that can be worked with, but not run. Raises RequestError when not even that
    is possible."""
    data = _within_reach(document.data, (), faults)
    for attempt in range(4):
        try:
            recipe = Recipe.model_validate_json(json.dumps(data), strict=True)
        except ValidationError as error:
            if attempt == 0:
                add_faults(error, Recipe, data, (), faults)
            data = copy.deepcopy(data)
            for detail in error.errors(include_url=False):
                _repair(data, path_of(detail, data), detail["type"] == "missing")
            continue
        _check_length(document, recipe, faults)
        return recipe
    faults.raise_all()
    raise AssertionError("a shape that cannot be repaired has faults")


def _within_reach(value: Any, path: Parts, faults: Faults) -> Any:
    """The same, with 1 for each finite number that is too large to work with, which is a fault. What is not finite is
    for the models to refuse."""
    if isinstance(value, dict):
        return {key: _within_reach(each, (*path, key), faults) for key, each in value.items()}
    if isinstance(value, list):
        return [_within_reach(each, (*path, index), faults) for index, each in enumerate(value)]
    largest = LARGEST_INTEGER if isinstance(value, int) else LARGEST_NUMBER
    if (
        not isinstance(value, int | float)
        or (isinstance(value, float) and not math.isfinite(value))
        or abs(value) <= largest
    ):
        return value
    faults.add(path, f"is {shown(value)}, expected a number between -{largest:g} and {largest:g}")
    return 1


def _check_length(document: Document, recipe: Recipe, faults: Faults) -> None:
    steps, phases = document.data.get("steps"), document.data.get("phases")
    if steps is None and phases is None:
        faults.add((), "the recipe does not say how long it runs", "write `steps: 10`, or `phases:`")
    elif steps is not None and phases is not None:
        faults.add(("phases",), "stands beside `steps:`", "keep one: every phase has its own steps")
    elif phases == []:
        faults.add(("phases",), "is empty", "write at least one phase, or `steps:` instead")
    names = [phase.name for phase in recipe.phases or ()]
    for index, name in enumerate(names):
        if name in names[:index]:
            faults.add(("phases", index, "name"), f'is "{name}" again', "give each phase its own name")


def _repair(data: Any, path: Parts, missing: bool) -> None:
    """Replace what is wrong at a path by something harmless."""
    holder = data
    for part in path[:-1]:
        try:
            holder = holder[part]
        except (KeyError, IndexError, TypeError):
            return  # an earlier repair replaced what encloses it
    last = path[-1]
    in_phase = path[0] == "phases" and len(path) <= 3
    if path == ("miles",):
        data["miles"] = FORMAT_VERSION
    elif last == "use":
        holder["use"] = SPOILED
    elif path[0] == "plugins" and isinstance(last, int):
        holder[last] = "core"
    elif in_phase and isinstance(last, int):
        holder[last] = {"name": f"phase-{last}", "steps": 1}
    elif in_phase and last in ("name", "steps"):
        holder[last] = f"phase-{path[1]}" if last == "name" else 1
    elif isinstance(last, int) or (not missing and _is_section(path)):
        holder[last] = {"use": SPOILED}
    elif isinstance(holder, dict):
        holder.pop(last, None)


def _is_section(path: Parts) -> bool:
    name = path[-1]
    depth = 3 if path[0] == "phases" else 1
    return len(path) == depth and name in KIND_OF_SECTION and name not in LIST_SECTIONS
