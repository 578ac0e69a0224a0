"""Curves as inline SVG: no script, colours from the page's style sheet, a tooltip on every point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

WIDTH, HEIGHT = 440, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 24
_MOST_POINTS = 200


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x, y) with x rising. `spread` gives (low, high) for each point, or nothing; `bars` draws it as error bars
    rather than as a band. `colour` is a number of the style sheet's palette; `along` says what x counts."""

    label: str
    points: tuple[Point, ...]
    spread: tuple[tuple[float, float], ...] = ()
    bars: bool = False
    colour: int = 1
    along: str = "step"

    def thinned(self) -> tuple[Curve, int]:
        """A curve of at most a few hundred points, each the mean of that many neighbours."""
        size = -(-len(self.points) // _MOST_POINTS)
        if size <= 1:
            return self, 1
        cuts = range(0, len(self.points), size)
        points = tuple(_mean_pair(self.points[cut : cut + size]) for cut in cuts)
        spread = tuple(_mean_pair(self.spread[cut : cut + size]) for cut in cuts) if self.spread else ()
        return Curve(self.label, points, spread, self.bars, self.colour, self.along), size


def line_chart(title: str, note: str, curves: Sequence[Curve], *, unit: str = "") -> str:
    """One figure with its title, its last values and a legend; an empty string when no curve has a point."""
    thin = [curve.thinned() for curve in curves if curve.points]
    if not thin:
        return ""
    drawn = [curve for curve, _ in thin]
    if (size := max(size for _, size in thin)) > 1:
        note = f"{note}; each point is the mean of {size} steps"
    frame = _Frame.around(drawn)
    body = "".join([frame.axes(), *(_curve_svg(curve, frame) for curve in drawn)])
    return _figure(title, note, body, [(c.label, c.colour, f"{_short(c.points[-1][1])}{unit}") for c in drawn])


def share_chart(title: str, note: str, parts: Sequence[Curve], *, unit: str = "") -> str:
    """Parts that add up, stacked; every part has the same x values. Empty when there is nothing to stack."""
    parts = [part.thinned()[0] for part in parts if any(y for _, y in part.points)]
    if not parts:
        return ""
    floor = [0.0] * len(parts[0].points)
    layers = []
    for part in parts:
        top = [low + y for low, (_, y) in zip(floor, part.points, strict=True)]
        layers.append((part, list(floor), list(top)))
        floor = top
    peak = Curve("", tuple((x, y) for (x, _), y in zip(parts[0].points, floor, strict=True)))
    frame = _Frame.around([peak], zero=True)
    body = "".join([frame.axes(), *(_layer_svg(part, low, high, frame, unit) for part, low, high in layers)])
    return _figure(title, note, body, [(p.label, p.colour, f"{_short(p.points[-1][1])}{unit}") for p in parts])


@dataclass(frozen=True, slots=True)
class _Frame:
    """The plot's rectangle and the ranges that it shows."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    @classmethod
    def around(cls, curves: Sequence[Curve], *, zero: bool = False) -> _Frame:
        xs = [x for curve in curves for x, _ in curve.points]
        ys = [y for curve in curves for _, y in curve.points]
        ys += [end for curve in curves for ends in curve.spread for end in ends]
        low, high = min(ys, default=0.0), max(ys, default=1.0)
        if zero:
            low = min(low, 0.0)
        pad = (high - low) * 0.06 or abs(high) * 0.1 or 0.5
        x_low, x_high = min(xs), max(xs)
        return cls(x_low, x_high if x_high > x_low else x_low + 1, low if zero else low - pad, high + pad)

    def x(self, value: float) -> float:
        return _LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - (value - self.y_low) / (self.y_high - self.y_low) * (HEIGHT - _TOP - _BOTTOM)

    def axes(self) -> str:
        lines = []
        for tick in ticks(self.y_low, self.y_high, 4):
            y = self.y(tick)
            lines.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            lines.append(_tick(_LEFT - 6, y + 3.5, "end", _short(tick)))
        for tick in ticks(self.x_low, self.x_high, 6):
            if tick == int(tick):
                lines.append(_tick(self.x(tick), HEIGHT - 6, "middle", f"{tick:.0f}"))
        return "".join(lines)


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers within [low, high]: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def _tick(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _curve_svg(curve: Curve, frame: _Frame) -> str:
    path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in curve.points)
    parts = [f'<g class="c{curve.colour}">']
    if curve.spread and not curve.bars:
        both = list(zip(curve.points, curve.spread, strict=True))
        edge = [(x, low) for (x, _), (low, _) in both] + [(x, high) for (x, _), (_, high) in reversed(both)]
        corners = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in edge)
        parts.append(f'<polygon class="band" points="{corners}"/>')
    parts.append(f'<polyline class="line" points="{path}"/>')
    radius = 3 if len(curve.points) <= 60 else 1.5
    for index, (x, y) in enumerate(curve.points):
        tip = f"{curve.label}, {curve.along} {x:g}: {_short(y)}"
        if curve.spread:
            low_end, high_end = curve.spread[index]
            tip += f" [{_short(low_end)}, {_short(high_end)}]"
            if curve.bars:
                ends = f'y1="{frame.y(low_end):.1f}" y2="{frame.y(high_end):.1f}"'
                parts.append(f'<line class="bar" x1="{frame.x(x):.1f}" x2="{frame.x(x):.1f}" {ends}/>')
        dot = f'<circle class="dot" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="{radius}">'
        parts.append(f"{dot}<title>{escape(tip)}</title></circle>")
    return "".join([*parts, "</g>"])


def _layer_svg(part: Curve, low: Sequence[float], high: Sequence[float], frame: _Frame, unit: str) -> str:
    """One bar for each step: areas would suggest values between steps."""
    pitch = (WIDTH - _LEFT - _RIGHT) / max(len(low), 1)
    bars = []
    for index, (x, y) in enumerate(part.points):
        left, top = _LEFT + index * pitch, frame.y(high[index])
        size = f'width="{max(pitch - 2, 1):.1f}" height="{max(frame.y(low[index]) - top - 1, 0):.1f}"'
        tip = escape(f"{part.label}, step {x:g}: {_short(y)}{unit}")
        bars.append(f'<rect x="{left + 1:.1f}" y="{top:.1f}" {size}><title>{tip}</title></rect>')
    return f'<g class="stack c{part.colour}">{"".join(bars)}</g>'


def _figure(title: str, note: str, body: str, legend: Sequence[tuple[str, int, str]]) -> str:
    keys = "".join(
        f'<span class="key"><i class="c{colour}"></i>{escape(label)} <b>{escape(last)}</b></span>'
        for label, colour, last in legend
    )
    return (
        f'<figure><figcaption><h3>{escape(title)}</h3><p>{escape(note)}</p><div class="keys">{keys}</div></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{body}</svg></figure>'
    )


def _mean_pair(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return (sum(a for a, _ in pairs) / len(pairs), sum(b for _, b in pairs) / len(pairs))


def _short(value: float) -> str:
    """Four significant digits; an exponent only for very small and very large numbers."""
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        digits, power = f"{value:.2e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{value:.4g}"
