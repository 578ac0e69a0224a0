"""What a component is built with beside its options: engines and trainers need a model and the parts inside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from miles_core.contracts.component import ComponentRef
from miles_core.contracts.model import ModelFiles
from miles_core.testing.kit.check import skip
from miles_core.testing.kit.subject import ComponentSubject

PARTS_OF_KIND: Mapping[str, Mapping[str, str]] = {
    "engine": {"transport": "shared-memory", "precision": "fp32"},
    "trainer": {"transport": "shared-memory"},
}
"""kind -> the core's own components that it is given as parts."""


def surroundings(subject: ComponentSubject, folder: Path) -> tuple[ModelFiles | None, dict[str, ComponentRef]]:
    """A tiny model, written into `folder`, and parts; nothing for kinds that need neither."""
    parts = {
        kind: subject.registry.ref(kind, f"miles-core:{name}", {})
        for kind, name in PARTS_OF_KIND.get(subject.registered.kind, {}).items()
    }
    if not parts:
        return None, {}
    try:
        from miles_core.testing.fakes.tiny_model import tiny_model

        return tiny_model(folder / "model"), parts
    except ImportError as error:
        skip(f"a model cannot be written here: {error}")
