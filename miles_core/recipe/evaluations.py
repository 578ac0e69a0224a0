"""Where each evaluation of a recipe runs, what it may hold up, and for how long: for the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from miles_core.contracts.capabilities import EXPORTED_WEIGHTS, OWN_ENGINES
from miles_core.contracts.options import TIME_LIMIT
from miles_core.contracts.pace import Refill
from miles_core.recipe.choose import Chosen
from miles_core.recipe.faults import Faults
from miles_core.recipe.phases import PhaseChoice


def evaluation_card(phases: Sequence[PhaseChoice]) -> tuple[tuple[str, str], ...]:
    """(which evaluation, where and within which limits), each once."""
    return tuple(dict.fromkeys(line for phase in phases for line in _lines(phase)))


def _lines(phase: PhaseChoice) -> Iterator[tuple[str, str]]:
    for each in phase.many.get("evaluate", ()):
        limit = f"given up after {getattr(each.options, 'time_limit', TIME_LIMIT):g} s"
        yield f"evaluation {name_of(each)}: runs", f"{_where(each, phase)}; {limit}"


def check_evaluations(phase: PhaseChoice, faults: Faults) -> None:
    """Scores are filed under names: each stands for one evaluation of the phase."""
    first: dict[str, Chosen] = {}
    for each in phase.many.get("evaluate", ()):
        name = name_of(each)
        if first.setdefault(name, each) is not each:
            faults.add(each.parts, f"is the second evaluation named {name!r}", "give it another `name:`")


def name_of(each: Chosen) -> str:
    return str(getattr(each.options, "name", "") or each.ref.name)


def _where(each: Chosen, phase: PhaseChoice) -> str:
    if OWN_ENGINES in each.capabilities:
        count = getattr(each.options, "replicas", 1)
        engines = "an engine of its own" if count == 1 else f"{count} engines of its own"
        return f"on {engines}, while training goes on; {_queue(each)}"
    if EXPORTED_WEIGHTS in each.capabilities:
        return f"over exported weights, while training goes on; {_queue(each)}"
    if not _beside(each, phase):
        return "on the rollout's engines; training waits"
    update = "is given up at" if getattr(each.options, "on_update", "") == "skip" else "holds up"
    return f"on the rollout's engines, beside the rollout; {update} the next update"


def _beside(each: Chosen, phase: PhaseChoice) -> bool:
    """As the loop will decide (`loop.due`)."""
    wanted = getattr(each.options, "beside", None)
    refill = getattr(phase.one["schedule"].options, "refill", Refill.ROUND) if "schedule" in phase.one else Refill.ROUND
    return refill != Refill.ROUND if wanted is None else bool(wanted)


def _queue(each: Chosen) -> str:
    return f"{getattr(each.options, 'queue', 1)} may wait"
