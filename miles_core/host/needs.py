"""How each requirement of a distribution stands here, for listings; read from metadata alone.

Most requirements are a name and plain versions (`miles-core>=0.1,<0.2`). Those are compared here, since listings ask
for all of them at every start; anything else is `packaging`'s work, which is imported only then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from miles_core.host.metadata import normalise

_PLAIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*\(?((?:\s*(?:>=|<=|==|!=|<|>)\s*\d+(?:\.\d+)*\s*,?)*)\)?\s*$")
_CLAUSE = re.compile(r"(>=|<=|==|!=|<|>)\s*(\d+(?:\.\d+)*)")
_EXTRA = re.compile(r";.*\bextra\b")
_RELEASE = re.compile(r"\d+(?:\.\d+)*$")


class RequirementState(NamedTuple):
    """One requirement as it stands here: `installed` is None when the distribution is missing, "" when its version
    cannot be told; `ok` whether it is met; `fault` why not, for people."""

    requirement: str
    name: str
    installed: str | None
    ok: bool
    fault: str = ""


def check_requirements(requires: Iterable[str], versions: Mapping[str, str]) -> tuple[RequirementState, ...]:
    """The `Requires-Dist` lines that apply here, against the installed `versions` by normalised name. Those of extras
    are left out: nobody knows whether they were asked for."""
    states = (check_requirement(line, versions) for line in requires if not _EXTRA.search(line))
    return tuple(state for state in states if state is not None)


def check_requirement(line: str, versions: Mapping[str, str]) -> RequirementState | None:
    """One line; None when its marker says that it does not apply on this machine."""
    plain = _PLAIN.match(line)
    if plain is None:
        return _by_packaging(line, versions)
    name = normalise(plain.group(1))
    installed = versions.get(name)
    if installed is None:
        return RequirementState(line, name, None, False, f"{name} is not installed")
    clauses = _CLAUSE.findall(plain.group(2))
    if not clauses or not installed:
        return RequirementState(line, name, installed, True)
    here = installed.partition("+")[0]  # a build's label (2.1+cpu) does not count against plain versions
    if not _RELEASE.match(here):
        return _by_packaging(line, versions)
    if all(_holds(operator, _release(here), _release(version)) for operator, version in clauses):
        return RequirementState(line, name, installed, True)
    return _unmet(line, name, installed)


def _unmet(line: str, name: str, installed: str) -> RequirementState:
    asked = line.partition(";")[0].strip()
    return RequirementState(line, name, installed, False, f"needs {asked}, {installed} is here")


def _release(version: str) -> tuple[int, ...]:
    """1.2.0 is 1.2."""
    numbers = [int(part) for part in version.split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _holds(operator: str, here: tuple[int, ...], asked: tuple[int, ...]) -> bool:
    answers = {
        ">=": here >= asked,
        "<=": here <= asked,
        "==": here == asked,
        "!=": here != asked,
        ">": here > asked,
        "<": here < asked,
    }
    return answers[operator]


def _by_packaging(line: str, versions: Mapping[str, str]) -> RequirementState | None:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion

    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        text = " ".join(str(error).split())
        return RequirementState(line, "", None, False, f"the requirement {line!r} cannot be read: {text}")
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return None
    name = normalise(requirement.name)
    installed = versions.get(name)
    if installed is None:
        return RequirementState(line, name, None, False, f"{name} is not installed")
    try:
        if not installed or requirement.specifier.contains(installed, prereleases=True):
            return RequirementState(line, name, installed, True)
    except InvalidVersion:
        return RequirementState(line, name, installed, False, f"{name} has the unreadable version {installed!r}")
    return _unmet(line, name, installed)
