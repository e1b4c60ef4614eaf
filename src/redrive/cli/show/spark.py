"""Sparklines and bars: numbers as a drawing in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["chart", "sparkline"]

_STEPS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], *, full: float = 0.0) -> str:
    """Draw values beside each other, the largest (or `full`) at full height; `None` is a gap.

    >>> sparkline([None, 0, 1, 4, 8])
    ' ▁▁▄█'
    """
    top = max((value for value in values if value is not None), default=0.0)
    full = max(full, top)
    return "".join(" " if value is None else _STEPS[_step(value, full)] for value in values)


def chart(values: Sequence[float], *, full: float, lines: int) -> list[str]:
    """Draw values as upright bars, two letters wide, so many lines high at `full`.

    >>> chart([1, 2, 4], full=4, lines=2)
    ['    ██', '▄▄████']
    """
    drawn = []
    for line in range(lines):
        below = full * (lines - 1 - line) / lines
        height = full / lines if full > 0 else 1.0
        drawn.append("".join(_block((value - below) / height) * 2 for value in values))
    return drawn


def _block(share: float) -> str:
    eighths = round(min(1.0, max(0.0, share)) * len(_STEPS))
    return _STEPS[eighths - 1] if eighths else " "


def _step(value: float, full: float) -> int:
    if value <= 0 or full <= 0:
        return 0
    return min(len(_STEPS), math.ceil(value / full * len(_STEPS))) - 1
