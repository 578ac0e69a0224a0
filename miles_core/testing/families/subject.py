"""From the name of a component to its renderer, built as its kind is: a `model` hands its own out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError as PydanticError

from miles_core.contracts.capabilities import STAND_IN
from miles_core.contracts.component import BuildContext, load_attribute
from miles_core.contracts.model import Renderer
from miles_core.errors import MilesError, RequestError
from miles_core.host.registry import Registered, Registry, UnknownComponent
from miles_core.testing.kit.materials import workplace

KINDS = ("model", "renderer")


@dataclass(frozen=True, slots=True)
class Subject:
    """A component that brings a renderer, and the options that it is tried with. `given` tells that a person chose
    them: else they are the component's own example."""

    registered: Registered
    options: Mapping[str, Any]
    given: bool

    @property
    def component(self) -> str:
        return f"{self.registered.kind}.{self.registered.component.name}"

    @property
    def stand_in(self) -> bool:
        """Whether what is tried is not the family's own."""
        return not self.given and STAND_IN in self.registered.component.capabilities

    @contextmanager
    def renderer(self) -> Iterator[Renderer]:
        """Built in a place where the names of an example mean something. Raises MilesError when it cannot be had."""
        with tempfile.TemporaryDirectory(prefix="miles-family-") as scratch:
            here = Path(scratch)
            if self.given:
                yield self._build(here)
            else:
                with workplace(here / "here", self.options):
                    yield self._build(here)

    def _build(self, scratch: Path) -> Renderer:
        component = self.registered.component
        options = _validated(component.options, self.options, self.component)
        ref = self.registered.ref(options)
        if self.registered.kind == "renderer":
            from miles_core.testing.fakes.tiny_model import tiny_model

            made: Renderer = ref.build(BuildContext(1, component.name, scratch, tiny_model(scratch / "model")))
            return made
        spec = ref.build(BuildContext(1, "model", scratch))
        spec.materialise()
        found: Renderer = spec.renderer()
        return found


def find_subject(registry: Registry, name: str, path: str | None, settings: Sequence[str] = ()) -> Subject:
    """The model or renderer of this name. Raises RequestError when there is none, with how a family is registered."""
    errors: list[MilesError] = []
    for kind in KINDS:
        try:
            found = registry.find(kind, name)
        except UnknownComponent as error:
            errors.append(error)
            continue
        asked = _settings(settings)
        chosen = asked | ({} if path is None else {"path": str(Path(path).expanduser().resolve())})
        base = dict(found.component.example) if path is None else {}
        _check_asked(found, base | chosen, asked)
        return Subject(found, base | chosen, given=path is not None)
    here = sorted({each.component.name for kind in KINDS for each in registry.components(kind)})
    raise RequestError(
        f"no family {name!r} is registered; there are: {', '.join(here)}",
        mend="nothing is detected: a family is a component of kind `model` or `renderer` of an installed plugin "
        "(docs/families.md); miles-plugin-families brings most",
    ) from errors[0]


def all_subjects(registry: Registry) -> list[Subject]:
    """Every model and renderer of the enabled plugins, with its example."""
    found = [each for kind in KINDS for each in registry.components(kind)]
    return [Subject(each, dict(each.component.example), given=False) for each in found]


def _settings(settings: Sequence[str]) -> dict[str, Any]:
    import yaml

    found = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise RequestError(f"{setting!r} is no setting", where="--set", mend="say --set thinking=false")
        found[key] = yaml.safe_load(value)
    return found


def _check_asked(found: Registered, options: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """What the person asked for is theirs to mend; files of an example are looked for where it is tried."""
    try:
        _validated(found.component.options, options, found.component.name)
    except RequestError as error:
        if any(problem.where.partition(".")[0] in asked for problem in error.problems):
            raise


def _validated(model: str, options: Mapping[str, Any], component: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = load_attribute(model).model_validate(dict(options)).model_dump(mode="json")
    except PydanticError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or component
        raise RequestError(f"{component} does not take these options: {first['msg']}", where=where) from error
    return found
