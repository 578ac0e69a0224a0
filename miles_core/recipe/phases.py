"""What each phase of a recipe consists of: its own sections, else the recipe's, else the core's defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from miles_core.recipe.choose import Chooser, Chosen
from miles_core.recipe.faults import Faults
from miles_core.recipe.schema import (
    DEFAULT_SECTIONS,
    DEFAULT_STALENESS,
    KIND_OF_SECTION,
    LIST_SECTIONS,
    PHASE_SECTIONS,
    GeneratorSection,
    PhaseSection,
    Recipe,
    RewardSection,
    RuntimeSection,
    Section,
)
from miles_core.recipe.yaml_text import Parts
from miles_core.types.sampling import Sampling

Spoiled = tuple[tuple[str, str], ...]
"""Kind and `use` of sections that are there but have a fault: rules must not call them missing."""

RUN_SECTIONS = ("model", "engine", "trainer", "transport", "precision", "runtime")
"""The single sections that belong to the whole run."""


@dataclass(frozen=True, slots=True)
class RewardChoice:
    """One input of the reward."""

    name: str
    weight: float
    chosen: Chosen


@dataclass(frozen=True, slots=True)
class PhaseChoice:
    """The choices of one phase. `one` and `many` lack the sections that are absent or have a fault."""

    name: str
    steps: int
    parts: Parts
    one: Mapping[str, Chosen]
    many: Mapping[str, tuple[Chosen, ...]]
    rewards: tuple[RewardChoice, ...]
    sampling: Sampling
    given: frozenset[str] = field(default_factory=frozenset)
    """Sections that the phase has, with or without a fault, defaults included."""
    spoiled: Spoiled = ()
    own: frozenset[str] = field(default_factory=frozenset)
    """Sections that stand in the phase itself."""

    def all(self) -> Iterator[Chosen]:
        yield from self.one.values()
        yield from (reward.chosen for reward in self.rewards)
        for each in self.many.values():
            yield from each


@dataclass(frozen=True, slots=True)
class _Found:
    """A section with where it stands."""

    parts: Parts
    value: Any
    default: bool


def choose_phases(recipe: Recipe, chooser: Chooser, faults: Faults) -> tuple[PhaseChoice, ...]:
    """The phases in order; a recipe with `steps:` is one phase named `main`."""
    if not recipe.phases:
        return (_phase(recipe, None, (), chooser, faults),)
    return tuple(_phase(recipe, phase, ("phases", index), chooser, faults) for index, phase in enumerate(recipe.phases))


def choose_run(recipe: Recipe, chooser: Chooser) -> tuple[dict[str, Chosen], tuple[Chosen, ...], Spoiled]:
    """The choices that belong to the whole run, its trackers, and what has a fault. Defaults that nothing would use
    are left out."""
    chosen: dict[str, Chosen] = {}
    spoiled = []
    chooser.runtime = _of_run(recipe, chooser, "runtime")
    for name in RUN_SECTIONS:
        section, found = getattr(recipe, name), _of_run(recipe, chooser, name)
        chosen |= {name: found} if found else {}
        spoiled += [(KIND_OF_SECTION[name], section.use)] if section is not None and not found else []
    trackers = (chooser.choose("trackers", ("trackers", i), each) for i, each in enumerate(recipe.trackers))
    return chosen, tuple(each for each in trackers if each), tuple(spoiled)


def _of_run(recipe: Recipe, chooser: Chooser, name: str) -> Chosen | None:
    """The choice of one section, which may be a default's."""
    section = getattr(recipe, name)
    if section is not None:
        return chooser.choose(name, (name,), section)
    if name not in DEFAULT_SECTIONS or not _useful(recipe, name):
        return None
    shape = RuntimeSection if name == "runtime" else Section
    return chooser.choose(name, (name,), shape(**DEFAULT_SECTIONS[name]), default=True)


