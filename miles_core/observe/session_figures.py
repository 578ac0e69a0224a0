"""What a report shows of a run's sessions: turns, calls that were refused, and what the prefix caches spared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from miles_core.observe.charts import Curve

Record = Mapping[str, Any]
Figure = tuple[str, str, list[Curve]]

_CACHED = re.compile(r"engine/(?:(?P<engine>[^/]+)/)?prefix_cached")
_REFUSED = "session/refused/"
_PALETTE = 5


def session_figures(metrics: Sequence[Record]) -> list[Figure]:
    """Title, note and curves of each figure; curves without a point where a run has no such metric."""
    refused = [(record, _refused(record)) for record in metrics if "session/turns" in record]
    sessions = [
        _curve(metrics, "session/turns", "turns", 1),
        _curve(metrics, "session/forks", "forks", 2),
        _curve(metrics, "session/retries", "asked again", 3),
        Curve("refused or failed calls", tuple((_x(record), count) for record, count in refused), colour=4),
    ]
    names = sorted({name for record in metrics for name in record if _CACHED.fullmatch(name)}, key=_whole_first)
    cached = [_curve(metrics, name, _engine(name), at % _PALETTE + 1) for at, name in enumerate(names)]
    lost = [
        _curve(metrics, "engine/moved_sessions", "sessions moved", 4),
        _curve(metrics, "engine/lost_prefix_tokens", "tokens of prefix computed anew", 5),
    ]
    return [
        ("Sessions", "turns of a step, and what went wrong", sessions),
        ("Prefix cache", "fraction of the prompt tokens of a step that were not computed again", cached),
        ("Lost engines", "what dead engines cost, in the steps in which they died", lost),
    ]


def refused_calls(metrics: Sequence[Record]) -> dict[str, int]:
    """Calls that were refused or failed in the whole run, by code, the most frequent first."""
    found: dict[str, int] = {}
    for record in metrics:
        for name, count in record.items():
            if name.startswith(_REFUSED):
                code = name.removeprefix(_REFUSED)
                found[code] = found.get(code, 0) + int(count)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _refused(record: Record) -> float:
    return float(sum(count for name, count in record.items() if name.startswith(_REFUSED)))


def _whole_first(name: str) -> tuple[bool, str]:
    return name.count("/") > 1, name


def _engine(name: str) -> str:
    found = _CACHED.fullmatch(name)
    return (found and found["engine"]) or "all engines"


def _curve(metrics: Sequence[Record], key: str, label: str, colour: int) -> Curve:
    return Curve(label, tuple((_x(record), float(record[key])) for record in metrics if key in record), colour=colour)


def _x(record: Record) -> float:
    """As other curves: the number of batches trained."""
    return float(record["step"]) + 1
