"""The live screen: a few lines at the bottom of the terminal that are redrawn twice a second."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from miles_core.observe.bottleneck import bottleneck, length_bias
from miles_core.observe.standing import TIMES, Standing

_SPARKS = "▁▂▃▄▅▆▇█"
_COLOURS = dict(zip(TIMES, ("white", "cyan", "magenta", "yellow", "green", "blue"), strict=True))
_WIDTH = 40


class Screen:
    """Draws a Standing. It is read anew at each redraw, so that showing an event only has to note it."""

    def __init__(self, name: str, out: TextIO, standing: Standing) -> None:
        self._name = name
        self._standing = standing
        self._start = time.monotonic()
        self._began_at: int | None = None
        self._live = Live(console=Console(file=out), get_renderable=self._draw, refresh_per_second=2)
        self._live.start()

    def show(self, name: str, facts: Mapping[str, Any], standing: Standing) -> None:
        if name == "step_finished" and self._began_at is None:
            self._began_at = standing.done - 1

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> RenderableType:
        """Never raises: it is called in a thread of its own, and when the run ends."""
        try:
            return self._drawn()
        except Exception as error:
            return Text(f"{self._name}: the live view failed: {type(error).__name__}: {error}", style="red")

    def _drawn(self) -> RenderableType:
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim", min_width=10)
        rows.add_column()
        for title, value in self._rows():
            rows.add_row(title, value)
        return Group(self._head(), rows)

    def _head(self) -> RenderableType:
        standing, elapsed = self._standing, time.monotonic() - self._start
        head = Table.grid(padding=(0, 1))
        done = standing.done - (self._began_at or 0)
        left = f", about {_clock(elapsed / done * (standing.steps - standing.done))} left" if done > 0 else ""
        head.add_row(
            Text(self._name, style="bold"),
            ProgressBar(total=max(standing.steps, 1), completed=standing.done, width=_WIDTH),
            Text(f"step {standing.done}/{standing.steps}"),
            Text(f"{_clock(elapsed)}{left}", style="dim"),
        )
        return head

    def _rows(self) -> list[tuple[str, RenderableType]]:
        standing, metrics = self._standing, self._standing.metrics
        rows: list[tuple[str, RenderableType]] = [("now", _now(standing))]
        if "reward/mean" in metrics:
            spread = f" ± {metrics['reward/std']:.3f}" if "reward/std" in metrics else ""
            trend = Text(sparkline(standing.rewards[-_WIDTH:]), style="green")
            rows.append(("reward", Text.assemble(f"{metrics['reward/mean']:.3f}{spread}  ", trend)))
        elif "loss/total" in metrics:
            rows.append(("loss", Text(f"{metrics['loss/total']:.4f}")))
        if "time/tokens_per_second" in metrics:
            length = f", mean length {metrics['rollout/length_mean']:.1f}" if "rollout/length_mean" in metrics else ""
            rows.append(("tokens/s", Text(f"{metrics['time/tokens_per_second']:.0f}{length}")))
        if shares := standing.shares():
            rows.append(("time", _split(shares)))
        if sentence := bottleneck(metrics):
            rows.append(("pace", Text(sentence)))
        if bias := length_bias([metrics]):
            rows.append(("lengths", Text(bias)))
        if "correction/mismatch" in metrics:
            rows.append(("mismatch", Text(f"{metrics['correction/mismatch']:.2e} mean |r - 1|")))
        for first, last in standing.evaluations.values():
            before = "" if first is last or first.score is None else f"  (before: {first.score:.3f})"
            rows.append(("evaluation", Text(f"{last}{before}")))
        return rows


def sparkline(values: Sequence[float]) -> str:
    """One character for each value, its height between the lowest and the highest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_SPARKS[round((value - low) * scale)] for value in values)


def _now(standing: Standing) -> Text:
    parts = [f"phase {standing.phase}"] if standing.phase else []
    if standing.version is not None:
        parts.append(f"weights version {standing.version}")
    if standing.activity is not None:
        what, done, total = standing.activity
        parts.append(f"{what} {done}/{total}")
    if standing.saved is not None:
        parts.append(f"checkpoint after step {standing.saved}")
    if standing.trouble:
        return Text(" · ".join([standing.trouble, *parts]), style="yellow")
    return Text(" · ".join(parts) or "starting")


def _split(shares: Sequence[tuple[str, float]]) -> Text:
    bar = Text()
    for part, share in shares:
        bar.append("█" * round(share * _WIDTH), style=_COLOURS[part])
    for part, share in shares:
        bar.append(f"  {part} {share:.0%}", style=_COLOURS[part])
    return bar


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
