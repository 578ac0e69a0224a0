"""The JSON Schema that editors complete recipes with."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from miles_core.errors import PluginError, RequestError
from miles_core.recipe.json_schema import recipe_schema


def accepts(schema: Any, value: Any, root: Any) -> bool:
    """As much of JSON Schema as pydantic writes: enough to tell right recipes from wrong ones."""
    if "$ref" in schema:
        return accepts(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root)
    if "oneOf" in schema and sum(accepts(each, value, root) for each in schema["oneOf"]) != 1:
        return False
    if "anyOf" in schema and not any(accepts(each, value, root) for each in schema["anyOf"]):
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "type" in schema and not _is(schema["type"], value):
        return False
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return False
    if isinstance(value, int | float) and value < schema.get("minimum", float("-inf")):
        return False
    if isinstance(value, list) and not all(accepts(schema.get("items", {}), item, root) for item in value):
        return False
    if isinstance(value, dict):
        known = schema.get("properties", {})
        if any(name not in value for name in schema.get("required", ())):
            return False
        if any(name not in known for name in value) and schema.get("additionalProperties") is False:
            return False
        return all(accepts(known[name], item, root) for name, item in value.items() if name in known)
    return True


def _is(kind: str, value: Any) -> bool:
    if kind in ("integer", "number") and isinstance(value, bool):
        return False
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}
    return value is None if kind == "null" else isinstance(value, types[kind])  # type: ignore[arg-type]


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def test_a_right_recipe_is_accepted_and_wrong_ones_are_not(kitchen: Any, recipe: dict[str, Any]) -> None:
    schema = recipe_schema(["toy", "lab"])
    assert json.loads(json.dumps(schema)) == schema
    assert accepts(schema, recipe, schema)
    assert accepts(schema, kitchen.plan().recipe, schema)
    wrong: list[dict[str, Any]] = [
        {"sead": 1},
        {"loss": {"use": "nosuch"}},
        {"loss": {"use": "deep", "levle": "token"}},
        {"loss": {"use": "deep", "level": "tokn"}},
        {"loss": {"use": "deep", "two": {"three": {"four": {"five": [{"limit": "many"}]}}}}},
        {"engine": "toy"},
        {"rewards": {"use": "match"}},
        {"generator": {"use": "single-turn", "sampling": {"hot": 1}}},
        {"phases": [{"name": "a", "steps": 1}]},
        {"trainer": {"use": "toy", "replicas": 2}},
    ]
    for change in wrong:
        assert not accepts(schema, recipe | change, schema), change
    right: list[dict[str, Any]] = [
        {"loss": {"use": "miles-plugin-lab:deep"}},
        {"rewards": [{"use": "mine:longest", "weight": 2}]},
        {"engine": {"use": "toy", "replicas": 2}},
        {"transport": {"use": "auto"}},
        {"correction": None},
    ]
    for change in right:
        assert accepts(schema, recipe | change, schema), change


def test_phases_are_described_too(kitchen: Any, recipe: dict[str, Any]) -> None:
    schema = recipe_schema(["toy", "lab"])
    del recipe["steps"]
    assert accepts(schema, recipe | {"phases": [{"name": "a", "steps": 1, "loss": {"use": "deep"}}]}, schema)
    assert not accepts(schema, recipe | {"phases": [{"name": "a", "steps": 1, "loss": {"use": "no"}}]}, schema)


def test_every_reference_leads_somewhere(kitchen: Any) -> None:
    schema = recipe_schema(None)
    assert {each.removeprefix("#/$defs/") for each in references(schema)} <= set(schema["$defs"])
    assert "loss.deep" in schema["$defs"] and "engine.toy" in schema["$defs"]


def test_only_the_named_plugins_are_described(kitchen: Any) -> None:
    schema = recipe_schema(["toy"])
    assert "loss.deep" not in schema["$defs"] and "loss.toy" in schema["$defs"] and "buffer.fifo" in schema["$defs"]


def test_broken_plugins_are_named_and_left_out(kitchen: Any, caplog: pytest.LogCaptureFixture) -> None:
    kitchen.site.plugin("bad", "raise SystemExit(0)")
    kitchen.add_odd_plugin()
    assert "loss.deep" in recipe_schema(None)["$defs"]
    assert "plugin bad (miles-plugin-bad 1.0) does not load" in caplog.text
    assert "the options model miles_plugin_odd:options of tracker 'odd' is 3" in caplog.text
    with pytest.raises(PluginError):
        recipe_schema(["bad"])
    with pytest.raises(RequestError):
        recipe_schema(["nosuch"])
