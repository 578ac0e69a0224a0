"""JSON data against a pydantic model, with errors in plain words: the path, the value, what was expected, the nearest.

The data is validated as JSON in strict mode: text is never taken for a number, but a list becomes a tuple, and text an
enum or a path, as the model says.
"""

from __future__ import annotations

import difflib
import json
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from miles_core.recipe.document import shown
from miles_core.recipe.faults import Faults
from miles_core.recipe.yaml_text import Part, Parts, dotted

Model = TypeVar("Model", bound=BaseModel)

_MAPPING_EXPECTED = ("model_type", "model_attributes_type", "dict_type")

_NUMBERS = frozenset({"int_type", "int_parsing", "float_type", "float_parsing"})
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")

_EXPECTED = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "none_required": "null",
    "path_type": "a path",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "a number below {lt}",
    "less_than_equal": "{le} or less",
    "multiple_of": "a multiple of {multiple_of}",
    "string_too_short": "text of {min_length} characters or more",
    "string_too_long": "text of {max_length} characters or fewer",
    "string_pattern_mismatch": "text that matches {pattern}",
    "too_short": "{min_length} items or more",
    "too_long": "{max_length} items or fewer",
}


def validate(
    model: type[Model], data: Mapping[str, Any], parts: Parts, faults: Faults, also: Sequence[str] = ()
) -> Model | None:
    """The model's instance, or None after adding every fault. `parts` is where in the recipe the data stands; `also`
    are keys that may stand there and are not the model's."""
    try:
        return model.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        add_faults(error, model, data, parts, faults, also)
        return None


def add_faults(
    error: ValidationError,
    model: type[BaseModel],
    data: Any,
    parts: Parts,
    faults: Faults,
    also: Sequence[str] = (),
) -> None:
    """One fault for each path: the branches of a union each report their own error for the same value."""
    merged: dict[Parts, list[Mapping[str, Any]]] = {}
    for detail in error.errors(include_url=False):
        option = _default_of(model, detail, data)
        if option:
            said = f"the default of option `{option}` of {model.__module__}:{model.__qualname__} is "
            said += f"{shown(detail['input'])}, expected {_expected(detail)}"
            faults.add(parts, said, f"give `{option}` a default that it accepts", broken=True)
            continue
        merged.setdefault(path_of(detail, data), []).append(detail)
    for path, details in merged.items():
        if any(path != other and other[: len(path)] == path for other in merged) and _only_shape(details):
            continue  # another branch of the union got further down
        what, mend = _sentence(details, model, data, path, also)
        faults.add((*parts, *path), what, mend)


def _default_of(model: type[BaseModel], detail: Mapping[str, Any], data: Any) -> str:
    """The option whose own default is what a model refuses, dotted; "" when it refuses what the recipe says."""
    path = path_of(detail, data)
    if detail["type"] in ("missing", "extra_forbidden"):
        return ""
    here, known = _at(data, path), fields_at(model, path) | {*model.model_fields}
    beyond = [part for part in detail["loc"] if isinstance(part, str) and part in known]
    if not (isinstance(here, Mapping) and beyond) or beyond[-1] in (*here, *path):
        return ""
    return dotted((*path, beyond[-1]))


def _only_shape(details: list[Mapping[str, Any]]) -> bool:
    return all(detail["type"].endswith("_type") for detail in details)


def path_of(detail: Mapping[str, Any], data: Any) -> Parts:
    """The error's location without the names of union branches and validators that pydantic puts into it."""
    path: list[Part] = []
    here = data
    location = detail["loc"]
    for index, part in enumerate(location):
        if (isinstance(here, Mapping) and part in here) or (
            isinstance(here, list) and isinstance(part, int) and part < len(here)
        ):
            here = here[part]
        elif detail["type"] != "missing" or index + 1 != len(location):
            continue
        path.append(part)
    return tuple(path)


