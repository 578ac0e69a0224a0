"""What a person sees of a run while it goes: a live screen in a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TextIO

from miles_core.observe.bottleneck import bottleneck, length_bias
from miles_core.observe.faults import WORDS
from miles_core.observe.standing import Standing

View = Literal["live", "plain", "none"]


class _Shows(Protocol):
    def show(self, name: str, facts: Mapping[str, Any], standing: Standing) -> None: ...
    def close(self) -> None: ...


class Watches(Protocol):
    """Whoever is told what happens in a run: a view, or what sends it to one elsewhere."""

    def on(self, name: str, facts: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class LiveView:
    """Shows the events of one run on `out` (default: standard error).

    `view` is `live` (a screen that is redrawn; plain lines where `out` is not a terminal), `plain` (one line for each
    step and event) or `none`.
    """

    def __init__(self, plan_name: str, steps: int, *, out: TextIO | None = None, view: View = "live") -> None:
        out = sys.stderr if out is None else out
        self._standing = Standing(steps)
        self._shows: _Shows | None = None
        if view == "live" and out.isatty():
            from miles_core.observe.screen import Screen  # rich takes a tenth of a second to import

            self._shows = Screen(plan_name, out, self._standing)
        elif view != "none":
            self._shows = PlainLines(out)

    def on(self, name: str, facts: Mapping[str, Any]) -> None:
        """Take in one event: the name of an event hook without its prefix (its facts are the hook's arguments), or
        `phase_started(phase)` or `progress(what, done, total)`. `evaluated` may also give `low` and `high`."""
        self._standing.take(name, facts)
        if self._shows is not None:
            self._shows.show(name, facts, self._standing)

    def close(self) -> None:
        """Leave the terminal as it was. Idempotent."""
        if self._shows is not None:
            self._shows.close()
            self._shows = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PlainLines:
    """One line for each step and each event worth a line."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, name: str, facts: Mapping[str, Any], standing: Standing) -> None:
        line = _line(name, facts, standing)
        if line:
            print(line, file=self._out, flush=True)

    def close(self) -> None:
        self._out.flush()


def _line(name: str, facts: Mapping[str, Any], standing: Standing) -> str:
    if name == "step_finished":
        return " · ".join([f"step {standing.done}/{standing.steps}", *step_facts(standing)])
    if name == "evaluated":
        return f"evaluation {standing.evaluations[str(facts['name'])][1]}"
    if name == "checkpoint_saved":
        return f"checkpoint after step {facts['step']} in {facts['folder']}"
    if name == "run_started":
        return f"run in {facts['folder']}: starting its processes"
    if name == "workers_ready":
        return f"engines and trainer ready after {facts['seconds']:.1f} s"
    if name == "schedule_adapted":
        return f"schedule after step {facts['step']}: {facts['what']}"
    if name == "phase_started":
        return f"phase {standing.phase}"
    if name in WORDS:
        return standing.trouble
    return ""


def step_facts(standing: Standing) -> list[str]:
    """The last step in words: reward, loss, speed, mismatch, times, bottleneck; each only where it was measured."""
    metrics, facts = standing.metrics, []
    if "reward/mean" in metrics:
        spread = f" ± {metrics['reward/std']:.3f}" if "reward/std" in metrics else ""
        facts.append(f"reward {metrics['reward/mean']:.3f}{spread}")
    for title, key, form in (
        ("loss", "loss/total", "{:.4g}"),
        ("mismatch", "correction/mismatch", "{:.2g}"),
        ("tokens/s", "time/tokens_per_second", "{:.0f}"),
    ):
        if key in metrics:
            facts.append(f"{title} {form.format(metrics[key])}")
    if "time/step" in metrics:
        split = ", ".join(f"{part} {share:.0%}" for part, share in standing.shares())
        facts.append(f"{metrics['time/step']:.1f} s" + (f" ({split})" if split else ""))
    facts += filter(None, (bottleneck(metrics), length_bias([metrics])))
    return facts
