"""What a component is built with beside its options: engines and trainers need a model and the parts inside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from miles_core.contracts.capabilities import TOY_MODEL
from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.model import ModelFiles
from miles_core.testing.kit.check import skip
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.testing.toy.model import ToyModel, ToyModelOptions

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
    if TOY_MODEL in subject.registered.component.capabilities:
        return toy_model(), parts
    try:
        from miles_core.testing.fakes.tiny_model import tiny_model

        return tiny_model(folder / "model"), parts
    except ImportError as error:
        skip(f"a model cannot be written here: {error}")


def toy_model() -> ModelFiles:
    """The core's toy model, which has no files."""
    return ToyModel(ToyModelOptions(), BuildContext(1, "model")).materialise()
