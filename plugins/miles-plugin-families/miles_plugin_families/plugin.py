"""What this package registers: one model spec for each family. The library is imported by the factory alone."""

from __future__ import annotations

from collections.abc import Iterable

from miles_core import Component, hookimpl
from miles_plugin_families.catalog import FAMILIES


@hookimpl
def miles_model_specs() -> Iterable[Component]:
    return [
        Component(
            family.name,
            factory=f"miles_plugin_families.model:{_attribute(family.name)}",
            options=f"miles_plugin_families.options:{family.options}",
            summary=f"{family.models}: a local checkpoint with the family's chat format",
            capabilities=frozenset({"stand-in-example"} if family.stands_in else ()),
            example=family.example,
        )
        for family in FAMILIES.values()
    ]


def _attribute(name: str) -> str:
    """The factory's name in `model`: an attribute cannot have the dashes and dots of a family's name."""
    return "build_" + name.replace("-", "_").replace(".", "_")
