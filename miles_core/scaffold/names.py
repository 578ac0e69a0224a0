"""The names of a new plugin, and why some cannot be had."""

from __future__ import annotations

import re
from dataclasses import dataclass

from miles_core.errors import Problem
from miles_core.host.decide import NAMING_CONVENTION, matching
from miles_core.host.metadata import normalise
from miles_core.host.scan import Index

_SHAPE = re.compile(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?")
LONGEST = 30
"""Characters of a name: generated lines stay within their length."""


@dataclass(frozen=True, slots=True)
class Names:
    """`my-thing` as a plugin, a module's suffix and the beginning of classes' names."""

    plugin: str

    @classmethod
    def of(cls, written: str) -> Names:
        """As people write it: `My_Thing` and `miles-plugin-my-thing` mean `my-thing`."""
        return cls(normalise(written.strip()).removeprefix(NAMING_CONVENTION))

    @property
    def distribution(self) -> str:
        return NAMING_CONVENTION + self.plugin

    @property
    def module(self) -> str:
        return self.plugin.replace("-", "_")

    @property
    def title(self) -> str:
        return "".join(part.capitalize() for part in self.plugin.split("-"))

    def problems(self, index: Index) -> list[Problem]:
        """Why this name cannot be had: its form, its length, a plugin of that name that is installed."""
        if not _SHAPE.fullmatch(self.plugin):
            what = f"{self.plugin!r} is no name of a plugin" if self.plugin else "the name is empty"
            mend = "begin with a letter; go on with letters, digits and single dashes, e.g. my-thing"
            return [Problem(what, "NAME", mend)]
        if len(self.plugin) > LONGEST:
            return [Problem(f"the name has {len(self.plugin)} characters", "NAME", f"use at most {LONGEST}")]
        taken = matching(index.plugins, self.plugin) or matching(index.plugins, self.distribution)
        return [
            Problem(
                f"a plugin {plugin.name!r} is installed already: {plugin.distribution} {plugin.version}",
                "NAME",
                f"choose another name, or `pip uninstall {plugin.distribution}`",
            )
            for plugin in taken[:1]
        ]
