"""What a check is given: the plugin, one of its components, and a place to work in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from miles_core.contracts.component import BuildContext, ComponentRef, load_attribute
from miles_core.contracts.model import ModelFiles
from miles_core.host.registry import Registered, Registry
from miles_core.host.scan import InstalledPlugin


@dataclass(frozen=True, slots=True)
class PluginSubject:
    """A plugin as a whole. `source` is its source folder, None for one that was installed from a wheel."""

    plugin: InstalledPlugin
    registry: Registry
    components: tuple[Registered, ...]
    folder: Path
    source: Path | None = None


@dataclass(frozen=True, slots=True)
class ComponentSubject:
    """One component. `folder` is empty, writable and this check's own."""

    plugin: InstalledPlugin
    registry: Registry
    registered: Registered
    folder: Path
    source: Path | None = None
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.registered.kind}.{self.registered.component.name}"

    def beside(self, registered: Registered) -> ComponentSubject:
        """Another component of the same plugin, in the same place."""
        return ComponentSubject(self.plugin, self.registry, registered, self.folder, self.source)

    @property
    def example(self) -> dict[str, Any]:
        """The options that the component is built with here."""
        return {**self.registered.component.example, **self.given}

    def options(self) -> Any:
        """The example, validated."""
        return load_attribute(self.registered.component.options).model_validate(self.example)

    def ref(self) -> ComponentRef:
        """The component by value, as a worker is told to build it."""
        return self.registered.ref(self.options().model_dump(mode="json"))

    def build(
        self, *, seed: int = 1, model: ModelFiles | None = None, parts: Mapping[str, ComponentRef] | None = None
    ) -> Any:
        """A fresh one, as a run would build it."""
        name = f"{self.registered.kind}-{self.registered.component.name}"
        return self.ref().build(BuildContext(seed, name, self.folder, model, parts or {}))
