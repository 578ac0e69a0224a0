"""From a section of a recipe to the component that it chooses, with validated options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from miles_core.contracts.component import ComponentRef
from miles_core.contracts.options import NoOptions
from miles_core.errors import MilesError, PluginError, RequestError
from miles_core.host.decide import CORE_DISTRIBUTION, matching
from miles_core.host.load import guarded
from miles_core.host.options_model import options_model
from miles_core.host.registry import BrokenProvider, Registered, Registry, UnknownComponent
from miles_core.host.scan import InstalledPlugin
from miles_core.recipe.auto_transport import AUTO, automatic_transport
from miles_core.recipe.faults import Faults
from miles_core.recipe.research import ResearchCode, is_module_path, research_code
from miles_core.recipe.schema import CORE_KEYS, KIND_OF_SECTION, Section
from miles_core.recipe.shape import SPOILED
from miles_core.recipe.validate import validate
from miles_core.recipe.yaml_text import Parts


@dataclass(frozen=True, slots=True)
class Chosen:
    """A component that a section chose.

    parts         where the section stands (for defaults: where it would)
    use           what the resolved recipe says
    options       the validated instance of the options model
    owner         whose defaults its options have, for people
    why           why this one, when the recipe left it open
    implied       options that `use` itself says (the path of a function): not written beside it
    """

    parts: Parts
    section: Section
    use: str
    ref: ComponentRef
    options: Any
    capabilities: frozenset[str]
    owner: str
    plugin: InstalledPlugin
    why: str = ""
    implied: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.ref.kind


class Chooser:
    """Resolves sections against a registry, each once. `incomplete`: plugins that the recipe names are missing, so a
    component that nobody provides is most likely theirs, and not a second fault; `meant` are the distributions that
    misspelt or ambiguous names of plugins stand for; `folders` are those of research code."""

    def __init__(
        self,
        registry: Registry,
        faults: Faults,
        folders: tuple[Path, ...],
        *,
        incomplete: bool = False,
        meant: frozenset[str] = frozenset(),
    ) -> None:
        self.registry = registry
        self.folders = folders
        self.research: dict[str, ResearchCode] = {}
        self.runtime: Chosen | None = None  # `transport: auto` goes by it
        self._faults = faults
        self._incomplete = incomplete
        self._meant = meant
        self._chosen: dict[Parts, Chosen | None] = {}

    def choose(self, section_name: str, parts: Parts, section: Section, default: bool = False) -> Chosen | None:
        """The choice of one section; None when it has a fault, which is noted."""
        if parts not in self._chosen:
            self._chosen[parts] = self._choose(KIND_OF_SECTION[section_name], section_name, parts, section, default)
        return self._chosen[parts]

    def _choose(self, kind: str, section_name: str, parts: Parts, section: Section, default: bool) -> Chosen | None:
        if section.use == SPOILED:
            return None
        use, why = section.use, ""
        try:
            if kind == "transport" and use == AUTO:
                use, why = automatic_transport(self.registry, self.runtime)
            found, given = self._find(kind, use, default or bool(why))
        except UnknownComponent as error:
            known = error.provider is not None and error.provider.distribution in self._meant
            if not known and (error.guess or not self._incomplete):
                self._faults.add_error((*parts, "use"), error)
            return None
        except BrokenProvider:
            return None  # the plugin's own problem is already noted
        except MilesError as error:
            self._faults.add_error((*parts, "use"), error)
            return None
        for key in given:
            if key in section.options:
                self._faults.add((*parts, key), "is not a known key", "`use` says it already")
        try:
            options = guarded(
                found.plugin,
                f"failed to validate the options of {kind} {found.component.name!r}",
                partial(self._options, found, {**section.options, **given}, parts, section_name),
                passing=(PluginError,),
            )
            if options is None or not self._code_of(found, options, parts):
                return None
            dumped = guarded(found.plugin, "failed to write its options", partial(options.model_dump, mode="json"))
        except PluginError as error:
            self._faults.add_plugin(error.problems)
            return None
        qualified = use if found.plugin.distribution == "" else found.qualified
        return Chosen(
            parts=parts,
            section=section,
            use=use if self._is_clear(kind, use) else qualified,
            ref=found.ref(dumped),
            options=options,
            capabilities=found.component.capabilities,
            owner=f"{kind} {found.component.name} of {found.plugin.distribution or 'research code'}",
            plugin=found.plugin,
            why=why,
            implied=tuple(given),
        )

    def _find(self, kind: str, use: str, from_core: bool) -> tuple[Registered, Mapping[str, Any]]:
        registered = self.registry.is_distribution(use.partition(":")[0]) or self._is_of_milesfile(kind, use)
        if ":" in use and is_module_path(use) and not registered:
            try:
                code = self.research[use] = research_code(kind, use, self.folders)
            except RequestError as error:
                raise self._meant_plugin(kind, use) or error from None
            return Registered(kind, code.component, InstalledPlugin(use, "", "", use)), code.given
        try:
            return self.registry.find(kind, use), {}
        except PluginError:
            if not from_core:
                raise
            return self.registry.find(kind, f"{CORE_DISTRIBUTION}:{use}"), {}

    def _meant_plugin(self, kind: str, use: str) -> RequestError | None:
        """What to say when `use` is no research code, but names a plugin and what it provides."""
        left, _, name = use.partition(":")
        for plugin in matching(self.registry.index.plugins, left):
            if f"{kind}.{name}" in plugin.provides:
                enable = "" if plugin in self.registry.plugins else f', with "{plugin.name}" in plugins:'
                what = f"{use} is no module:attr of research code; {left!r} is the plugin {plugin.title}"
                return RequestError(what, mend=f"write `use: {name}` or `use: {plugin.distribution}:{name}`{enable}")
        return None

    def _code_of(self, found: Registered, options: Any, parts: Parts) -> bool:
        """Import the research code that options name; False when some cannot be, which is noted."""
        named = getattr(options, "code", None)
        paths = guarded(found.plugin, "failed to say what code it uses", partial(_paths, named)) if named else []
        for path in paths:
            try:
                self.research[path] = research_code(found.kind, path, self.folders)
            except MilesError as error:
                self._faults.add_error(parts, error)
                return False
        return True

    def _is_of_milesfile(self, kind: str, use: str) -> bool:
        """Whether `milesfile:name` names what that registers, and not simply something in the module."""
        return any(each.qualified == use for each in self.registry.components(kind) if not each.plugin.distribution)

    def _is_clear(self, kind: str, use: str) -> bool:
        if use in self.research:
            return True
        try:
            self.registry.find(kind, use)
        except MilesError:
            return False
        return True

    def _options(self, found: Registered, data: dict[str, Any], parts: Parts, section_name: str) -> Any:
        model = options_model(found)
        if found.component.name in self.research and model is NoOptions and data:
            mend = f"write a class `Options` inside it, a subclass of miles_core.Options with {', '.join(data)}"
            for key in data:
                what = f"is not a known key, since {found.component.factory} has no class `Options`"
                self._faults.add((*parts, key), what, mend)
            return None
        return validate(model, data, parts, self._faults, also=CORE_KEYS.get(section_name, ()))


def _paths(named: Any) -> list[str]:
    return [str(path) for path in named()] if callable(named) else []
