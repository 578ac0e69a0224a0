"""How long attempts are: from a distribution, or drawn from what was recorded.

lognormal:mu=6,sigma=1.5,prompt=512    natural log of tokens, normally distributed
constant:tokens=256,prompt=64
a run, or its trajectories (docs/formats.md)
a CSV or Parquet file with the columns `prompt` and `output`; `reward`, `status` and `group` if it has them
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from miles_core.errors import Problem, RequestError
from miles_core.types.trajectory import Status

EXAMPLES = "lognormal:mu=6,sigma=1.5,prompt=512, constant:tokens=256, a run, or a CSV or Parquet file"
LOST = (Status.ABORTED, Status.FAILED)


@dataclass(frozen=True, slots=True)
class Work:
    """An attempt before it is made. `reward` None: nobody knows."""

    prompt: int
    tokens: int
    reward: float | None = None
    status: Status = Status.COMPLETED


class Lengths(Protocol):
    """Where attempts come from. What is drawn depends on the seed and the group alone, never on when it is asked."""

    @property
    def name(self) -> str: ...

    def draw(self, task: random.Random, group: random.Random, size: int) -> list[Work]:
        """A group's attempts; `task` is the same whenever its task comes back."""
        ...


@dataclass(frozen=True, slots=True)
class Parametric:
    """Each attempt by itself, from one distribution."""

    name: str
    prompt: int
    sample: Callable[[random.Random], float]

    def draw(self, task: random.Random, group: random.Random, size: int) -> list[Work]:
        return [Work(self.prompt, max(1, round(self.sample(group)))) for _ in range(size)]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded group for each task, and for each attempt one of its attempts: what is hard or long for a task stays
    together. No attempt is drawn twice while the group has others."""

    name: str
    groups: Several[Several[Work]]

    def draw(self, task: random.Random, group: random.Random, size: int) -> list[Work]:
        members = self.groups[task.randrange(len(self.groups))]
        if size <= len(members):
            return group.sample(members, size)
        return [members[group.randrange(len(members))] for _ in range(size)]


def read_lengths(text: str, runs_dir: Path) -> Lengths:
    """Raises RequestError for what is none of the forms, with every fault of it."""
    kind, colon, rest = text.partition(":")
    if colon and kind in _PARAMETERS:
        return _parametric(text, kind, rest)
    from miles_core.simulate.recorded import read_recorded  # pyarrow

    return read_recorded(text, runs_dir)


def usual_lengths(longest: int) -> Lengths:
    """What is assumed when nothing is said: log-normal, with a quarter of the limit in the middle."""
    return read_lengths(f"lognormal:mu={math.log(max(longest / 4, 1)):.4g},sigma=1", Path())


MOST_TOKENS = 10**9

_PARAMETERS: Mapping[str, Mapping[str, float | None]] = {
    "lognormal": {"mu": None, "sigma": None, "prompt": 0.0},
    "constant": {"tokens": None, "prompt": 0.0},
}
"""Parameters with their defaults; None: must be given."""

_RANGES = {"mu": (-20.0, 20.0), "sigma": (0.0, 10.0), "prompt": (0.0, MOST_TOKENS), "tokens": (0.0, MOST_TOKENS)}
"""Both ends are accepted. The largest that a log-normal draw can become is far from what a float holds."""


def _parametric(text: str, kind: str, rest: str) -> Parametric:
    values = dict(_PARAMETERS[kind])
    problems = []
    for part in filter(None, rest.split(",")):
        key, _, number = part.partition("=")
        if key not in values:
            problems.append(f"{key!r} is no parameter of {kind}, which takes {', '.join(values)}")
            continue
        try:
            values[key] = float(number)
        except ValueError:
            problems.append(f"{key} is {number!r}, expected a number")
            values[key] = 1.0
    problems += [f"{kind} needs {key}" for key, value in values.items() if value is None]
    given = {key: value for key, value in values.items() if value is not None}
    problems += [
        f"{key} is {value:g}, expected a number from {_RANGES[key][0]:g} to {_RANGES[key][1]:g}"
        for key, value in given.items()
        if not _RANGES[key][0] <= value <= _RANGES[key][1]
    ]
    if problems:
        raise RequestError([Problem(each, f"--lengths {text}", f"such as {EXAMPLES}") for each in problems])
    prompt = int(given["prompt"])
    if kind == "constant":
        return Parametric(text, prompt, lambda _: given["tokens"])
    return Parametric(text, prompt, lambda noise: noise.lognormvariate(given["mu"], given["sigma"]))
