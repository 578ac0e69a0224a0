"""Options: what a person writes beside `use:`. They are validated without building anything, and without torch."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from miles_core.contracts.component import load_attribute
from miles_core.contracts.model import ModelCard
from miles_core.contracts.options import Options
from miles_core.contracts.planning import RecipeFacts
from miles_core.testing.kit.check import EVERY_KIND, Grade, check, expect, fail, inapplicable
from miles_core.testing.kit.probes import ENDS, HEAVY, options_imports
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sampling import Sampling

UNKNOWN = "no_option_has_this_name"


@check(
    EVERY_KIND, Grade.SILVER, "its options are a subclass of miles_core.Options, and its example validates", gate=True
)
def options_model(subject: ComponentSubject) -> None:
    path = subject.registered.component.options
    expect(ENDS not in options_imports(subject)[path], f"importing {path} ends the process", "let it only define")
    try:
        model = load_attribute(path)
    except Exception as error:
        fail(f"{path} cannot be imported: {type(error).__name__}: {error}", 'name it as "module:Class"')
    is_one = inspect.isclass(model) and issubclass(model, Options)
    expect(is_one, f"{path} is {model!r}", "let it inherit miles_core.Options")
    try:
        model.model_validate(subject.example)
    except ValidationError as error:
        fail(
            f"the example {subject.example} is refused: {_first(error)}",
            "give every option a default, or give the Component an `example` with which it can be built alone",
        )


@check(EVERY_KIND, Grade.SILVER, "its options' module imports no torch, so that recipes are checked without it")
def options_import_little(subject: ComponentSubject) -> None:
    heavy = options_imports(subject)[subject.registered.component.options]
    path = subject.registered.component.options.partition(":")[0]
    expect(
        not heavy,
        f"importing {path} imports {', '.join(heavy)}",
        f"move the options into a module of their own that imports none of {', '.join(HEAVY)}",
    )


@check(EVERY_KIND, Grade.SILVER, "an option that it does not have is refused")
def unknown_options_refused(subject: ComponentSubject) -> None:
    model = _model(subject)
    try:
        model.model_validate({**subject.example, UNKNOWN: 1})
    except ValidationError:
        return
    fail(
        f"{model.__name__} takes the unknown option {UNKNOWN!r}",
        "do not change extra='forbid' of miles_core.Options: a misspelt option would be ignored in silence",
    )


@check(EVERY_KIND, Grade.SILVER, "its options become JSON and back without a change")
def options_round_trip(subject: ComponentSubject) -> None:
    options = subject.options()
    text = json.dumps(options.model_dump(mode="json"), allow_nan=False)
    again = type(options).model_validate(json.loads(text))
    expect(again == options, f"{options!r} came back as {again!r}", "use field types that JSON can carry")


@check(EVERY_KIND, Grade.SILVER, "wrong values of options are refused with a validation error, never a crash")
def wrong_options_refused(subject: ComponentSubject) -> None:
    model = _model(subject)
    refused = 0
    for name in model.model_fields:
        for wrong in (None, "", "\x00 no such value", -1, [], {"no": ["such", {"value": None}]}, object()):
            try:
                model.model_validate({**subject.example, name: wrong})
            except ValidationError:
                refused += 1
            except Exception as error:
                fail(
                    f"{name}={wrong!r:.60} raises {type(error).__name__}: {error}",
                    "raise ValueError in validators; pydantic makes a validation error of it",
                )
    if not model.model_fields:
        inapplicable("it has no options")
    expect(refused, "no value of any option was ever refused", "give the options types")


@check(EVERY_KIND, Grade.SILVER, "its options have a JSON Schema, which editors complete recipes with")
def json_schema(subject: ComponentSubject) -> None:
    model = _model(subject)
    try:
        schema = model.model_json_schema()
        json.dumps(schema, allow_nan=False)
    except Exception as error:
        fail(
            f"{model.__name__} has no JSON Schema: {type(error).__name__}: {error}",
            "use field types and defaults that JSON Schema can express",
        )
    expect(
        schema.get("additionalProperties") is False,
        f"the schema of {model.__name__} allows unknown options",
        "do not change extra='forbid' of miles_core.Options",
    )


@check(EVERY_KIND, Grade.SILVER, "card() and check() of its options answer for any plain recipe")
def options_speak(subject: ComponentSubject) -> None:
    options = subject.options()
    card = options.card()
    texts = isinstance(card, Mapping) and all(isinstance(t, str) for pair in card.items() for t in pair)
    expect(texts, f"card() returned {card!r:.200}", "return a mapping of text to text")
    for facts in _plain_facts():
        found = options.check(facts)
        expect(not isinstance(found, str), f"check() returned the text {found!r:.100}", "yield or return sentences")
        wrong = [each for each in found if not isinstance(each, str)]
        expect(not wrong, f"check() gave {wrong!r:.200}", "every fault is a sentence")


@check(EVERY_KIND, Grade.GOLD, "every option says what it is")
def options_described(subject: ComponentSubject) -> None:
    silent = sorted(_undescribed(_model(subject)))
    expect(
        not silent,
        f"no description: {', '.join(silent)}",
        'write Field(description="...") for each: listings, editors and error messages show it',
    )


@check(EVERY_KIND, Grade.GOLD, "it says in one line what it does")
def summary(subject: ComponentSubject) -> None:
    text = subject.registered.component.summary
    expect(text.strip(), "its summary is empty", 'give Component(summary="...") one line for listings')
    expect(len(text.splitlines()) == 1 and len(text) <= 120, f"its summary is {text!r}", "one line of 120 characters")


def _model(subject: ComponentSubject) -> type[Options]:
    model: type[Options] = load_attribute(subject.registered.component.options)
    return model


def _first(error: ValidationError) -> str:
    fault = error.errors()[0]
    return f"{'.'.join(map(str, fault['loc'])) or 'the whole'}: {fault['msg']}"


def _undescribed(model: type[BaseModel], path: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if not field.description:
            yield path + name
        for inner in _models_in(field.annotation):
            yield from _undescribed(inner, f"{path}{name}.")


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models_in(argument)


def _plain_facts() -> Iterator[RecipeFacts]:
    """With a model and without, for a laptop and for more."""
    card = ModelCard("plain", "LlamaForCausalLM", 4096, 32000, 64, 2, 10**6, stop_tokens=(2,))
    for model, groups, size in ((card, 2, 4), (None, 64, 16)):
        yield RecipeFacts(size, groups, 1, 3, Sampling(), model)
