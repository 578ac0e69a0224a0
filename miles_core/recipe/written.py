"""The resolved recipe: JSON data with every default filled in, a recipe again; and where each value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from miles_core.recipe.choose import Chosen
from miles_core.recipe.document import Document
from miles_core.recipe.phases import PhaseChoice
from miles_core.recipe.resolved import Source
from miles_core.recipe.schema import (
    CORE_KEYS,
    LIST_SECTIONS,
    PHASE_SECTIONS,
    EngineSection,
    GeneratorSection,
    Recipe,
    RuntimeSection,
)
from miles_core.recipe.yaml_text import Parts, dotted


def written_recipe(
    name: str,
    recipe: Recipe,
    run: Mapping[str, Chosen],
    trackers: Sequence[Chosen],
    phases: Sequence[PhaseChoice],
    code: Sequence[str],
    plugins: Sequence[str],
) -> dict[str, Any]:
    """The recipe as it will run. Top-level sections that every phase replaces are left out. `code` are the folders
    of research code in use, since the resolved recipe lies elsewhere than the original; `plugins` are those in use,
    whoever enabled them."""
    data: dict[str, Any] = {
        "miles": recipe.miles,
        "name": name,
        "seed": recipe.seed,
        "plugins": list(plugins),
    }
    data |= {"code": list(code)} if code else {}
    data |= {section: _section(chosen) for section, chosen in run.items()}
    for phase in phases:
        data |= _sections(phase, ())
    data["trackers"] = [_section(each) for each in trackers]
    data["checkpoint"] = recipe.checkpoint.model_dump()
    data["faults"] = recipe.faults.model_dump()
    if recipe.phases:
        data["phases"] = [
            {"name": phase.name, "steps": phase.steps, **_removed(section), **_sections(phase, phase.parts)}
            for phase, section in zip(phases, recipe.phases, strict=True)
        ]
    else:
        data["steps"] = recipe.steps
    return data


def _removed(phase: Any) -> dict[str, None]:
    """Sections that a phase takes away by writing null."""
    return {name: None for name in PHASE_SECTIONS if name in phase.model_fields_set and getattr(phase, name) is None}


def _sections(phase: PhaseChoice, at: Parts) -> dict[str, Any]:
    """The sections of a phase that stand at the top (`at` is empty) or in the phase itself."""
    depth = len(at) + 1
    found: dict[str, Any] = {}
    for name in PHASE_SECTIONS:
        if name in LIST_SECTIONS:
            several = [r.chosen for r in phase.rewards] if name == "rewards" else list(phase.many.get(name, ()))
            weights = [{"name": r.name, "weight": r.weight} for r in phase.rewards] if name == "rewards" else []
            if several and len(several[0].parts) == depth + 1 and several[0].parts[: len(at)] == at:
                found[name] = [_section(each, weights[index] if weights else {}) for index, each in enumerate(several)]
            elif not several and name in phase.given:
                found |= {name: []} if (name in phase.own) == bool(at) else {}
        elif name in phase.one:
            parts = phase.one[name].parts
            if len(parts) == depth and parts[: len(at)] == at:
                found[name] = _section(phase.one[name])
    return found


def _section(chosen: Chosen, core: Mapping[str, Any] | None = None) -> dict[str, Any]:
    section = chosen.section
    keys: dict[str, Any] = dict(core or {})
    if isinstance(section, GeneratorSection):
        keys["sampling"] = section.sampling.model_dump()
    if isinstance(section, EngineSection):
        keys["replicas"] = section.replicas
    if isinstance(section, RuntimeSection):
        keys |= {"driver": section.driver, "driver_restarts": section.driver_restarts}
    options = {key: value for key, value in chosen.ref.options.items() if key not in chosen.implied}
    return {"use": chosen.use, **keys, **options}


def sources_of(
    data: Mapping[str, Any], document: Document, choices: Sequence[Chosen], plugins: Source | None
) -> dict[str, Source]:
    """Where each value of the resolved recipe came from, by its dotted path; `plugins` is where its list of plugins
    came from, if that is not the recipe's own."""
    by_parts = {chosen.parts: chosen for chosen in choices}
    sources: dict[str, Source] = {}
    for parts, _ in leaves(data):
        chosen_elsewhere = plugins if parts[0] == "plugins" else None
        sources[dotted(parts)] = chosen_elsewhere or _source(parts, document, by_parts)
    return sources


def _source(parts: Parts, document: Document, choices: Mapping[Parts, Chosen]) -> Source:
    owner = next((choices[parts[:cut]] for cut in range(len(parts), 0, -1) if parts[:cut] in choices), None)
    if owner is not None and parts == (*owner.parts, "use") and owner.why:
        return Source("default", owner.why)
    if _is_written(document.data, parts):
        return document.place(parts).source
    return Source("default", "miles-core" if owner is None or _is_core_key(parts, owner) else owner.owner)


def _is_core_key(parts: Parts, owner: Chosen) -> bool:
    section = next(part for part in reversed(owner.parts) if isinstance(part, str))
    return parts[len(owner.parts)] in ("use", *CORE_KEYS.get(section, ()))


def _is_written(data: Any, parts: Parts) -> bool:
    """Whether the recipe has the value, be it in another form that an options model rewrote (a list as a mapping)."""
    for part in parts:
        if isinstance(data, dict):
            if part not in data:
                return False
            data = data[part]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return True
    return True


def leaves(data: Any, parts: Parts = ()) -> Iterator[tuple[Parts, Any]]:
    """Every value that holds no further paths: scalars, empty containers, lists of scalars."""
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from leaves(value, (*parts, key))
    elif isinstance(data, list) and any(isinstance(item, Mapping | list) for item in data):
        for index, item in enumerate(data):
            yield from leaves(item, (*parts, index))
    else:
        yield parts, data
