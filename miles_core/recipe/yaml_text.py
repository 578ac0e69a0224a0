"""YAML to JSON data, with the place of every value.

Scalars follow the core schema of YAML 1.2: `1e-5` is a float, `yes`, `on` and `2024-01-01` are text. Two equal keys in
one mapping are refused, since one of them would be lost in silence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from miles_core.errors import Problem, RequestError

Part = str | int
Parts = tuple[Part, ...]

MOST_VALUES = 100_000
"""A recipe has a few dozen values; aliases that repeat aliases could make billions out of a short text."""

LONGEST_INTEGER = 300

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_NULL = re.compile(r"~|null|Null|NULL|")


class _CoreLoader(yaml.SafeLoader):
    """PyYAML's parser with the implicit types of YAML 1.2 instead of those of 1.1."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 (PyYAML's own attribute, emptied for this class)


for _name, _pattern in (("int", _INTEGER), ("float", _FLOAT), ("bool", _BOOLEAN), ("null", _NULL)):
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern.pattern})$"), None)


@dataclass(frozen=True, slots=True)
class Mark:
    """Line and column, both from 1."""

    line: int
    column: int


def parse(text: str, file: str) -> tuple[Any, dict[Parts, Mark]]:
    """The data of one YAML document and the mark of each value: of a mapping's entry, where its key stands.

    Raises RequestError with file:line:column and the offending line.
    """
    marks: dict[Parts, Mark] = {}
    try:
        node = yaml.compose(text, Loader=_CoreLoader)
        return (None if node is None else _Reader(text, file, marks).value(node, (), ())), marks
    except yaml.YAMLError as error:
        raise _parse_error(error, text, file) from error
    except RecursionError as error:
        raise RequestError("not a recipe: lists and mappings are nested too deeply", where=file) from error


class _Reader:
    """Turns nodes into data, noting marks on the way."""

    def __init__(self, text: str, file: str, marks: dict[Parts, Mark]) -> None:
        self._text = text
        self._file = file
        self._marks = marks

    def value(self, node: Any, parts: Parts, above: tuple[int, ...]) -> Any:
        if id(node) in above or len(self._marks) > MOST_VALUES:
            raise self._error(node, "an alias makes this endless", "write the value out")
        above = (*above, id(node))
        self._marks.setdefault(parts, _mark(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, parts, above)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*parts, index), above) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: Any, parts: Parts, above: tuple[int, ...]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key, "a key is a list or a mapping", "keys are text")
            name = key.value
            if name in data:
                first = self._marks[(*parts, name)]
                raise self._error(key, f"the key {name!r} stands here again, first in line {first.line}", "keep one")
            self._marks[(*parts, name)] = _mark(key)
            data[name] = self.value(item, (*parts, name), above)
        return data

    def _scalar(self, node: Any) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if kind == "str":
            return text
        pattern = {"int": _INTEGER, "float": _FLOAT, "bool": _BOOLEAN, "null": _NULL}.get(kind)
        if pattern is None:
            raise self._error(node, f"the tag {node.tag} is not allowed", "remove it")
        if not pattern.fullmatch(text):
            raise self._error(node, f"{text!r} is tagged {kind}, which it is not", "remove the tag")
        if kind == "int" and len(text) > LONGEST_INTEGER:
            raise self._error(node, f"an integer of {len(text)} digits", "write a shorter one, or quote it")
        if kind == "int":
            return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
        if kind == "float":
            return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
        return text.lower() == "true" if kind == "bool" else None

    def _error(self, node: Any, what: str, mend: str) -> RequestError:
        return RequestError([_located(self._text, self._file, _mark(node), what, mend)])


def _mark(node: Any) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _parse_error(error: yaml.YAMLError, text: str, file: str) -> RequestError:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = Mark(error.problem_mark.line + 1, error.problem_mark.column + 1)
        what = " ".join(filter(None, (error.context and f"{error.context}:", error.problem)))
        return RequestError([_located(text, file, mark, f"not YAML: {what}", _hint(text, mark))])
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        mark = Mark(before.count("\n") + 1, error.position - before.rfind("\n"))
        what = f"not YAML: the character U+{ord(text[error.position]):04X} is not allowed"
        return RequestError([_located(text, file, mark, what, "remove it")])
    return RequestError(f"not YAML: {error}", where=file)


def _located(text: str, file: str, mark: Mark, what: str, mend: str) -> Problem:
    lines = text.splitlines()
    line = lines[mark.line - 1].rstrip() if mark.line <= len(lines) else ""
    shown = f"\n    {line}\n    {' ' * (mark.column - 1)}^" if line else ""
    return Problem(what + shown, where=f"{file}:{mark.line}:{mark.column}", mend=mend)


def _hint(text: str, mark: Mark) -> str:
    lines = text.splitlines()[: mark.line]
    if any(line.lstrip(" ").startswith("\t") for line in lines):
        return "indent with spaces, not with a tab"
    return "close what is open: brackets, quotes; write `key: value` with a space after the colon"


class _CoreDumper(yaml.SafeDumper):
    """PyYAML's writer, quoting text by the rules that `_CoreLoader` reads by."""

    yaml_implicit_resolvers: dict[Any, Any] = _CoreLoader.yaml_implicit_resolvers


def dump(data: Mapping[str, Any]) -> str:
    """YAML text that `parse` reads back to equal data."""
    return yaml.dump(dict(data), Dumper=_CoreDumper, sort_keys=False, allow_unicode=True)


def plain(value: Any, parts: Parts = ()) -> Any:
    """A value given from Python as JSON data: tuples become lists, paths text. Raises RequestError naming the place."""
    if isinstance(value, Mapping):
        return {str(key): plain(item, (*parts, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, (*parts, index)) for index, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if hasattr(value, "__fspath__"):
        return str(value)
    raise RequestError(
        f"{dotted(parts)} is a {type(value).__name__}, expected JSON data (text, numbers, lists, mappings)"
    )


def strict_json(value: Any) -> Any:
    """JSON data in which infinity and not-a-number are text, since JSON has no numbers for them."""
    if isinstance(value, Mapping):
        return {key: strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def dotted(parts: Parts) -> str:
    """How people write a path: `evaluate[0].every`."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[^.\[\]\s=]+", part):
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text
