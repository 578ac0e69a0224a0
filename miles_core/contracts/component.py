"""What a plugin registers, and what a process is told to build.

A plugin names its factory and its options model as strings (`module:attr`), so that registering it imports neither.
A worker process never discovers plugins: it is sent a `ComponentRef` and builds exactly that.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from miles_core.contracts.declaration import caller, declaration_problems
from miles_core.contracts.installed import check_version
from miles_core.errors import MilesError, PluginError

if TYPE_CHECKING:
    from miles_core.contracts.model import ModelFiles

KINDS = (
    "agent", "generator", "rollout", "data", "reward", "filter", "buffer", "staleness", "schedule",
    "advantage", "correction", "loss", "model", "renderer", "matcher", "engine", "trainer", "transport",
    "precision", "evaluator", "tracker", "runtime", "recipe", "middleware",
)  # fmt: skip
"""Every kind of component. The registration hook of kind `x` is listed in `hookspecs.HOOK_OF_KIND`."""


@dataclass(frozen=True, slots=True)
class Component:
    """One thing that a plugin provides. Returned by the registration hook of its kind.

    name          what a recipe's `use:` says
    factory       `module:attr`, called as `factory(options, context: BuildContext)` where the component runs
    options       `module:attr` of a subclass of `miles_core.Options`; its module imports neither torch nor ray
    summary       one line for listings
    capabilities  declared facts, words of `contracts.capabilities`, e.g. {"needs-gpu"}; a plugin's own begin with `x-`
    example       options (JSON data) with which it can be built on its own, for documentation and the conformance kit;
                  empty when every option has a default. Paths may name what the kit lays out: `tasks.jsonl`,
                  `held_out.jsonl`, `run` (a run that saved groups) and `model` (a Hugging Face directory)

    `place` is the `file:line` that made it, for messages. Raises PluginError with every field that cannot be right.
    """

    name: str
    factory: str
    options: str = "miles_core.contracts.options:NoOptions"
    summary: str = ""
    capabilities: frozenset[str] = frozenset()
    example: Mapping[str, Any] = field(default_factory=dict, hash=False)
    place: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", caller())
        problems = declaration_problems(self)
        if problems:
            raise PluginError(problems)


@dataclass(frozen=True, slots=True)
class ComponentRef:
    """A component that a recipe chose, by value: what it is, whose it is, and its validated options.

    `options` is JSON data. `distribution` and `version` are compared with what is installed where it is built;
    `location` is its metadata folder where it was chosen, by whose name that is done without a search. `capabilities`
    are what it declares: a runtime reads there what it must give it.
    """

    kind: str
    name: str
    factory: str
    options_model: str
    options: Mapping[str, Any]
    distribution: str
    version: str
    location: str = ""
    capabilities: frozenset[str] = frozenset()

    @property
    def owner(self) -> str:
        """Whose code it is: distribution and version, or the module of research code."""
        return f"{self.distribution} {self.version}".strip() or str(self.options.get("path", self.factory))

    def build(self, context: BuildContext) -> Any:
        """Import the factory and call it. Raises PluginError naming whose code failed or is of another version here
        than where it was chosen, and the MilesError that the factory itself raised."""
        if self.distribution:
            module = self.factory.partition(":")[0]
            check_version(self.distribution, self.version, self.location, module, f"worker {context.name!r}")
        try:
            factory = load_attribute(self.factory)
            options = load_attribute(self.options_model).model_validate(dict(self.options))
            return factory(options, context)
        except (MilesError, KeyboardInterrupt):
            raise
        except BaseException as error:  # a plugin may raise anything, SystemExit included
            owner = f"{self.distribution} {self.version}".strip() or "research code"
            raise PluginError(
                f"{self.kind} {self.name!r} could not be built: {type(error).__name__}: {error}",
                where=f"{owner} ({self.factory})",
                mend="a factory is called as factory(options, context); repair it, or reinstall what it belongs to",
            ) from error


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What a factory is given beside its options.

    seed       the run's seed
    name       the component's own name in the run, e.g. `engine-0`; unique in the run
    folder     the run's folder (None outside a run)
    model      the model's files and card, for engines and trainers
    parts      other components that this one builds inside its own process: a trainer builds its `loss`, `correction`
               and `transport`; an engine its `transport` and `precision`
    """

    seed: int
    name: str
    folder: Path | None = None
    model: ModelFiles | None = None
    parts: Mapping[str, ComponentRef] = field(default_factory=dict)

    def part(self, kind: str) -> Any:
        """Build the named part here. Raises KeyError when the run has none of that kind."""
        return self.parts[kind].build(self)


def load_attribute(path: str) -> Any:
    """The object at `module:attr`. Raises whatever the import raises, ValueError when the colon is missing,
    AttributeError with the nearest name when there is no such attribute."""
    module, colon, attribute = path.partition(":")
    if not colon:
        raise ValueError(f"{path!r} is not of the form module:attr")
    found: Any = importlib.import_module(module)
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise AttributeError(f"there is no {name!r} in {_named(found)}{_nearest(name, dir(found))}") from error
    return found


def _named(found: Any) -> str:
    return str(getattr(found, "__file__", None) or getattr(found, "__qualname__", found))


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
