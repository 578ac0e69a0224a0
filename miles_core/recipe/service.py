"""The part of a recipe that serves a model: its model and engines, how they sample, and nothing that trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from miles_core.contracts.component import ComponentRef
from miles_core.contracts.model import ModelCard
from miles_core.host.request import PluginRequest
from miles_core.host.scan import scan
from miles_core.recipe.choose import Chooser, Chosen
from miles_core.recipe.document import Document, read_document
from miles_core.recipe.enabling import enable, meant
from miles_core.recipe.faults import Faults
from miles_core.recipe.phases import choose_run
from miles_core.recipe.plan import model_card
from miles_core.recipe.research import code_folders
from miles_core.recipe.schema import GeneratorSection, Recipe
from miles_core.recipe.shape import read_shape
from miles_core.types.sampling import Sampling

SECTIONS = (
    "miles",
    "name",
    "seed",
    "plugins",
    "code",
    "model",
    "engine",
    "precision",
    "runtime",
    "generator",
    "matcher",
)
"""What is read of a recipe; everything else in it may be wrong or absent."""


@dataclass(frozen=True, slots=True)
class Service:
    """A model and its engines, resolved. `history` is what the recipe's generator says of it, if anything."""

    name: str
    seed: int
    model: ComponentRef
    card: ModelCard
    engine: ComponentRef
    replicas: int
    runtime: ComponentRef
    precision: ComponentRef | None
    matcher: ComponentRef | None
    sampling: Sampling
    history: str


def load_service(path: Path, overrides: Sequence[str], request: PluginRequest) -> Service:
    """The service of a recipe with `path=value` overrides. Raises RequestError or PluginError with every fault."""
    document = _served_part(read_document(path, overrides))
    faults = Faults(document)
    recipe = read_shape(document, faults)
    folders = code_folders(document.folder, recipe.code)
    decision, registry, complete = enable(document, recipe, scan(), request, folders, faults)
    chooser = Chooser(registry, faults, folders, incomplete=not complete, meant=meant(decision))
    run, _, _ = choose_run(recipe, chooser)
    matcher = chooser.choose("matcher", ("matcher",), recipe.matcher) if recipe.matcher else None
    for name in ("model", "engine"):
        if getattr(recipe, name) is None:
            faults.add((), f"the recipe has no `{name}:`, so there is nothing to serve", f"write `{name}: {{use: …}}`")
    card = model_card(run.get("model"), recipe.seed, faults)
    faults.raise_all()
    assert card is not None
    return _service(document, recipe, run, matcher, card)


def _service(
    document: Document, recipe: Recipe, run: dict[str, Chosen], matcher: Chosen | None, card: ModelCard
) -> Service:
    generator = recipe.generator or GeneratorSection(use="single-turn")
    history = generator.options.get("history")
    return Service(
        name=recipe.name or document.stem,
        seed=recipe.seed,
        model=run["model"].ref,
        card=card,
        engine=run["engine"].ref,
        replicas=recipe.engine.replicas if recipe.engine else 1,
        runtime=run["runtime"].ref,
        precision=run["precision"].ref if "precision" in run else None,
        matcher=matcher.ref if matcher else None,
        sampling=generator.sampling.sampling(),
        history=history if isinstance(history, str) else "",
    )


def _served_part(document: Document) -> Document:
    """The sections that are read; a recipe of phases is served as its last phase samples."""
    data: dict[str, Any] = {key: value for key, value in document.data.items() if key in SECTIONS}
    phases = document.data.get("phases")
    last = phases[-1] if isinstance(phases, list) and phases and isinstance(phases[-1], dict) else {}
    data |= {key: last[key] for key in ("generator", "matcher") if last.get(key) is not None}
    return replace(document, data={**data, "steps": 1})
