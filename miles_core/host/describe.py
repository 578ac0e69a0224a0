"""What a loaded plugin offers, as JSON data: components with their options, and the hooks that it implements."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from miles_core.errors import PluginError, Problem
from miles_core.hookspecs import HOOK_OF_KIND
from miles_core.host.options_model import options_model
from miles_core.host.registry import Registered

PREFIX, MARK = "miles_", "miles_impl"


def describe_component(registered: Registered) -> tuple[dict[str, Any], list[Problem]]:
    """One component, and what is wrong with its options model; imports the module that holds the model."""
    component = registered.component
    facts: dict[str, Any] = {
        "kind": registered.kind,
        "name": component.name,
        "summary": component.summary,
        "factory": component.factory,
        "options_model": component.options,
        "options": [],
        "capabilities": sorted(component.capabilities),
        "example": dict(component.example),
    }
    if registered.kind == "recipe":
        return facts, []
    try:
        facts["options"] = describe_options(options_model(registered).model_json_schema())
    except PluginError as error:
        return facts, list(error.problems)
    except BaseException as error:  # a plugin's module may raise anything; this is a process of its own
        what = f"options of {registered.kind} {component.name!r} cannot be described: {type(error).__name__}: {error}"
        return facts, [Problem(what, component.options, "name a subclass of miles_core.Options")]
    return facts, []


def describe_options(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Name, type, default and description of each option, from the JSON Schema of its model. `required` options have
    no default."""
    definitions = schema.get("$defs", {})
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "type": type_in_words(option, definitions),
            "required": name in required,
            "default": option.get("default"),
            "description": option.get("description", ""),
        }
        for name, option in schema.get("properties", {}).items()
    ]


def type_in_words(option: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """`number > 0`, `array of string`, `"a" or "b"`: what a JSON Schema allows, in a few words."""
    if "$ref" in option:
        name = option["$ref"].rpartition("/")[2]
        target = definitions.get(name, {})
        return type_in_words(target, definitions) if "enum" in target else name
    if "const" in option:
        return repr(option["const"])
    if "enum" in option:
        return " or ".join(repr(value) for value in option["enum"])
    for key in ("anyOf", "oneOf"):
        if key in option:
            return " or ".join(dict.fromkeys(type_in_words(each, definitions) for each in option[key]))
    if "allOf" in option:
        return type_in_words(option["allOf"][0], definitions)
    kind = str(option.get("type", "anything"))
    if kind == "array":
        items = option.get("prefixItems")
        if items:
            return f"[{', '.join(type_in_words(each, definitions) for each in items)}]"
        return f"array of {type_in_words(option.get('items', {}), definitions)}"
    if kind == "object" and isinstance(option.get("additionalProperties"), dict):
        return f"object of {type_in_words(option['additionalProperties'], definitions)}"
    return " ".join([kind, *_bounds(option)])


def _bounds(option: Mapping[str, Any]) -> list[str]:
    signs = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
    return [f"{sign} {option[key]:g}" for key, sign in signs.items() if isinstance(option.get(key), int | float)]


def describe_hooks(subject: Any) -> list[dict[str, Any]]:
    """The marked functions of a plugin: hook, whether it is an event's, and `file:line`."""
    hooks = []
    for name in dir(subject):
        value = inspect.getattr_static(subject, name, None)
        if name.startswith(PREFIX) and getattr(value, MARK, None) is not None:
            code = getattr(inspect.unwrap(value) if callable(value) else value, "__code__", None)
            where = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
            hooks.append({"hook": name, "event": name not in HOOK_OF_KIND.values(), "where": where})
    return hooks