def _useful(recipe: Recipe, name: str) -> bool:
    if name == "transport":
        return recipe.engine is not None and recipe.trainer is not None
    if name == "precision":
        return recipe.engine is not None or recipe.trainer is not None
    return True


def _phase(recipe: Recipe, phase: PhaseSection | None, parts: Parts, chooser: Chooser, faults: Faults) -> PhaseChoice:
    one: dict[str, Chosen] = {}
    many: dict[str, tuple[Chosen, ...]] = {}
    rewards: tuple[RewardChoice, ...] = ()
    sampling = Sampling()
    given = set()
    spoiled = []
    for name in PHASE_SECTIONS:
        found = _find(recipe, phase, parts, name)
        if name == "staleness":
            found = _limited(found, one.get("schedule"), faults)
        if found is None:
            continue
        given.add(name)
        if name == "rewards":
            rewards = _rewards(found, chooser, faults)
        elif name in LIST_SECTIONS:
            each = (chooser.choose(name, (*found.parts, i), section) for i, section in enumerate(found.value))
            many[name] = tuple(chosen for chosen in each if chosen)
        else:
            chosen = chooser.choose(name, found.parts, found.value, found.default)
            one |= {name: chosen} if chosen else {}
            spoiled += [] if chosen else [(KIND_OF_SECTION[name], found.value.use)]
        if isinstance(found.value, GeneratorSection):
            sampling = found.value.sampling.sampling()
    return PhaseChoice(
        name=phase.name if phase else "main",
        steps=phase.steps if phase else recipe.steps or 1,
        parts=parts,
        one=one,
        many=many,
        rewards=rewards,
        sampling=sampling,
        given=frozenset(given),
        spoiled=tuple(spoiled),
        own=frozenset(phase.model_fields_set & set(PHASE_SECTIONS)) if phase else frozenset(),
    )


def _find(recipe: Recipe, phase: PhaseSection | None, parts: Parts, name: str) -> _Found | None:
    """A phase's section replaces the recipe's whole; written as null it takes the recipe's away."""
    if phase is not None and name in phase.model_fields_set:
        value, at = getattr(phase, name), (*parts, name)
    else:
        value, at = getattr(recipe, name), (name,)
    if value is not None:
        return _Found(at, value, default=False)
    if name not in DEFAULT_SECTIONS:
        return None
    shape = GeneratorSection if name == "generator" else Section
    return _Found((name,) if at == (name,) else at, shape(**DEFAULT_SECTIONS[name]), default=True)


def _limited(found: _Found | None, schedule: Chosen | None, faults: Faults) -> _Found | None:
    """A schedule's `max_staleness` is the limit of the policy, which is the oldest token where the recipe has none."""
    limit = getattr(schedule.options, "max_staleness", None) if schedule else None
    if schedule is None or limit is None:
        return found
    beside = (*schedule.parts[:-1], "staleness")
    if found is None:
        return _Found(beside, Section(use=DEFAULT_STALENESS, limit=limit), default=True)
    own = found.value.options.get("limit", limit)
    if own != limit:
        what = f"is {own}, but max_staleness of the schedule is {limit}"
        faults.add((*found.parts, "limit"), what, "keep one of them")
    options = {**found.value.options, "limit": own}
    return _Found(max(found.parts, beside, key=len), Section(use=found.value.use, **options), found.default)


def _rewards(found: _Found, chooser: Chooser, faults: Faults) -> tuple[RewardChoice, ...]:
    rewards: list[RewardChoice] = []
    names: set[str] = set()
    for index, section in enumerate(found.value):
        assert isinstance(section, RewardSection)
        parts = (*found.parts, index)
        name = section.name or section.use.rpartition(":")[2]
        if name in names:
            faults.add(parts, f'is the second reward named "{name}"', "give it another `name:`")
        names.add(name)
        chosen = chooser.choose("rewards", parts, section)
        if chosen:
            rewards.append(RewardChoice(name, section.weight, chosen))
    return tuple(rewards)
