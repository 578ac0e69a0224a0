"""The three nested layers of a rollout, and what stands beside them: data, rewards, filters, buffer, staleness.

The rollout calls a generator for each attempt; the `agent` generator runs an agent inside a session. Each layer gets
the layers inside it for free and can be replaced alone.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import Any, Protocol

from miles_core.contracts.engine import EngineClient
from miles_core.contracts.lifecycle import Clock, EventSink, NoEvents
from miles_core.contracts.model import Renderer
from miles_core.contracts.pace import Pace
from miles_core.contracts.sessions import Sessions
from miles_core.errors import ValidationError
from miles_core.types.sampling import NoiseKey, Sampling
from miles_core.types.task import Message, Task
from miles_core.types.trajectory import CANCELLED, Disposition, Group, Score, Trajectory


@dataclass(frozen=True, slots=True)
class Episode:
    """All that an agent sees of an attempt: never a token.

    `base_url` serves the chat routes (docs/sessions.md); `api_key` opens this attempt's session only. `deadline` is
    on the clock's time. The agent stops soon after `cancelled` is set.
    """

    task: Task
    base_url: str
    api_key: str = field(repr=False)
    sampling: Sampling
    deadline: float | None
    cancelled: asyncio.Event


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an agent says at the end: its own reward (None: it has no verdict) and anything worth keeping.

    `reward` is finite. Raises ValidationError that names the field.
    """

    reward: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        reward = self.reward
        if reward is not None and (not isinstance(reward, int | float) or not math.isfinite(reward)):
            raise ValidationError(f"Outcome.reward is {reward!r}, expected a finite number, or None for no verdict")
        if not isinstance(self.metadata, Mapping):
            raise ValidationError(f"Outcome.metadata is {self.metadata!r:.100}, expected a mapping")


