"""The options model of a component: imported, and looked at before anything is validated with it.

A model that is no `miles_core.Options` would take a misspelt key without a word, and an option with the name of
a key of the recipe's own would never be given its value.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from miles_core.contracts.component import load_attribute
from miles_core.contracts.options import RECIPE_KEYS, Options
from miles_core.errors import PluginError, Problem
from miles_core.host.named import fault_of_path
from miles_core.host.registry import Registered


def options_model(registered: Registered) -> type[Options]:
    """The model. Raises PluginError when the component names a factory or a model that is not there, or with all that
    is wrong with the model, and whatever its import raises."""
    problems = [*_missing(registered, "factory", registered.component.factory)]
    missing = [*_missing(registered, "options model", registered.component.options)]
    if missing:
        raise PluginError([*problems, *missing])
    model = load_attribute(registered.component.options)
    problems += _faults(registered, model)
    if problems:
        raise PluginError(problems)
    found: type[Options] = model
    return found


def _missing(registered: Registered, what: str, path: str) -> Iterator[Problem]:
    fault = fault_of_path(path)
    if fault is not None:
        who = f"plugin {registered.plugin.title}: the {what} of {registered.kind} {registered.component.name!r}"
        yield Problem(f"{who} is {path!r}, but {fault[0]}", registered.component.place, fault[1])


def _faults(registered: Registered, model: Any) -> Iterator[Problem]:
    kind, component = registered.kind, registered.component
    who = f"plugin {registered.plugin.title}: the options model {component.options} of {kind} {component.name!r}"
    where = place_of_class(model) or component.options
    if not (inspect.isclass(model) and issubclass(model, Options)):
        what = f"is {model!r}, expected a subclass of miles_core.Options"
        name = model.__name__ if inspect.isclass(model) else "MyOptions"
        yield Problem(f"{who} {what}", where, f"write class {name}(Options), with `from miles_core import Options`")
        return
    if model.model_config.get("extra") != "forbid":
        what = "accepts unknown keys, so that a misspelt option would vanish"
        yield Problem(f"{who} {what}", where, "do not change `extra` of miles_core.Options")
    own = ("use", *RECIPE_KEYS.get(kind, ()))
    for name in sorted(_keys(model).intersection(own)):
        what = f"has the option {name!r}, which is a key of the recipe's own"
        yield Problem(f"{who} {what}", where, f"rename it; the recipe's own keys of a {kind}: {', '.join(own)}")


def _keys(model: type[Options]) -> set[str]:
    """What a recipe may write for the options."""
    aliases = {name: field.validation_alias or field.alias for name, field in model.model_fields.items()}
    return {alias if isinstance(alias, str) else name for name, alias in aliases.items()}


def place_of_class(model: Any) -> str:
    """`file:line` of a class; "" where there is no source."""
    try:
        return f"{inspect.getsourcefile(model)}:{inspect.getsourcelines(model)[1]}"
    except (OSError, TypeError):
        return ""
