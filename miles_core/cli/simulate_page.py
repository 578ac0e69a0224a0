"""`miles simulate`: read what is asked, simulate, and say what came of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from miles_core.cli.output import remark, say, say_json, table
from miles_core.errors import MilesError, PluginError, Problem, RequestError
from miles_core.host.request import read_request
from miles_core.recipe.catalog import find_recipe
from miles_core.recipe.plan import load_plan
from miles_core.recipe.resolved import PhasePlan, Plan
from miles_core.simulate.lengths import Lengths, read_lengths
from miles_core.simulate.measured import measure
from miles_core.simulate.service import Service, read_service
from miles_core.simulate.simulate import Question, phase_of, simulate

Result = TypeVar("Result")
_SECONDS_BETWEEN_REMARKS = 2.0


@dataclass(frozen=True, slots=True)
class Wish:
    """The options, as they were written."""

    engines: int | None
    trajectories: int | None
    lengths: str | None
    like: str | None
    assume: tuple[str, ...]
    phase: str | None
    seed: int | None


def simulate_recipe(
    recipe: str,
    settings: Sequence[str],
    wish: Wish,
    *,
    runs_dir: Path,
    plugins: Sequence[str],
    no_plugins: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Raises MilesError with every fault of recipe and options together."""
    faults = _Collected()
    plan = faults.of(lambda: _plan(recipe, settings, plugins, no_plugins))
    phase = faults.of(lambda: phase_of(plan, wish.phase)) if plan is not None else None
    question = _question(wish, plan, runs_dir, faults)
    if plan is None or phase is None:
        raise AssertionError("a fault was collected")
    result = _go(plan, phase, question, quiet)
    if as_json:
        say_json(result)
    else:
        _show(result)
    return 0


def _plan(recipe: str, settings: Sequence[str], plugins: Sequence[str], no_plugins: bool) -> Plan:
    request = read_request(plugins, no_plugins=no_plugins, environ=os.environ, folder=Path())
    return load_plan(find_recipe(recipe), settings, request)[0]


class _Collected:
    """Faults of several readings, raised as one."""

    def __init__(self) -> None:
        self._errors: list[MilesError] = []

    def of(self, read: Callable[[], Result]) -> Result | None:
        try:
            return read()
        except (RequestError, PluginError) as error:
            self._errors.append(error)
            return None

    def add(self, what: str, where: str) -> None:
        self._errors.append(RequestError(what, where=where))

    def raise_all(self) -> None:
        if not self._errors:
            return
        broken = all(isinstance(error, PluginError) for error in self._errors)
        problems: list[Problem] = [problem for error in self._errors for problem in error.problems]
        raise (PluginError if broken else RequestError)(problems)


def _question(wish: Wish, plan: Plan | None, runs_dir: Path, faults: _Collected) -> Question:
    """What the options ask, or all faults."""
    for name, value in (("--engines", wish.engines), ("--trajectories", wish.trajectories)):
        if value is not None and value < 1:
            faults.add(f"is {value}, expected 1 or more", name)
    like = wish.like
    measured = faults.of(lambda: measure(like, runs_dir)) if like is not None else {}
    service = faults.of(lambda: read_service(wish.assume, measured or {}))
    source = wish.lengths if wish.lengths is not None else (like if measured else None)
    lengths: Lengths | None = faults.of(lambda: read_lengths(source, runs_dir)) if source is not None else None
    faults.raise_all()
    if plan is None:
        raise AssertionError("a fault was collected")
    return Question(
        engines=wish.engines or plan.replicas or 1,
        trajectories=wish.trajectories,
        lengths=lengths,
        service=service or Service(),
        seed=plan.seed if wish.seed is None else wish.seed,
    )


def _go(plan: Plan, phase: PhasePlan, question: Question, quiet: bool) -> dict[str, Any]:
    began = last = time.monotonic()

    def progress(step: int, steps: int, trajectories: int, seconds: float) -> None:
        nonlocal last
        now = time.monotonic()
        if not quiet and now - last >= _SECONDS_BETWEEN_REMARKS:
            last = now
            left = (now - began) * (steps - step) / max(step, 1)
            done = f"step {step} of {steps}, {trajectories} trajectories"
            remark(f"{done}, {_duration(seconds)} simulated, {left:.0f} s left")

    result = {"recipe": plan.name, **simulate(plan, phase, question, progress)}
    if not quiet:
        each = 1e6 * (time.monotonic() - began) / max(sum(result["trajectories"].values()), 1)
        remark(f"simulated in {time.monotonic() - began:.1f} s, {each:.0f} us a trajectory")
    return result


def _show(result: Mapping[str, Any]) -> None:
    batch, steady = result["batch"], result["steady"]
    say(
        f"{result['recipe']}, phase {result['phase']}: schedule {result['schedule']}, {result['engines']} engines, "
        f"at most {result['in_flight_limit']} trajectories in flight, lengths {result['drawn_from']}"
    )
    size = batch["groups_per_step"] * batch["group_size"]
    say(f"{result['steps']} steps of {size} trajectories in {_duration(result['seconds'])}")
    if steady:
        say(f"in the steady part of it, {_duration(steady['seconds'])}:")
        say(f"  {result['bottleneck']}")
        say(f"  trainer idle               {steady['trainer_idle']:7.1%}  waits for groups")
        say(f"  engine idle                {steady['engine_idle']:7.1%}  of what the schedule lets be in flight")
        say(f"  held back                  {steady['held_back']:7.1%}  no group may start: none is granted, or no room")
        say(f"  engine gap                 {steady['engine_gap']:7.1%}  engine idle in the other time")
        say(f"  engines without a request  {steady['engines_without_requests']:7.1%}")
        say(f"  slots without a request    {steady['slots_without_requests']:7.1%}  of all slots of all engines")
        say(
            f"  {steady['tokens_per_second']:.4g} tokens and {steady['trajectories_per_second']:.4g} trajectories "
            "trained a second"
        )
    ages = result["staleness"]
    if ages:
        say(f"trained groups were {ages['mean']:.2f} versions old on average, {ages['max']} at most")
    reasons = ", ".join(f"{count} {reason}" for reason, count in result["discarded_groups"].items())
    say(f"discarded groups: {reasons or 'none'}")
    _show_lengths(result)
    if result["length_bias"]:
        say(result["length_bias"])
    for each in result.get("adapted", ()):
        say(f"after step {each['step']}: {each['what']}")
    _advise(result)


def _show_lengths(result: Mapping[str, Any]) -> None:
    rows = []
    for kind, count in result["trajectories"].items():
        tokens = result["lengths"].get(kind, {})
        told = [f"{tokens[name]:.4g}" if tokens else "" for name in ("mean", "p50", "p90", "p99", "max")]
        rows.append((kind, str(count), *told))
    table(("trajectories", "", "tokens: mean", "p50", "p90", "p99", "max"), rows)


def _advise(result: Mapping[str, Any]) -> None:
    """Where the recipe keeps fewer trajectories in flight than the engines could take, no schedule can fill them."""
    slots = result["engines"] * result["assumed"]["slots"]
    if result["engines"] > 1 and slots > result["in_flight_limit"]:
        say(
            f"the engines have {slots} slots, the schedule lets {result['in_flight_limit']} trajectories be in flight: "
            "choose a larger batch or in_flight, or fewer engines"
        )


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
