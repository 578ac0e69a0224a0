"""What a recipe resolves to: every component by value, every number with where it came from.

The plan is what `miles plan` prints and what `loop.assemble` builds from. It holds no live object and imports no
plugin: it can be pickled, compared, and written to a run's folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from miles_core.contracts.component import ComponentRef
from miles_core.contracts.model import ModelCard
from miles_core.contracts.planning import RecipeFacts
from miles_core.host.lock import LockedPlugin as LockedPlugin
from miles_core.host.verdict import Verdict
from miles_core.recipe.schema import FaultsSection
from miles_core.types.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value came from: `recipe` (file:line), `command line`, `plugins` (the sources that chose the plugins),
    or `default` (of the component or the core)."""

    kind: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class NamedReward:
    """One input of a trajectory's reward: reward = sum of weight x value over the named ones."""

    name: str
    weight: float
    ref: ComponentRef


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """One phase. The optional parts are None when the phase does not train (rollout only) or has no such part."""

    name: str
    steps: int
    data: ComponentRef
    generator: ComponentRef
    rollout: ComponentRef
    schedule: ComponentRef
    buffer: ComponentRef
    staleness: ComponentRef | None
    advantage: ComponentRef | None
    loss: ComponentRef | None
    correction: ComponentRef | None
    rewards: tuple[NamedReward, ...]
    filters: tuple[ComponentRef, ...]
    evaluators: tuple[ComponentRef, ...]
    sampling: Sampling
    facts: RecipeFacts
    agent: ComponentRef | None = None
    matcher: ComponentRef | None = None
    middleware: tuple[ComponentRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole recipe, resolved.

    driver        whether the driver lives in the command's process (`here`) or in a worker of the runtime (`worker`)
    recipe        the recipe as JSON data with every default filled in: `recipe.yaml` of the run
    sources       dotted path of every value in `recipe` -> where it came from
    card          the algorithm card: (aspect, what it means here)
    arithmetic    the batch arithmetic: (what, number)
    capabilities  what the chosen components declare: (kind, name, capabilities)
    warnings      sentences: legal, but worth knowing
    verdicts      every plugin that any source mentions: whether it is enabled, who says so and what lost
    """

    name: str
    file: Path | None
    seed: int
    plugins: tuple[LockedPlugin, ...]
    phases: tuple[PhasePlan, ...]
    runtime: ComponentRef
    trackers: tuple[ComponentRef, ...]
    model: ComponentRef | None
    model_card: ModelCard | None
    engine: ComponentRef | None
    replicas: int
    trainer: ComponentRef | None
    transport: ComponentRef | None
    precision: ComponentRef | None
    checkpoint_every: int
    checkpoint_keep: int
    faults: FaultsSection = field(default_factory=FaultsSection)
    driver: Literal["here", "worker"] = "here"
    driver_restarts: int = 0
    recipe: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    card: tuple[tuple[str, str], ...] = ()
    arithmetic: tuple[tuple[str, int], ...] = ()
    capabilities: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    warnings: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()

    @property
    def steps(self) -> int:
        """Batches over all phases."""
        return sum(phase.steps for phase in self.phases)
