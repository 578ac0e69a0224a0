"""What the checks of a family found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

VERIFIED, UNVERIFIED, FAILED = "verified", "not-verified", "failed"


@dataclass(slots=True)
class Tally:
    """passed, failed: how often a check held; refused, skipped: why how many said nothing; first: the first failure."""

    passed: int = 0
    failed: int = 0
    first: str = ""
    refused: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)

    def note(self, good: bool, why: Callable[[], str]) -> None:
        if good:
            self.passed += 1
        else:
            self.fail(why())

    def fail(self, why: str) -> None:
        self.failed += 1
        self.first = self.first or why

    def refuse(self, why: str) -> None:
        self.refused[why.splitlines()[0][:100] if why else "no reason given"] += 1

    def skip(self, why: str) -> None:
        self.skipped[why] += 1

    def facts(self) -> dict[str, Any]:
        counts = {"refused": dict(self.refused), "skipped": dict(self.skipped)}
        return {"passed": self.passed, "failed": self.failed, "first_failure": self.first, **counts}

    def __str__(self) -> str:
        if not self.passed and not self.failed:
            return "-"
        return f"{self.passed}" if not self.failed else f"{self.failed} of {self.passed + self.failed} FAIL"


@dataclass(frozen=True, slots=True)
class FamilyReport:
    """One component. `absent` says why its renderer cannot be had here ("": it can); `stand_in` that it was tried with
    a part that is not its own; `source` where it came from."""

    name: str
    component: str
    distribution: str
    version: str
    source: str
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    absent: str = ""
    stand_in: bool = False

    @property
    def good(self) -> bool:
        return not any(tally.failed for tally in self.tallies.values())

    @property
    def evidence(self) -> str:
        """`verified` needs everything: its own tokenizer, its own template, and no failure."""
        if not self.good:
            return FAILED
        return UNVERIFIED if self.why else VERIFIED

    @property
    def why(self) -> str:
        """Why it is not verified."""
        if self.absent:
            return self.absent
        if self.stand_in:
            return "stand-in tokenizer: the format was tried, not its tokens"
        parity = self.tallies.get("parity", Tally())
        return "" if parity.passed else "no template of the checkpoint here"

    @property
    def images(self) -> str:
        """The evidence for its images; "" when it takes none."""
        found = [self.tallies[name] for name in ("images", "image-parity") if name in self.tallies]
        if not found:
            return ""
        if any(tally.failed for tally in found):
            return FAILED
        own = not self.stand_in and not found[1].skipped and found[1].passed
        return VERIFIED if own else UNVERIFIED

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "component": self.component,
            "distribution": self.distribution,
            "version": self.version,
            "source": self.source,
            "evidence": self.evidence,
            "why": self.why,
            **({"images": self.images} if self.images else {}),
            "checks": {name: tally.facts() for name, tally in self.tallies.items()},
        }
