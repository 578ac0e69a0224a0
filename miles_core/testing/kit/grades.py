"""From findings to a grade, and to the evidence of each component."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miles_core.host.scan import InstalledPlugin
from miles_core.testing.kit.check import EVERY_KIND, CheckResult, Finding, Grade

GRADES = (Grade.BRONZE, Grade.SILVER, Grade.GOLD)
FULLY, PROXY, VERIFIED, UNVERIFIED = "fully-gated", "proxy-gated", "verified", "not-verified"


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that the kit found about one plugin. `components` are `kind.name`; `verified` are those that a
    shipped record of a run names; `stand_ins` those whose example stands in for what cannot be had, so that what
    was tried on it is no evidence."""

    plugin: InstalledPlugin
    components: tuple[str, ...]
    findings: tuple[Finding, ...]
    verified: frozenset[str] = frozenset()
    stand_ins: frozenset[str] = frozenset()

    @property
    def grade(self) -> Grade | None:
        """The highest grade of which, and of all lower ones, every check passed or says nothing about the plugin."""
        reached = None
        for grade in GRADES:
            if self.missing(grade):
                break
            reached = grade
        return reached

    @property
    def next_grade(self) -> Grade | None:
        """The lowest grade that is not reached; None at gold."""
        return next((grade for grade in GRADES if self.missing(grade)), None)

    def missing(self, grade: Grade) -> tuple[Finding, ...]:
        """What stands against this very grade: failures, and what could not be tried here."""
        against = (CheckResult.FAILED, CheckResult.SKIPPED)
        return tuple(f for f in self.findings if f.check.grade is grade and f.result in against)

    @property
    def failures(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.result is CheckResult.FAILED)

    def evidence(self) -> dict[str, str]:
        """`kind.name` -> how well it is proven, from what ran here."""
        of_component = defaultdict(list)
        for finding in self.findings:
            of_component[finding.component].append(finding)
        counted = {name: [] if name in self.stand_ins else of_component[name] for name in self.components}
        return {name: _evidence(counted[name], name in self.verified) for name in sorted(self.components)}

    def reaches(self, level: Grade) -> bool:
        return self.grade is not None and GRADES.index(self.grade) >= GRADES.index(level)

    def to_json(self) -> dict[str, Any]:
        return {
            "plugin": self.plugin.name,
            "distribution": self.plugin.distribution,
            "version": self.plugin.version,
            "grade": self.grade.value if self.grade else None,
            "evidence": self.evidence(),
            "checks": [finding_facts(finding) for finding in self.findings],
        }


def finding_facts(finding: Finding) -> dict[str, Any]:
    """One finding as JSON data."""
    return {
        "id": finding.check.id,
        "component": finding.component,
        "grade": finding.check.grade.value,
        "promise": finding.check.promise,
        "result": finding.result.value,
        "detail": finding.detail,
        "mend": finding.mend,
        "seconds": round(finding.seconds, 3),
    }


def count(findings: Iterable[Finding]) -> Mapping[CheckResult, int]:
    """How many of each result."""
    counted = dict.fromkeys(CheckResult, 0)
    for finding in findings:
        counted[finding.result] += 1
    return counted


def _evidence(findings: Sequence[Finding], verified: bool) -> str:
    """Behaviour is what the gold checks of a component's own kind try; none of them, and nothing is proven."""
    behaviour = [f for f in findings if f.check.grade is Grade.GOLD and f.check.kind not in ("", EVERY_KIND)]
    tried = [f for f in behaviour if f.result is not CheckResult.INAPPLICABLE]
    if tried and all(f.result is CheckResult.PASSED for f in tried):
        return PROXY if any(f.check.reduced for f in tried) else FULLY
    return VERIFIED if verified else UNVERIFIED
