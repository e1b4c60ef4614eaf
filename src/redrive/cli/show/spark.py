"""Sparklines and bars: numbers as a drawing in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["bar", "sparkline"]

_STEPS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"


def sparkline(values: Sequence[float | None], *, full: float = 0.0) -> str:
    """Draw values beside each other, the largest (or `full`) at full height; `None` is a gap.

    >>> sparkline([None, 0, 1, 4, 8])
    ' ▁▁▄█'
    """
    top = max((value for value in values if value is not None), default=0.0)
    full = max(full, top)
    return "".join(" " if value is None else _STEPS[_step(value, full)] for value in values)


def bar(value: float, *, full: float, width: int) -> str:
    """Draw a value as a bar that is `width` long at `full`, and never longer.

    >>> bar(5.5, full=10, width=10)
    '█████▌'
    """
    eighths = round(min(1.0, max(0.0, value / full)) * width * 8) if full > 0 else 0
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def _step(value: float, full: float) -> int:
    if value <= 0 or full <= 0:
        return 0
    return min(len(_STEPS), math.ceil(value / full * len(_STEPS))) - 1