class Agent(Protocol):
    """Runs an environment against a chat endpoint.

    Built once, in the driver; each episode is a task of the driver's event loop, many at once: keep nothing of an
    episode on the object, await what waits, and give what blocks to a thread or a subprocess of your own.
    """

    async def run(self, episode: Episode) -> Outcome:
        """The verdict. It adds to the conversation and sends the model's messages back as they came: a session refuses
        another history (409). An exception is a failed attempt, and never a score."""
        ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to make. `purpose` separates the randomness of training from that of each evaluation; `remade` that
    of an attempt which is made again beside others of its group (from 1) from the first."""

    id: str
    task: Task
    group: int
    draw: int
    index: int
    purpose: str
    sampling: Sampling
    seed: int
    remade: int = 0

    def noise(self, turn: int = 0) -> NoiseKey:
        purpose = f"{self.purpose}/remade-{self.remade}" if self.remade else self.purpose
        return NoiseKey(self.seed, purpose, self.task.id, self.draw, self.index, turn)


@dataclass(frozen=True, slots=True)
class GenerateContext:
    """What a generator works with.

    engines    answer requests for tokens; a run without engines has one that raises
    renderer   messages to tokens and back
    clock      where time comes from; `deadline` is on it
    agent      what the phase's `agent:` section names, living, with its middleware around it; None without the section.
               A generator that cannot do without declares the capability `needs-agent`
    agent_name what the recipe calls that agent; its own reward is a score of this name
    matcher    what the phase's `matcher:` section names, for the sessions that are opened; None: strict
    sessions   where an agent's chat is answered; None when no generator of the run declares `needs-agent`
    longest    tokens of the longest sequence that the engines take; None: nobody knows
    events     where a plugin that brings hooks of its own tells of them
    """

    engines: EngineClient
    renderer: Renderer
    clock: Clock
    deadline: float | None = None
    agent: Agent | None = None
    agent_name: str = ""
    sessions: Sessions | None = None
    matcher: Matcher | None = None
    longest: int | None = None
    events: EventSink = field(default_factory=NoEvents)


class Generator(Protocol):
    """Makes one trajectory."""

    @property
    def needs_engine(self) -> bool:
        """False for generators that ask no engine, such as demonstrations."""
        ...

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        """The trajectory, without a reward unless the attempt brought its own. An exception is this attempt's
        failure, with its class and text, and never a score."""
        ...


@dataclass(frozen=True, slots=True)
class Draw:
    """A task and how often it had been drawn before. `remade` counts how often trajectories of this very draw have been
    made again: each time with noise of its own."""

    task: Task
    draw: int
    remade: int = 0


class Data(Protocol):
    """Where tasks come from. `state` and `restore` continue at the same task."""

    def draw(self) -> Draw | None:
        """The next task; None when finite data ended."""
        ...

    def held_out(self, count: int) -> list[Task]:
        """The first `count` tasks that `draw` never gives. Fewer when there are fewer; raises RequestError when there
        is no held-out split."""
        ...

    def size(self) -> int | None:
        """How many draws there are in all; None for endless data."""
        ...

    def state(self) -> Mapping[str, Any]: ...
    def restore(self, state: Mapping[str, Any]) -> None: ...


class Reward(Protocol):
    """Scores a finished group.

    Built once, in the driver, and asked for many groups at once: keep nothing of a group on the object. It runs in the
    driver's event loop, which every attempt of the rollout waits for. So await what waits (a service, through an async
    client), and give what blocks or computes for long to `asyncio.to_thread` or to a process.
    """

    async def score(self, group: Group) -> list[Score | None]:
        """One score for each trajectory, in order; None is no verdict, and never 0 for that. Attempts that failed or
        were aborted are not in `group`. Raising ends the run, with an error that names the reward, the task and the
        line."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to keep a group, and why not. A staleness policy may keep it changed: `instead` is then what is trained,
    the same trajectories with fewer tokens to learn from. Or it does not keep it and names in `again` the trajectories
    (by `Trajectory.index`) that are too old: only these are made again, and the group keeps the others. A buffer that
    does not know `again` discards the group whole."""

    keep: bool
    reason: str = ""
    instead: Group | None = None
    again: tuple[int, ...] = ()


class Filter(Protocol):
    """Keeps or drops a scored group."""

    def judge(self, group: Group) -> Verdict: ...


class Staleness(Protocol):
    """What too old means. What it may do beside: have doomed work cancelled (`Foresees`), and have single trajectories
    made again (`Verdict.again`), if its options' `check` sees that the rollout declares `remakes`."""

    def judge(self, group: Group, version: int) -> Verdict:
        """`version` is the current one."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Discard:
    """A group that the buffer threw away: aborted, cancelled or filtered at put, stale at get; and the reason in words.
    With `recycle` its task is to be drawn again. With `kept`, `group` is only the stale part of a group, `kept` is the
    rest of it, and a new group is made of that and of new attempts (`Remakes`)."""

    group: Group
    disposition: Disposition
    reason: str
    recycle: bool = False
    kept: Group | None = None

    @property
    def dispositions(self) -> dict[str, Disposition]:
        """What became of each trajectory, by id. Of a cancelled group, what had been finished is stale."""
        if self.disposition is not Disposition.CANCELLED:
            return dict.fromkeys((t.id for t in self.group.trajectories), self.disposition)
        return {
            t.id: Disposition.CANCELLED if CANCELLED in t.metadata else Disposition.STALE
            for t in self.group.trajectories
        }


class Buffer(Protocol):
    """What waits between rollout and trainer: bounded, and the one place where groups are discarded. What it may do
    beside: change its size (`Resizes`), and split a group of which only a part is stale (`Discard.kept`)."""

    def connect(
        self,
        groups_per_step: int,
        filters: Several[Filter],
        staleness: Staleness | None,
        *,
        ordered: bool = False,
        discarding: Callable[[Discard], None] | None = None,
    ) -> None:
        """Called once, before anything else: what capacity is measured in, and who judges.

        ordered     `get` gives groups in the order of their numbers, which then are 0, 1, 2, ...: each is put once
        discarding  is called with each discard, before `put` or `get` goes on. Whoever is told of a stale group that is
                    recycled, or of which some trajectories were `kept`, puts another one, or says `end` again, though
                    the buffer had ended
        """
        ...

    async def put(self, group: Group) -> Verdict:
        """Waits while full. Not kept: aborted, cancelled (`CANCELLED` in a trajectory's metadata), or rejected by a
        filter, with the reason. Returns in the same turn of the event loop in which the group began to wait, so that a
        checkpoint finds it in one place."""
        ...

    async def get(self, version: int) -> Group | None:
        """The next group that is not stale at `version`; None when the rollout ended and nothing is left."""
        ...

    def waiting(self) -> list[Group]:
        """The groups that wait, in order: a checkpoint saves them beside `state`."""
        ...

    def end(self, error: BaseException | None = None) -> None:
        """No more groups will be put; `get` raises `error` when there is one."""
        ...

    def discarded(self) -> list[Discard]:
        """What was thrown away since the last call, for the record."""
        ...

    def metrics(self) -> dict[str, float]:
        """Counters and ages since the last call."""
        ...

    def state(self) -> Mapping[str, Any]: ...

    def restore(self, state: Mapping[str, Any], groups: Several[Group] = ()) -> None:
        """`groups` are those that `waiting` gave. Raises RequestError when one that waited is not among them."""
        ...


def ignored(held: bool) -> None:
    """Nobody asked to be told."""


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """What a rollout works with; every callable is bound and ready.

    generate    one attempt to a trajectory; failures come back as trajectories of status FAILED or ABORTED
    score       a group with rewards on its trajectories; failed rewards come back as a RunError that names task,
                plugin and cause
    buffer      where finished groups go
    pace        how many attempts may be in flight, and when the next group may be started
    hopeless    `Foresees.hopeless` of the phase's policy; None: nothing is cancelled early
    held_back   is told whenever that changes: True while no group may be started, because none is granted or the buffer
                is full
    """

    data: Data
    buffer: Buffer
    generate: Callable[[Attempt], Coroutine[Any, Any, Trajectory]]
    score: Callable[[Group], Coroutine[Any, Any, Group]]
    sampling: Sampling
    group_size: int
    seed: int
    clock: Clock
    events: EventSink
    pace: Pace = field(default_factory=Pace)
    hopeless: Callable[[Group, int], str] | None = None
    held_back: Callable[[bool], None] = ignored


class Rollout(Protocol):
    """Owns the whole rollout phase: puts groups into the buffer, as many as it was granted.

    It runs beside the driver from `start` until `close`; an exception in it reaches the driver through the buffer's
    `get` or through `health`. Groups are numbered 0, 1, 2, ... as they are submitted, and each is put exactly once.
    What it may do beside: `Remakes`, `GivesUp`, `Repaces`.
    """

    async def start(self, context: RolloutContext) -> None: ...

    def grant(self, groups: int) -> None:
        """Allow that many more groups to be kept. A group that the buffer rejects is replaced by another. After the
        data ended, a grant asks it once more: a task may have come back."""
        ...

    async def drain(self) -> None:
        """Return when all that was granted was put, or cannot be: nothing is in flight then."""
        ...

    def state(self) -> Mapping[str, Any]:
        """With what was granted and not yet put, and the tasks of groups in flight: `restore` makes them again, under
        the same numbers."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None: ...
    async def close(self) -> None: ...


class Schedule(Protocol):
    """When groups may be started and when weights are published: the object that the driver asks. What it may do
    beside: move its settings by what is measured (`Adapts`)."""

    @property
    def group_size(self) -> int: ...

    @property
    def groups_per_step(self) -> int: ...

    @property
    def pace(self) -> Pace:
        """How the rollout fills its slots, and what a publication does to what is in flight."""
        ...

    def reach(self, step: int, taken: bool) -> int | None:
        """How many batches, from the run's first, may be under way or done: before batch `step` is taken from the
        buffer, or after (`taken`), while it is trained. None: as many as there will be."""
        ...

    def publishes(self, step: int) -> bool:
        """Whether weights are published after `step` batches."""
        ...


class Matcher(Protocol):
    """Decides whether a message that a harness replayed is the one that a session stored."""

    def matches(self, stored: Message, replayed: Message) -> bool: ...