def _sentence(
    details: list[Mapping[str, Any]], model: type[BaseModel], data: Any, path: Parts, also: Sequence[str]
) -> tuple[str, str]:
    detail = details[0]
    value = _at(data, path)
    if detail["type"] == "missing":
        return "is required but not there", _missing_mend(model, data, path)
    if detail["type"] == "extra_forbidden":
        known = sorted(fields_at(model, path[:-1]) | set(also if len(path) == 1 else ()))
        near = difflib.get_close_matches(str(path[-1]), known, n=1)
        mend = f"did you mean `{near[0]}`? " if near else ""
        return "is not a known key", f"{mend}Known: {', '.join(known) or 'none'}"
    if detail["type"] in ("value_error", "assertion_error"):
        return f"is {shown(value)}: {detail['msg'].partition(', ')[2] or detail['msg']}", ""
    if detail["type"] in _MAPPING_EXPECTED and isinstance(value, str) and "use" in fields_at(model, path):
        return f"is {shown(value)}, expected a mapping", f"write {{use: {value}}}"
    expected = " or ".join(dict.fromkeys(_expected(each) for each in details))
    return f"is {shown(value)}, expected {expected}", _nearest_choice(details, value) or _written_right(details, value)


def _missing_mend(model: type[BaseModel], data: Any, path: Parts) -> str:
    """Perhaps it is there, but misspelt."""
    given = _at(data, path[:-1])
    unknown = set(given) - fields_at(model, path[:-1]) if isinstance(given, Mapping) else set()
    near = difflib.get_close_matches(str(path[-1]), sorted(unknown), n=1)
    return f"write `{path[-1]}:` instead of `{near[0]}:`" if near else f"write `{path[-1]}:` there"


def _expected(detail: Mapping[str, Any]) -> str:
    template = _EXPECTED.get(detail["type"])
    context = detail.get("ctx") or {}
    if template is None:
        message = str(detail["msg"])
        return message.removeprefix("Input should be ").removeprefix("a valid ")
    return template.format(**context)


def _nearest_choice(details: list[Mapping[str, Any]], value: Any) -> str:
    if not isinstance(value, str):
        return ""
    choices = [
        choice.strip("' ")
        for detail in details
        if detail["type"] in ("literal_error", "enum")
        for choice in detail["ctx"]["expected"].replace(" or ", ",").split(",")
    ]
    near = difflib.get_close_matches(value, choices, n=1)
    return f"did you mean {near[0]}?" if near else ""


def _written_right(details: list[Mapping[str, Any]], value: Any) -> str:
    """The same value as another type, where quotes make the difference."""
    types = {detail["type"] for detail in details}
    if "string_type" in types and isinstance(value, bool | int | float):
        return f'quote it: "{json.dumps(value)}"'
    if isinstance(value, str) and types & _NUMBERS and _NUMBER.fullmatch(value):
        return f"write {value} without quotes"
    if isinstance(value, str) and types & {"bool_type", "bool_parsing"} and value.lower() in ("true", "false"):
        return f"write {value.lower()} without quotes"
    if types & {"list_type", "tuple_type", "set_type", "frozen_set_type"} and isinstance(
        value, bool | int | float | str
    ):
        return f"write [{value if isinstance(value, str) else json.dumps(value)}]"
    return ""


def _at(data: Any, path: Parts) -> Any:
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def fields_at(model: Any, path: Parts) -> set[str]:
    """The keys that the model accepts at a path below it."""
    found = [model]
    for part in path:
        found = [inner for each in found for branch in _branches(each) for inner in _inside(branch, part)]
    models = [branch for each in found for branch in _branches(each) if _is_model(branch)]
    return {field.alias or name for each in models for name, field in each.model_fields.items()}


def _branches(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return [branch for each in get_args(annotation) for branch in _branches(each)]
    if hasattr(annotation, "__metadata__"):
        return _branches(annotation.__origin__)
    return [annotation]


def _inside(annotation: Any, part: Part) -> list[Any]:
    if _is_model(annotation):
        return [
            field.annotation for name, field in annotation.model_fields.items() if part in (name, field.alias or name)
        ]
    arguments = [each for each in get_args(annotation) if each is not Ellipsis]
    return arguments[-1:] if isinstance(part, str) else arguments


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
