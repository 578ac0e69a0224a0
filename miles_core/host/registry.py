"""Everything that the enabled plugins provide, by kind and name, each with whose it is."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from miles_core.contracts.component import Component, ComponentRef
from miles_core.errors import PluginError, RequestError
from miles_core.host.call_trace import HookCall, HookTrace
from miles_core.host.decide import NAMING_CONVENTION
from miles_core.host.events import EventCaller, Listener, ListenerUse
from miles_core.host.metadata import normalise
from miles_core.host.provides import silence_of
from miles_core.host.scan import Index, InstalledPlugin
from miles_core.host.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Registered:
    """A component and the plugin that provides it."""

    kind: str
    component: Component
    plugin: InstalledPlugin

    @property
    def qualified(self) -> str:
        return f"{self.plugin.distribution or self.plugin.name}:{self.component.name}"

    def ref(self, options: Mapping[str, Any]) -> ComponentRef:
        """The component by value, with its validated options (JSON data)."""
        return ComponentRef(
            kind=self.kind,
            name=self.component.name,
            factory=self.component.factory,
            options_model=self.component.options,
            options=dict(options),
            distribution=self.plugin.distribution,
            version=self.plugin.version,
            location=self.plugin.location,
            capabilities=self.component.capabilities,
        )


class UnknownComponent(RequestError):
    """No enabled plugin provides it. `guess` tells whether the mend names something that exists; `provider` is the
    installed plugin that would provide it."""

    guess = False
    provider: InstalledPlugin | None = None


class BrokenProvider(PluginError):
    """The enabled plugin that provides it failed to load."""


class Registry:
    """What is enabled. `failed` are plugins that were asked for and could not be had: their components are missing
    here; `off` are those that someone blocks."""

    def __init__(
        self,
        index: Index,
        plugins: Sequence[InstalledPlugin],
        components: Sequence[Registered],
        listeners: Mapping[str, Sequence[Listener]],
        failed: Sequence[InstalledPlugin] = (),
        off: Sequence[Verdict] = (),
        *,
        events: Mapping[str, Sequence[str]] | None = None,
        calls: Sequence[HookCall] = (),
    ) -> None:
        self.index = index
        self.plugins = tuple(plugins)
        self.failed = tuple(failed)
        self._off = tuple(off)
        self._components = tuple(components)
        self._calls = tuple(calls)
        self._events = EventCaller(events or {}, listeners)

    @property
    def events(self) -> Mapping[str, tuple[str, ...]]:
        """Every event that listeners may hear, the enabled plugins' own included, and its facts."""
        return self._events.events

    def watch(self, *, strict: bool = False, trace: HookTrace | None = None) -> None:
        """How the events of a run are told: `strict` raises the first failure of a listener; `trace` gets a line for
        each hook call, those of registration at once."""
        self._events.strict = strict
        self._events.trace = trace
        if trace is not None:
            for call in self._calls:
                trace.write(call)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a registry does not travel to another process: send the ComponentRefs of what is built there, or the "
            "resolved plugin set (a plan has both)"
        )

    def emit(self, name: str, /, **facts: Any) -> None:
        """Tell every implementation of `miles_<name>`; one that raises is logged and counted, the others go on."""
        self._events.emit(name, **facts)

    def summary(self) -> tuple[ListenerUse, ...]:
        """Calls, failures and seconds of the event hooks of each plugin."""
        return self._events.summary()

    def components(self, kind: str) -> tuple[Registered, ...]:
        """Everything of one kind, by name."""
        return tuple(
            sorted((c for c in self._components if c.kind == kind), key=lambda c: c.qualified.split(":")[::-1])
        )

    def ref(self, kind: str, name: str, options: Mapping[str, Any]) -> ComponentRef:
        """`find`, by value. The options are taken as they are: validate them first."""
        return self.find(kind, name).ref(options)

    def is_distribution(self, name: str) -> bool:
        """Whether an enabled plugin comes from this distribution."""
        return normalise(name) in {plugin.distribution for plugin in (*self.plugins, *self.failed)}

    def find(self, kind: str, name: str) -> Registered:
        """The component of this kind that `name` or `distribution:name` means.

        Raises RequestError for an unknown or not enabled one (saying how to get it), PluginError when several plugins
        provide it or when the plugin that provides it failed to load.
        """
        distribution, _, plain = name.rpartition(":")
        wanted = normalise(distribution)
        found = [
            each
            for each in self._components
            if each.kind == kind
            and each.component.name == plain
            and (not distribution or (each.plugin.distribution or each.plugin.name) == wanted)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            owners = " and by ".join(each.plugin.title for each in found)
            choices = " or ".join(each.qualified for each in found)
            raise PluginError(f"{kind} {name!r} is provided by {owners}", mend=f"say which: {choices}")
        raise self._unknown(kind, name, plain)

    def _unknown(self, kind: str, name: str, plain: str) -> RequestError | PluginError:
        provided = f"{kind}.{plain}"
        for plugin in self.failed:
            if provided in plugin.provides:
                return BrokenProvider(f"{kind} {name!r} belongs to plugin {plugin.title}, which failed to load")
        off = {verdict.plugin: verdict for verdict in self._off}
        for plugin in sorted(self.index.plugins, key=lambda plugin: plugin not in off):
            if provided in plugin.provides and plugin not in self.plugins:
                verdict = off.get(plugin)
                missing = UnknownComponent(
                    f"{kind} {name!r} is provided by {plugin.distribution} {plugin.version}, which "
                    f"{verdict.off_because if verdict else 'is not enabled'}",
                    mend=verdict.way_back if verdict else _enabling(plugin),
                )
                missing.guess, missing.provider = True, plugin
                return missing
        silent_one = self._named_alike(kind, plain)
        if silent_one is not None:
            return silent_one
        here = sorted({each.component.name for each in self.components(kind)})
        guess = self._guess(kind, plain, here)
        silent = [each for each in self._off if each.plugin is None or not each.plugin.provides]  # it may be theirs
        blocked = "".join(f"; not enabled: {each.name}, which {each.off_because}" for each in silent)
        possibly = f"pip install {NAMING_CONVENTION}{normalise(plain)}"
        get_it = (
            silent[0].way_back if silent else f"enable or install the plugin that provides it, possibly: {possibly}"
        )
        error = UnknownComponent(
            f"there is no {kind} {name!r}; enabled: {', '.join(here) or 'none'}{blocked}", mend=guess or get_it
        )
        error.guess = bool(guess or blocked)
        return error

    def _named_alike(self, kind: str, plain: str) -> UnknownComponent | None:
        """An installed plugin that is called like the component, is not enabled, and does not say what it provides."""
        off = {verdict.plugin for verdict in self._off}
        for plugin in self.index.plugins:
            silence = silence_of(plugin)
            if plugin in self.plugins or plugin in off or normalise(plugin.name) != normalise(plain) or not silence:
                continue
            what = f"there is no {kind} {plain!r} among what is enabled; plugin {plugin.title} may provide it, which is"
            error = UnknownComponent(f"{what} not enabled ({silence})", mend=_enabling(plugin))
            error.guess, error.provider = True, plugin
            return error
        return None

    def _guess(self, kind: str, plain: str, here: Sequence[str]) -> str:
        """What was meant, if something like it exists."""
        near = difflib.get_close_matches(plain, here, n=1)
        if near:
            return f"did you mean {near[0]!r}?"
        elsewhere = sorted({each.kind for each in self._components if each.component.name == plain})
        if elsewhere:
            return f"{plain!r} is of kind {' and '.join(elsewhere)}, not {kind}"
        return self._near_not_enabled(kind, plain)

    def _near_not_enabled(self, kind: str, plain: str) -> str:
        prefix = f"{kind}."
        owners = {
            name.removeprefix(prefix): plugin
            for plugin in self.index.plugins
            if plugin not in self.plugins
            for name in plugin.provides
            if name.startswith(prefix)
        }
        near = difflib.get_close_matches(plain, owners, n=1)
        if not near:
            return ""
        owner = owners[near[0]]
        verdict = next((each for each in self._off if each.plugin == owner), None)
        return f"did you mean {near[0]!r}? Then {verdict.way_back if verdict else _enabling(owner)}"


def _enabling(plugin: InstalledPlugin) -> str:
    """How to enable a plugin that nobody keeps out."""
    return f'add "{plugin.name}" to plugins:'
