"""What an options model may know of the rest of the recipe when it checks itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from miles_core.contracts.model import ModelCard
from miles_core.types.sampling import Sampling


@dataclass(frozen=True, slots=True)
class RecipeFacts:
    """The facts of one phase of a resolved recipe.

    chosen            kind -> names in use, e.g. {"engine": ("torch",)}
    capabilities      kind -> capabilities that the chosen components declare
    group_size        trajectories in a group
    groups_per_step   groups in a batch
    optimizer_steps   optimizer steps on each batch
    steps             batches in this phase
    model             the model's card (None: the recipe has no model)
    sampling          how rollouts sample
    buffer_groups     finished groups that may wait (None: the buffer does not say)
    staleness_limit   versions that the staleness policy allows (None: there is none, or it does not say)
    """

    group_size: int
    groups_per_step: int
    optimizer_steps: int
    steps: int
    sampling: Sampling
    model: ModelCard | None = None
    chosen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    capabilities: Mapping[str, frozenset[str]] = field(default_factory=dict)
    buffer_groups: int | None = None
    staleness_limit: int | None = None
