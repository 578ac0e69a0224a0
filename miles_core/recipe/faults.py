"""All that is wrong with a recipe, collected until the end, each fault at its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from miles_core.errors import MilesError, PluginError, Problem, RequestError
from miles_core.recipe.document import Document
from miles_core.recipe.yaml_text import Parts, dotted


@dataclass(frozen=True, slots=True)
class _Fault:
    order: tuple[int, int, int]
    problem: Problem
    broken: bool


class Faults:
    """Collects faults of one document. A fault of a plugin (`broken`) ends the command with 3 unless the request
    itself is wrong too, which ends it with 2."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._faults: list[_Fault] = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    def add(self, parts: Parts, what: str, mend: str = "", *, broken: bool = False, say_path: bool = True) -> None:
        """A fault of the value at `parts`; the sentence begins with its dotted path unless it names it already."""
        path = dotted(parts)
        text = f"{path}: {what}" if say_path and path and not what.startswith(path) else what
        place = self.document.place(parts)
        problem = Problem(text, place.text, mend)
        if all(problem != fault.problem for fault in self._faults):
            order = (0 if place.line else 1, place.line, place.column)
            self._faults.append(_Fault(order, problem, broken))

    def add_error(self, parts: Parts, error: MilesError) -> None:
        """The problems of an error that came up while the value at `parts` was looked at."""
        broken = isinstance(error, PluginError)
        for problem in error.problems:
            what = f"{problem.what} ({problem.where})" if problem.where else problem.what
            self.add(parts, what, problem.mend, broken=broken)

    def add_plugin(self, problems: Iterable[Problem]) -> None:
        """Problems of plugins, which stand where the plugin is, not in the recipe."""
        known = {fault.problem for fault in self._faults}
        self._faults += [_Fault((2, 0, 0), problem, True) for problem in problems if problem not in known]

    def add_elsewhere(self, problem: Problem, *, broken: bool) -> None:
        """A problem that another source than the recipe has, and that says itself where."""
        if all(problem != fault.problem for fault in self._faults):
            self._faults.append(_Fault((2, 0, 0), problem, broken))

    def raise_all(self) -> None:
        """Raise one error with every fault in the order of the file; nothing when there is none."""
        if not self._faults:
            return
        ordered = sorted(self._faults, key=lambda fault: fault.order)
        problems = [fault.problem for fault in ordered]
        raise (PluginError if all(fault.broken for fault in ordered) else RequestError)(problems)
