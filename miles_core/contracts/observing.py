"""Who watches a run: evaluators and trackers; and where its processes live: runtimes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.rollout import Attempt, Data
from miles_core.types.estimate import Estimate
from miles_core.types.sampling import Sampling
from miles_core.types.task import Task
from miles_core.types.trajectory import Group, Trajectory


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of one evaluation, filed under the weight version that they measured.

    `scores` maps task id to the mean reward over the attempts at it, a finite number. `step` is the number of batches
    trained before. `skipped` says why there are none.

    total    the score of an evaluator that has none task by task, and its interval if anybody knows it
    figures  more numbers, by name: {"pass@4": Estimate(...)}
    parts    one for each dataset, of an evaluator that measures several. Each is filed as an evaluation of its own,
             named `<name>/<part>`, and the whole then has no scores
    """

    name: str
    version: int
    step: int
    scores: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""
    total: Estimate | None = None
    figures: Mapping[str, Estimate] = field(default_factory=dict)
    parts: tuple[Evaluation, ...] = ()


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """What an evaluator works with: attempts at held-out tasks under the weights that it measures, scored as in
    training.

    generate  asks the rollout's engines; those that only evaluate, where the component declares `own-engines`. No
              other weights answer while the evaluation lasts: an update waits for it, or it is given up
    sampling  is the rollout's: an evaluator changes what it measures otherwise, such as the temperature
    record    keeps the groups with the run's trajectories
    weights   where the component declares `exported-weights`: a Hugging Face directory of the version, complete, and
              removed after the evaluation. `generate` then raises
    """

    data: Data
    generate: Callable[[Attempt], Coroutine[Any, Any, Trajectory]]
    score: Callable[[Group], Coroutine[Any, Any, Group]]
    sampling: Sampling
    seed: int
    record: Callable[[Several[Group]], None]
    weights: Path | None = None


class Evaluator(Protocol):
    """Measures a weight version.

    Where it runs is what its component declares: on the rollout's engines (nothing declared), on `own-engines`, or
    over `exported-weights`; the last two while training goes on. Its options may derive from `EvaluatorOptions`: of
    those the core reads `time_limit`, and `replicas` and `queue` where they are there. Whatever fails (an exception, a
    time limit, another version, a score that is not finite or of a task that was not asked for) is recorded as skipped,
    with the cause; training goes on. It runs in the driver's event loop: await what waits, and end soon when cancelled.
    """

    @property
    def name(self) -> str: ...

    def due(self, step: int, last: bool) -> bool:
        """Whether to evaluate after `step` batches; step 0 is before training, `last` after all of it."""
        ...

    def tasks(self, data: Data) -> list[Task]:
        """All that it attempts; empty when it does not attempt tasks of the run."""
        ...

    async def evaluate(self, step: int, version: int, context: EvaluationContext) -> Evaluation:
        """The scores of `version`, of exactly the tasks of `tasks` (of its parts' together), under its own name."""
        ...


class Tracker(Protocol):
    """Where metrics go beside the run's folder, which has them in any case.

    Called in the driver's process, one call after the other. The run waits for each: give what takes long, such as an
    upload, to a thread of the tracker's own, and join it in `close`. What `start` raises refuses the run before any
    work. What `log` and `close` raise is logged, counted and named in the run's summary, while the others and the run
    go on; with `--strict-plugins`, the first failure of `log` ends the run.
    """

    def start(self, run: str, recipe: Mapping[str, Any]) -> None:
        """Once for each `miles run`, `miles resume` and driver that is started again, before any worker. `run` is the
        name of the run's folder, the same after a resume; `recipe` is the resolved one with every default (JSON
        data)."""
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """After each batch and its evaluations, before its checkpoint. `step` counts from 0; a resumed run goes on
        from its checkpoint, so steps after it come again. `metrics` are the numbers of `metrics.jsonl`: which there
        are depends on the recipe and may differ from step to step. An evaluation that went on beside training is among
        those of the step in which it ended, with the version that it measured (`evaluation/<name>/version`). What ended
        after the last step comes with the number of that step once more, alone."""
        ...

    def close(self, outcome: str) -> None:
        """Once, when the run ends: `outcome` is `done`, `failed` or `interrupted`. A run that was killed closes
        nothing."""
        ...


class Handle(Protocol):
    """A living object in another process. `call` awaits any of its public methods by name.

    Raises what the method raised, or WorkerDied (naming worker, exit status and its last words) when the process ends.

    A handle may have a plain method `kill()`, which ends the process at once, without asking. A process that hangs is
    then gone at once; without it, it is closed like any other, which takes as long as the runtime lets it.
    """

    @property
    def name(self) -> str: ...
    @property
    def alive(self) -> bool: ...
    async def call(self, method: str, *args: Any) -> Any: ...
    async def close(self) -> None: ...


class Runtime(Protocol):
    """Where processes live.

    With `driver: worker` the driver is a worker as well, of kind `driver`: it builds the recipe's runtime again in its
    own process, with the same options, and starts engines and trainer by that. They must end when it dies, as it must
    when the process that started it does. Options that derive from `RuntimeOptions` say whether workers may be on
    several machines.
    """

    async def start(self, ref: ComponentRef, context: BuildContext) -> Handle:
        """Build the component in a process of its own and return when it is ready. What starts in one tick of the
        event loop may be placed together, all of it or none. A component whose process has ended may be started again
        under its name; one whose start is cancelled or fails leaves no process."""
        ...

    async def close(self) -> None:
        """End every process that was started; none is left behind."""
        ...
