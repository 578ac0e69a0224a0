"""A recipe as it was written: data, and where every value came from."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from miles_core.errors import Problem, RequestError
from miles_core.recipe.resolved import Source
from miles_core.recipe.yaml_text import Part, Parts, dotted, parse, plain

_PATH = re.compile(r"(?:^|\.)([^.\[\]=\s]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Place:
    """Where one value was written: in the recipe's file, on the command line, or (line 0) in a Python call."""

    kind: str
    name: str
    line: int = 0
    column: int = 0

    @property
    def text(self) -> str:
        return f"{self.name}:{self.line}:{self.column}" if self.line else self.name

    @property
    def source(self) -> Source:
        return Source(self.kind, f"{self.name}:{self.line}" if self.line else self.name)


@dataclass(frozen=True, slots=True)
class Document:
    """`data` is JSON data; `places` has every mapping entry and list item of it, by the path's parts.

    `name` is how messages call it; `stem` is the run's name when the recipe gives none.
    """

    name: str
    stem: str
    file: Path | None
    data: dict[str, Any]
    places: Mapping[Parts, Place] = field(default_factory=dict)

    def place(self, parts: Parts) -> Place:
        """The place of a value, or of what encloses it."""
        while parts and parts not in self.places:
            parts = parts[:-1]
        return self.places.get(parts, Place("recipe", self.name))

    @property
    def folder(self) -> Path:
        return (self.file.parent if self.file is not None else Path()).resolve()


def read_document(recipe: Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Document:
    """The recipe with `path=value` overrides applied. Raises RequestError: unreadable, not YAML, not a mapping, or
    overrides that do not fit, all of them at once."""
    document = _from_mapping(recipe) if isinstance(recipe, Mapping) else _from_file(Path(recipe))
    return with_overrides(document, overrides)


def _from_mapping(recipe: Mapping[str, Any]) -> Document:
    return Document("recipe", str(recipe.get("name") or "recipe"), None, plain(recipe))


def _from_file(file: Path) -> Document:
    name = str(file)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        near = sorted(str(each) for each in file.parent.glob("*.yaml")) if file.parent.is_dir() else []
        mend = f"recipes beside it: {', '.join(near[:8])}" if near else "miles recipes list shows what there is"
        raise RequestError("there is no such recipe", where=name, mend=mend) from error
    except OSError as error:
        raise RequestError(f"the recipe cannot be read: {error.strerror}", where=name) from error
    except UnicodeDecodeError as error:
        raise RequestError(f"the recipe is not UTF-8 text (byte {error.start})", where=name) from error
    data, marks = parse(text, name)
    if not isinstance(data, dict):
        found = "nothing" if data is None else f"a {'list' if isinstance(data, list) else type(data).__name__}"
        raise RequestError(
            f"the recipe holds {found}, expected a mapping", where=f"{name}:1:1", mend="begin with `miles: 1`"
        )
    places = {parts: Place("recipe", name, mark.line, mark.column) for parts, mark in marks.items()}
    return Document(name, file.stem, file, data, places)


def with_overrides(document: Document, overrides: Sequence[str]) -> Document:
    """A copy with each `path=value` set, in order; a value is YAML. Raises RequestError with every fault."""
    if not overrides:
        return document
    data = copy.deepcopy(document.data)
    places = dict(document.places)
    problems: list[Problem] = []
    for override in overrides:
        try:
            _apply(data, places, override)
        except RequestError as error:
            problems += error.problems
    if problems:
        raise RequestError(problems)
    return Document(document.name, document.stem, document.file, data, places)


def _apply(data: dict[str, Any], places: dict[Parts, Place], override: str) -> None:
    flag = f"--set {override}"
    written, equals, text = override.partition("=")
    parts = _split(written)
    if not equals or parts is None:
        raise RequestError("expected path=value", where=flag, mend="for example --set schedule.group_size=4")
    value, _ = parse(text, flag)
    holder: Any = data
    for index, part in enumerate(parts[:-1]):
        holder = _step(holder, parts[:index], part, flag, create=isinstance(parts[index + 1], str))
    last = parts[-1]
    _check(holder, parts[:-1], last, flag)
    holder[last] = value
    for known in [known for known in places if known[: len(parts)] == parts]:
        del places[known]
    places[parts] = Place("command line", flag)


def _split(written: str) -> Parts | None:
    parts: list[Part] = []
    end = 0
    while end < len(written):
        match = _PATH.match(written, end)
        if match is None:
            return None
        parts.append(match.group(1) if match.group(1) is not None else int(match.group(2)))
        end = match.end()
    return tuple(parts) if parts and isinstance(parts[0], str) else None


def _step(holder: Any, above: Parts, part: Part, flag: str, create: bool) -> Any:
    """The value one part further down; an absent (or empty) section is made when a key of it is to be set."""
    if create and isinstance(holder, dict) and isinstance(part, str) and holder.get(part) is None:
        holder[part] = {}
    _check(holder, above, part, flag)
    if isinstance(holder, dict) and part not in holder:
        raise RequestError(f"{dotted((*above, part))} is not there, so it has no items", where=flag)
    return holder[part]


def _check(holder: Any, above: Parts, part: Part, flag: str) -> None:
    where = dotted(above) or "the recipe"
    if isinstance(part, str) and not isinstance(holder, dict):
        raise RequestError(f"{where} is {shown(holder)}, it has no key {part!r}", where=flag)
    if isinstance(part, int) and not isinstance(holder, list):
        raise RequestError(f"{where} is {shown(holder)}, not a list", where=flag)
    if isinstance(part, int) and part >= len(holder):
        raise RequestError(f"{where} has {len(holder)} items, so there is no [{part}]", where=flag)


def shown(value: Any) -> str:
    """A value in a message: short, and in the recipe's own spelling."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
