"""The shape of a recipe: its sections, and the keys of a section that are the core's beside `use:`.

What else stands in a section belongs to the component that `use:` picks and is validated by its own options model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from miles_core.contracts.options import RECIPE_KEYS
from miles_core.types.sampling import Sampling

FORMAT_VERSION = 1


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class Section(BaseModel):
    """A component and its options: `{use: name, option: value, …}`."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    use: Annotated[str, Field(min_length=1)] = Field(
        description="the component: `name`, `distribution:name`, or `module:attr` for research code"
    )

    @property
    def options(self) -> dict[str, Any]:
        """What belongs to the component."""
        return dict(self.model_extra or {})


class SamplingSection(_Shape):
    """How rollouts sample."""

    temperature: float = Field(default=1.0, ge=0, description="0 is greedy")
    max_new_tokens: PositiveInt = Field(default=256, description="tokens sampled at most in one request")
    top_p: float = Field(default=1.0, gt=0, le=1, description="1 does not truncate")
    top_k: NonNegativeInt = Field(default=0, description="0 does not truncate")
    ignore_stop: bool = Field(default=False, description="go on after a stop token, to the limit")

    def sampling(self) -> Sampling:
        return Sampling(**self.model_dump())


class GeneratorSection(Section):
    sampling: SamplingSection = SamplingSection()


class EngineSection(Section):
    replicas: PositiveInt = Field(default=1, description="engines in the fleet")


class RuntimeSection(Section):
    use: Annotated[str, Field(min_length=1)] = Field(default="local", description="the component")
    driver: Literal["here", "worker"] = Field(
        default="here",
        description="where the driver lives: in the command's own process, or in a worker of the runtime, which is "
        "started again from the last checkpoint when it dies",
    )
    driver_restarts: NonNegativeInt = Field(
        default=3, description="how often a driver that lives in a worker is started again; then the run fails"
    )


class RewardSection(Section):
    name: str | None = Field(default=None, min_length=1, description="its name in scores; by default what `use` says")
    weight: float = Field(default=1.0, description="reward = sum of weight x value")


class CheckpointSection(_Shape):
    every: NonNegativeInt = Field(default=0, description="steps between checkpoints; 0: only at the end")
    keep: PositiveInt = Field(default=2, description="how many are kept")


class FaultsSection(_Shape):
    """What a run does about processes that die or hang, and how often. docs/faults.md tells the whole story."""

    engine_restarts: NonNegativeInt = Field(
        default=3, description="times that an engine which died or hangs is started again, until it served 10 minutes"
    )
    restart_delay: float = Field(default=1.0, ge=0, description="seconds before a restart; doubled for each one after")
    health_seconds: float = Field(
        default=60.0,
        gt=0,
        description="an engine whose `health` does not answer for so long is ended and started again",
    )
    wait_seconds: float = Field(
        default=600.0,
        gt=0,
        description="the longest wait for an engine: of a request while none serves, of one that starts, of a call",
    )
    request_deaths: PositiveInt = Field(
        default=3, description="engines that die under one request before its attempt is aborted"
    )
    trainer_seconds: float = Field(
        default=7200.0,
        gt=0,
        description="the longest wait for one call of the trainer (a batch, a checkpoint), then it is ended",
    )
    restores: NonNegativeInt = Field(
        default=3,
        description="times that the run goes back to its last checkpoint by itself after its trainer or last engine "
        "died, without a new checkpoint between them",
    )


class PhaseSections(_Shape):
    """The sections that a phase may replace, whole."""

    data: Section | None = None
    schedule: Section | None = None
    buffer: Section | None = None
    staleness: Section | None = None
    agent: Section | None = None
    matcher: Section | None = None
    generator: GeneratorSection | None = None
    rollout: Section | None = None
    middleware: tuple[Section, ...] | None = None
    rewards: tuple[RewardSection, ...] | None = None
    filters: tuple[Section, ...] | None = None
    advantage: Section | None = None
    loss: Section | None = None
    correction: Section | None = None
    evaluate: tuple[Section, ...] | None = None


class PhaseSection(PhaseSections):
    """One phase of the run."""

    name: str = Field(min_length=1)
    steps: PositiveInt = Field(description="batches to train")


class Recipe(PhaseSections):
    """A whole recipe."""

    miles: Literal[1] = Field(description="version of the recipe format")
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="by default the file's")
    seed: int = Field(default=0, ge=0, lt=2**63)
    plugins: tuple[str, ...] = Field(default=(), description="the plugins to enable; `no:NAME` keeps one out")
    code: tuple[str, ...] = Field(
        default=(), description="folders of research code, relative to the recipe; its own is always one"
    )
    model: Section | None = None
    engine: EngineSection | None = None
    trainer: Section | None = None
    transport: Section | None = None
    precision: Section | None = None
    runtime: RuntimeSection | None = None
    trackers: tuple[Section, ...] = ()
    checkpoint: CheckpointSection = CheckpointSection()
    faults: FaultsSection = FaultsSection()
    steps: PositiveInt | None = Field(default=None, description="batches to train, in a recipe of one phase")
    phases: tuple[PhaseSection, ...] | None = Field(default=None, description="phases, one after the other")


KIND_OF_SECTION = {
    "data": "data",
    "schedule": "schedule",
    "buffer": "buffer",
    "staleness": "staleness",
    "agent": "agent",
    "matcher": "matcher",
    "generator": "generator",
    "rollout": "rollout",
    "middleware": "middleware",
    "rewards": "reward",
    "filters": "filter",
    "advantage": "advantage",
    "loss": "loss",
    "correction": "correction",
    "evaluate": "evaluator",
    "model": "model",
    "engine": "engine",
    "trainer": "trainer",
    "transport": "transport",
    "precision": "precision",
    "runtime": "runtime",
    "trackers": "tracker",
}
"""Section of a recipe -> kind of the components in it."""

LIST_SECTIONS = ("middleware", "rewards", "filters", "evaluate", "trackers")

PHASE_SECTIONS = tuple(PhaseSections.model_fields)

DEFAULT_SECTIONS: dict[str, dict[str, Any]] = {
    "generator": {"use": "single-turn"},
    "rollout": {"use": "groups"},
    "buffer": {"use": "fifo", "capacity": 2.0},
    "runtime": {},
    "transport": {"use": "auto"},
    "precision": {"use": "fp32"},
}
"""What a recipe has where it is silent."""

DEFAULT_STALENESS = "oldest-token"
"""The policy of a schedule with a `max_staleness`, in a recipe without `staleness:`."""

CORE_KEYS = {section: RECIPE_KEYS[kind] for section, kind in KIND_OF_SECTION.items() if kind in RECIPE_KEYS}
"""Keys beside `use:` that belong to the core."""
