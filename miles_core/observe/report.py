"""`report.html`: one self-contained page on a run, that a browser opens without a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from miles_core.errors import RequestError
from miles_core.observe import jsonl
from miles_core.observe.atomic import replacing
from miles_core.observe.bottleneck import length_bias, over_all
from miles_core.observe.curves import Record, charts
from miles_core.observe.evaluation_figures import evaluations_of
from miles_core.observe.faults import count_faults, in_words
from miles_core.observe.folder import RunFolder
from miles_core.observe.session_figures import refused_calls
from miles_core.observe.statistics import Comparison, paired_difference
from miles_core.observe.tokens import notable, sample_html


def write_report(folder: RunFolder, *, decode: Callable[[int], str] | None) -> Path:
    """Write the report from what lies in the run's folder, and return its path.

    `decode` gives the text of one token id; without it the tokens are shown by their ids. What a run does not have
    (no evaluation, no trajectories yet) is left out. Raises RequestError when one of its files is damaged, RunError
    when the report cannot be written.
    """
    status = folder.read_status()
    metrics = jsonl.read(folder.metrics) if folder.metrics.exists() else []
    events = jsonl.read(folder.events) if folder.events.exists() else []
    samples = notable(folder.trajectories) if folder.trajectories.is_dir() else []
    name = str(status.get("name", folder.path.name))
    page = Template((files("miles_core.observe") / "report.html").read_text(encoding="utf-8"))
    html = page.substitute(
        title=escape(f"{name} · Miles"),
        name=escape(name),
        state=escape(str(status["state"])),
        about=escape(_about(folder, status)),
        cards="".join(_cards(status, metrics, events)),
        charts=charts(metrics, events) or "<p>No step has been trained yet.</p>",
        samples="".join(sample_html(sample, decode) for sample in samples) or "<p>No trajectories are stored.</p>",
        plugins=_plugins(folder.lock) + _listeners(status),
        recipe=escape(folder.recipe.read_text(encoding="utf-8") if folder.recipe.exists() else "(not stored)"),
        footer=escape(f"Written by miles-core from {folder.path.resolve()}"),
    )
    with replacing(folder.report) as draft:
        draft.write_text(html, encoding="utf-8")
    return folder.report


def comparisons(events: Sequence[Record]) -> dict[str, Comparison]:
    """For each evaluation, its first against its last finished one, paired by task."""
    found = {}
    for name, records in evaluations_of(events).items():
        scored = [record["scores"] for record in records if record.get("scores")]
        if len(scored) > 1 and scored[0].keys() & scored[-1].keys():
            found[name] = paired_difference(scored[0], scored[-1])
    return found


def _about(folder: RunFolder, status: Mapping[str, Any]) -> str:
    facts = [
        folder.path.name,
        f"started {status.get('started', 'at an unknown time')}",
        f"last written {status['updated']}",
    ]
    if status.get("error"):
        facts.append(f"ended by: {status['error']}")
    return " · ".join(facts)


def _cards(status: Mapping[str, Any], metrics: Sequence[Record], events: Sequence[Record]) -> list[str]:
    cards = [_comparison_card(name, found) for name, found in comparisons(events).items()]
    done, planned = status.get("steps_done", len(metrics)), status.get("steps", "?")
    cards.append(_card("Steps", f"{done} of {planned}", str(status["state"])))
    cards += _trend(metrics, "reward/mean", "Reward", "mean of the last step", "{:.3f}")
    cards += _trend(metrics, "loss/total", "Loss", "of the last step", "{:.4g}")
    cards += _trend(metrics, "correction/mismatch", "Mismatch", "mean |r − 1|, engine against trainer", "{:.2g}")
    cards += _trend(metrics, "time/tokens_per_second", "Tokens a second", "sampled and trained, last step", "{:,.0f}")
    cards += _sessions_card(metrics)
    if faults := in_words(count_faults(events)):
        cards.append(_card("Faults", faults, "what died and what was done about it is in events.jsonl"))
    cards += _pace(metrics, events)
    seconds = sum(float(record.get("time/step", 0.0)) for record in metrics)
    if seconds:
        cards.append(_card("Time", _duration(seconds), f"in {len(metrics)} steps"))
    return cards


def _sessions_card(metrics: Sequence[Record]) -> list[str]:
    """Of runs whose agents had sessions."""
    turns, opened = (sum(record.get(f"session/{what}", 0) for record in metrics) for what in ("turns", "opened"))
    if not opened:
        return []
    refused = ", ".join(f"{code} {count}" for code, count in refused_calls(metrics).items())
    return [_card("Sessions", f"{opened:.0f}", f"with {turns:.0f} turns; refused or failed calls: {refused or 'none'}")]


def _pace(metrics: Sequence[Record], events: Sequence[Record]) -> list[str]:
    """Who waited for whom, what dropping old groups did to lengths, and what an adaptive schedule changed."""
    cards = [_card("Pace", sentence, "over all steps but the first")] if (sentence := over_all(metrics)) else []
    if bias := length_bias(metrics):
        note = "the policies per-token and resample, or a higher max_staleness, throw less away"
        cards.append(_card("Lengths", bias, note, wide=True))
    changes = [event for event in events if event.get("event") == "schedule_adapted"]
    if changes:
        last = changes[-1]
        note = f"the last of {len(changes)} changes, after step {last['step']}; all are in events.jsonl"
        cards.append(_card("Schedule", str(last["what"]), note, wide=True))
    return cards


def _comparison_card(name: str, found: Comparison) -> str:
    change = f"{found.mean:+.3f}"
    if found.low is None or found.high is None:
        verdict, tone, interval = "one task says nothing of the noise", "", ""
    else:
        tone = ("good" if found.mean > 0 else "bad") if found.outside_noise else ""
        verdict = "outside the noise" if found.outside_noise else "inside the noise: no change is claimed"
        interval = f" [{found.low:+.3f}, {found.high:+.3f}]"
    value = f'{found.before_mean:.3f} → {found.after_mean:.3f} <span class="{tone}">{change}{interval}</span>'
    note = f"paired difference with its 95 % interval over {found.n} held-out tasks; {verdict}"
    return _card(f"Evaluation {name}, before and after", value, note, wide=True, html=True)


def _trend(metrics: Sequence[Record], key: str, title: str, note: str, form: str) -> list[str]:
    values = [float(record[key]) for record in metrics if key in record]
    if not values:
        return []
    first = f"; first {form.format(values[0])}" if len(values) > 1 else ""
    return [_card(title, form.format(values[-1]), note + first)]


def _card(title: str, value: str, note: str, *, wide: bool = False, html: bool = False) -> str:
    inner = value if html else escape(value)
    kind = "card wide" if wide else "card"
    return f'<div class="{kind}"><h3>{escape(title)}</h3><b>{inner}</b><p>{escape(note)}</p></div>'


def _plugins(lock: Path) -> str:
    if not lock.exists():
        return "<p>No plugins.lock is stored.</p>"
    try:
        plugins = json.loads(lock.read_text(encoding="utf-8"))["plugins"]
        rows = [[str(plugin[key]) for key in ("name", "distribution", "version", "record")] for plugin in plugins]
    except (ValueError, KeyError, TypeError) as error:
        raise RequestError(f"is not a lock of plugins: {error!r}", where=str(lock)) from error
    cells = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(distribution)}</td><td>{escape(version)}</td>"
        f'<td class="hash" title="{escape(record)}">{escape(record[:16])}</td></tr>'
        for name, distribution, version, record in rows
    )
    return (
        f"<table><tr><th>plugin</th><th>distribution</th><th>version</th><th>sha256 of RECORD</th></tr>{cells}</table>"
    )


def _listeners(status: Mapping[str, Any]) -> str:
    """What the event hooks of each plugin did: calls, failures, seconds."""
    uses = status.get("plugins") or []
    if not uses:
        return ""
    fields = ("name", "calls", "failures", "seconds", "last_error")
    cells = ("".join(f"<td>{escape(str(use.get(key, '')))}</td>" for key in fields) for use in uses)
    rows = "".join(f"<tr>{row}</tr>" for row in cells)
    names = ("event hooks of, or tracker", "calls", "failures", "seconds", "last error")
    head = f"<tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>"
    return f"<table>{head}{rows}</table>"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
