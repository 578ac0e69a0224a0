"""What stands in a plugin's object under which name, found without running anything of the plugin's.

Properties are not evaluated and foreign objects are not asked for attributes; what pluggy would pass over in silence is
seen here, so that somebody can say so.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Mapping
from typing import Any

_MARK = "miles_impl"
_SPEC_MARK = "miles_spec"
_CARRIERS = (staticmethod, classmethod, types.MethodType)


def members(subject: Any) -> dict[str, Any]:
    """Names and raw values of a module or an instance: its own over its classes', the nearest class first."""
    if inspect.ismodule(subject):
        return dict(vars(subject))
    found: dict[str, Any] = {}
    for owner in reversed(type(subject).__mro__):
        found |= vars(owner)
    return found | dict(own_dict(subject))


def own_dict(value: Any) -> Mapping[str, Any]:
    """The attributes that an object itself holds; none when it has no place for any."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return held if isinstance(held, Mapping) else {}


def function_of(value: Any) -> Any:
    """What a static, class or bound method wraps, and what a property would run; otherwise the value itself."""
    if isinstance(value, _CARRIERS):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    if isinstance(value, functools.cached_property):
        return value.func
    return value


def mark_of(value: Any) -> Mapping[str, Any] | None:
    """What `@hookimpl` noted on it, wherever in the wrapping; None when it is not marked."""
    return _noted(value, _MARK)


def is_spec(value: Any) -> bool:
    """Whether `@hookspec` marked it."""
    return _noted(value, _SPEC_MARK) is not None


def foreign_mark_of(value: Any) -> str:
    """The project whose pluggy marker marked it, when that is not Miles; "" otherwise."""
    noted = {**own_dict(function_of(value)), **own_dict(value)}
    for name, options in noted.items():
        if name.endswith("_impl") and name != _MARK and isinstance(options, dict) and "tryfirst" in options:
            return name.removesuffix("_impl")
    return ""


def _noted(value: Any, mark: str) -> Mapping[str, Any] | None:
    for holder in (value, function_of(value)):
        options = own_dict(holder).get(mark)
        if isinstance(options, dict):
            return options
    return None


def marked_above(subject: Any, name: str) -> type | None:
    """The class whose marked method of that name the object's own class overrides; None when there is none."""
    if inspect.ismodule(subject):
        return None
    return next((owner for owner in type(subject).__mro__ if mark_of(vars(owner).get(name)) is not None), None)


def place_of_code(value: Any, otherwise: str) -> str:
    """`file:line` where a function was written."""
    function = function_of(value)
    function = function.func if isinstance(function, functools.partial) else function
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else otherwise


def lines_of(subject: Any, name: str) -> list[int]:
    """Lines, from the start of the source, at which a module or a class defines a function of that name: more than one
    means that Python dropped all but the last. Empty where there is no source."""
    owner = subject if inspect.ismodule(subject) else type(subject)
    try:
        lines, first = inspect.getsourcelines(owner)
    except (OSError, TypeError):
        return []
    source = "".join(lines)
    if source.count(f"def {name}(") < 2:
        return []
    tree: Any = ast.parse(textwrap.dedent(source))
    body = tree.body if inspect.ismodule(owner) else tree.body[0].body
    return [max(first, 1) + each.lineno - 1 for each in body if isinstance(each, ast.FunctionDef) and each.name == name]
