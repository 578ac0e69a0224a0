"""The JSON Schema of recipes over the options of enabled plugins: what an editor completes and checks against."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from miles_core.errors import PluginError
from miles_core.host.activate import open_registry
from miles_core.host.load import guarded
from miles_core.host.options_model import options_model
from miles_core.host.registry import Registered, Registry
from miles_core.recipe.schema import CORE_KEYS, KIND_OF_SECTION, LIST_SECTIONS, PHASE_SECTIONS, Recipe
from miles_core.recipe.yaml_text import strict_json

log = logging.getLogger("miles.recipes")

Schema = dict[str, Any]


def recipe_schema(plugin_names: Sequence[str] | None = None) -> Schema:
    """JSON Schema (2020-12) of recipes that enable the named plugins (None: any installed one). No torch is imported.

    Each section is one of the components of its kind, told apart by `use`. Raises RequestError or PluginError for
    named plugins that are unknown or broken; with None a broken one is left out and named in the log.
    """
    registry = open_registry(plugin_names)
    for plugin in registry.failed:
        log.warning("plugin %s does not load and is left out; miles plugins show says why", plugin.title)
    base = Recipe.model_json_schema(ref_template="#/$defs/recipe.{model}")
    definitions = {f"recipe.{name}": schema for name, schema in base.pop("$defs").items()}
    for section in KIND_OF_SECTION:
        definitions |= _section_definitions(section, registry, definitions, strict=plugin_names is not None)
    phase = definitions["recipe.PhaseSection"]
    for target, names in ((base, tuple(KIND_OF_SECTION)), (phase, PHASE_SECTIONS)):
        target["properties"] |= {name: _reference(name) for name in names}
    used = {name: schema for name, schema in definitions.items() if name not in _REPLACED}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Miles recipe",
        **{key: value for key, value in base.items() if key != "title"},
        "oneOf": [{"required": ["steps"]}, {"required": ["phases"]}],
        "$defs": used,
    }
    return {key: strict_json(value) for key, value in schema.items()}


_CORE_MODEL = {
    "generator": "recipe.GeneratorSection",
    "engine": "recipe.EngineSection",
    "rewards": "recipe.RewardSection",
    "runtime": "recipe.RuntimeSection",
}

_REPLACED = ("recipe.Section", *_CORE_MODEL.values())
"""The core's own shapes of sections: the definitions by component stand in their place."""


def _reference(section: str) -> Schema:
    one = {"$ref": f"#/$defs/section.{section}"}
    value = {"type": "array", "items": one} if section in LIST_SECTIONS else one
    return {"oneOf": [value, {"type": "null"}]}


def _section_definitions(section: str, registry: Registry, core: Schema, strict: bool) -> Schema:
    """The definition of one section and of every component that may stand in it."""
    kind = KIND_OF_SECTION[section]
    registered = registry.components(kind)
    names = [each.component.name for each in registered]
    definitions: Schema = {}
    branches: list[Schema] = []
    for each in registered:
        use = each.component.name if names.count(each.component.name) == 1 else each.qualified
        label = f"{section}.{use.replace(':', '.')}"
        try:
            schema = guarded(
                each.plugin,
                f"failed to give the schema of {kind} {use!r}",
                partial(_options, each, label),
                passing=(PluginError,),
            )
        except PluginError as error:
            if strict:
                raise
            log.warning("%s", error)
            continue
        definitions |= schema.pop("$defs", {})
        definitions[label] = _with_core_keys(section, use, each.component.summary, schema, core)
        branches.append({"$ref": f"#/$defs/{label}"})
    if kind == "transport":
        branches.append({"type": "object", "properties": {"use": {"const": "auto"}}, "required": ["use"]})
    branches.append(_elsewhere())
    return {**definitions, f"section.{section}": {"oneOf": branches}}


def _options(registered: Registered, label: str) -> Schema:
    """The options model's schema, its inner definitions named after the component."""
    model = options_model(registered)
    schema: Schema = model.model_json_schema(ref_template=f"#/$defs/{label}.{{model}}")
    inner = {f"{label}.{name}": definition for name, definition in schema.pop("$defs", {}).items()}
    return {**schema, "$defs": inner}


def _with_core_keys(section: str, use: str, summary: str, schema: Schema, core: Schema) -> Schema:
    properties: Schema = {"use": {"const": use, "description": summary}}
    for key in CORE_KEYS.get(section, ()):
        properties[key] = core[_CORE_MODEL[section]]["properties"][key]
    schema = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return {
        **schema,
        "type": "object",
        "properties": properties | schema.get("properties", {}),
        "required": [*_must_say(section, use, core), *schema.get("required", [])],
    }


def _must_say(section: str, use: str, core: Schema) -> list[str]:
    """`use`, except where a section without it has this one."""
    default = core[_CORE_MODEL[section]]["properties"]["use"].get("default") if section in _CORE_MODEL else None
    return [] if use == default else ["use"]


def _elsewhere() -> Schema:
    """`distribution:name` or research code: checked when the recipe is planned."""
    return {
        "type": "object",
        "properties": {"use": {"type": "string", "pattern": "^[^:]+:[^:]+$"}},
        "required": ["use"],
    }
