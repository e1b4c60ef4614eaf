"""Charts as SVG, readable on light and dark ground, and small enough to be kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Bar", "Curve", "Panel", "bar_chart", "line_chart", "ticks"]

_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f; }
  .title { font-weight: 600; font-size: 15px; }
  .quiet { fill: #57606a; }
  .grid { stroke: #d0d7de; stroke-width: 1; }
  .limit { fill: #afb8c1; stroke: #afb8c1; }
  .engine { fill: #0969da; stroke: #0969da; }
  .other { fill: #1a7f37; stroke: #1a7f37; }
  .peer { fill: #bf8700; stroke: #bf8700; }
  .line { fill: none; stroke-width: 2.5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .quiet { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    .limit { fill: #656c76; stroke: #656c76; }
    .engine { fill: #4493f8; stroke: #4493f8; }
    .other { fill: #3fb950; stroke: #3fb950; }
    .peer { fill: #d29922; stroke: #d29922; }
    .line { fill: none; }
  }
"""
_WIDTH = 860
_NAMES = 170
_BAR = 18
_STEP = 24
_VALUES = 120


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One contender in a panel; `kind` is limit, engine or peer."""

    name: str
    value: float
    spelled: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Bars that may be compared."""

    title: str
    bars: Sequence[Bar]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Points of one store; `kind` is engine or other."""

    name: str
    points: Sequence[tuple[float, float]]
    kind: str


def bar_chart(title: str, panels: Sequence[Panel]) -> str:
    """Draw panels of bars, one below the other, each on a scale of its own."""
    parts: list[str] = [_text(0, 18, title, "title")]
    top = 34
    for panel in panels:
        parts.append(_text(0, top + 16, panel.title, "quiet"))
        top += _STEP
        most = max((bar.value for bar in panel.bars), default=0.0) or 1.0
        for bar in panel.bars:
            length = max(1.0, bar.value / most * (_WIDTH - _NAMES - _VALUES))
            parts.append(_text(_NAMES - 8, top + 14, bar.name, anchor="end"))
            parts.append(
                f'<rect class="{bar.kind}" x="{_NAMES}" y="{top}" width="{length:.1f}" '
                f'height="{_BAR}" rx="2"/>'
            )
            parts.append(_text(_NAMES + length + 8, top + 14, bar.spelled))
            top += _STEP
        top += 10
    return _document(_WIDTH, top, title, parts)


def line_chart(title: str, *, x_title: str, y_title: str, curves: Sequence[Curve]) -> str:
    """Draw curves over the logarithm of x, from zero upwards."""
    width, height, left, right, top, bottom = 560, 310, 76, 20, 56, 66
    xs = sorted({x for curve in curves for x, _ in curve.points})
    most = max((y for curve in curves for _, y in curve.points), default=1.0) or 1.0
    marks = ticks(most)
    at_x = _placed(xs, left, width - right)

    def at_y(y: float) -> float:
        return height - bottom - y / marks[-1] * (height - bottom - top)

    parts = [_text(0, 18, title, "title"), _text(0, 36, y_title, "quiet")]
    for mark in marks:
        y = at_y(mark)
        parts.append(
            f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{width - right}" y2="{y:.1f}"/>'
        )
        parts.append(_text(left - 8, y + 4, f"{mark:,.6g}", "quiet", anchor="end"))
    parts += [
        _text(at_x(x), height - bottom + 18, f"{x:,.0f}", "quiet", anchor="middle") for x in xs
    ]
    parts.append(_text((left + width - right) / 2, height - 28, x_title, "quiet", anchor="middle"))
    legend = float(left)
    for curve in curves:
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in sorted(curve.points))
        parts.append(f'<polyline class="line {curve.kind}" style="fill:none" points="{path}"/>')
        parts += [
            f'<circle class="{curve.kind}" cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3.5"/>'
            for x, y in curve.points
        ]
        parts.append(
            f'<rect class="{curve.kind}" x="{legend:.1f}" y="{height - 16}" '
            'width="12" height="12"/>'
        )
        parts.append(_text(legend + 18, height - 5, curve.name))
        legend += 40 + 9 * len(curve.name)
    return _document(width, height, title, parts)


def ticks(most: float) -> list[float]:
    """Return a handful of round numbers from zero to one that is not below `most`."""
    rough = most / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def _placed(xs: Sequence[float], left: float, right: float) -> Callable[[float], float]:
    """Spread over the logarithm; nothing at all stands one power of ten before the first."""
    some = [x for x in xs if x > 0]
    low = math.log10(some[0]) if some else 0.0
    if len(some) < len(xs):
        low -= 1
    span = (math.log10(some[-1]) if some else 0.0) - low or 1.0
    inset = 30

    def place(x: float) -> float:
        at = math.log10(x) if x > 0 else low
        return left + inset + (at - low) / span * (right - left - 2 * inset)

    return place


def _text(x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _document(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -4 {width + 20} {height + 14}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{_STYLE}</style>\n{body}\n</svg>\n'
    )
