"""What a Component may say of itself: checked when it is made, so that the author is shown the line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from miles_core.errors import Problem

if TYPE_CHECKING:
    from miles_core.contracts.component import Component

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:\S+")
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_PASSED_OVER = ("<string>", "dataclasses.py", "component.py")


def caller() -> str:
    """`file:line` of whoever makes the component; "" when nobody can tell."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.endswith(("declaration.py", *_PASSED_OVER)):
        frame = frame.f_back  # type: ignore[assignment]
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def declaration_problems(component: Component) -> list[Problem]:
    """Everything that is wrong with its fields by themselves."""
    return [Problem(what, component.place, mend) for what, mend in _faults(component)]


def is_path(text: str) -> bool:
    """Whether it has the form `module:attr`."""
    return _PATH.fullmatch(text) is not None


def _faults(component: Component) -> Iterator[tuple[str, str]]:
    who = f"Component {component.name!r}"
    name: Any = component.name
    research = name == component.factory  # the name of research code is its path
    if not (isinstance(name, str) and (_NAME.fullmatch(name) or research)):
        what = f"the name of a Component is {name!r}, expected letters, digits and . _ -"
        yield what, f'write Component("{_plain(name)}", …)'
    for field, pattern in (("factory", _FACTORY), ("options", _PATH)):
        value: Any = getattr(component, field)
        if not isinstance(value, str):
            what = f"{who} has the {field} {value!r}, expected a text of the form module:attr"
            yield what, f"write {field}={_path_of(value)}: what is named is imported only where it is used"
        elif not pattern.fullmatch(value):
            module, dot, last = value.rpartition(".")
            mend = f'write {field}="{module}:{last}"' if dot and ":" not in value else f'write {field}="module:attr"'
            yield f"{who} has the {field} {value!r}, expected the form module:attr", mend
    summary: Any = component.summary
    if not isinstance(summary, str):
        yield f"{who} has the summary {summary!r}, expected a text", 'write summary="one line for listings"'
    words: Any = component.capabilities
    if not (isinstance(words, Collection) and all(isinstance(word, str) for word in words)):
        yield f"{who} has the capabilities {words!r}, expected a set of texts", 'write frozenset({"needs-gpu"})'
    yield from _faults_of_example(who, component.example)


def _faults_of_example(who: str, example: Any) -> Iterator[tuple[str, str]]:
    mend = 'write example={"option": value}'
    if not (isinstance(example, Mapping) and all(isinstance(key, str) for key in example)):
        yield f"{who} has the example {example!r}, expected a mapping of options", mend
        return
    try:
        json.dumps(dict(example), allow_nan=False)
    except (TypeError, ValueError) as error:
        yield f"{who} has an example that is not JSON data: {error}", mend


def _plain(name: Any) -> str:
    """The nearest name that may be one."""
    text = name if isinstance(name, str) else getattr(name, "__name__", "name")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._").lower() or "name"


def _path_of(value: Any) -> str:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return f'"{module}:{name}"' if module and name else '"module:attr"'
