"""Where arithmetic is not enough: catching up while the day goes on, and keys that are not alike.

Both are simulated without a clock and with chance from a seed, so they come out the same each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

__all__ = ["busiest_share", "hours_behind"]

_STEP = 1 / 60
_LONGEST = 14 * 24.0


def hours_behind(
    *, peak: float, capacity: float, outage: float, begins: float | None = None
) -> float | None:
    """Return for how many hours after an outage something waits, at worst; `None` is for weeks.

    `capacity` and `peak` are multiples of the mean. What arrives follows a wave with its peak at
    noon. While the outage lasts everything arrives and nothing goes; then all goes that can.
    Without an hour at which it `begins`, each full hour is tried.
    """
    starts = range(24) if begins is None else [begins]
    found = [_behind(peak=peak, capacity=capacity, outage=outage, begins=one) for one in starts]
    known = [one for one in found if one is not None]
    return max(known) if len(known) == len(found) else None


def _behind(*, peak: float, capacity: float, outage: float, begins: float) -> float | None:
    waiting, hour = 0.0, begins
    while hour - begins < _LONGEST:
        is_down = hour - begins < outage
        waiting += (_arriving(hour, peak) - (0.0 if is_down else capacity)) * _STEP
        hour += _STEP
        if waiting <= 0.0:
            return max(0.0, hour - begins - outage)
    return None


def _arriving(hour: float, peak: float) -> float:
    return 1.0 + (peak - 1.0) * math.cos((hour - 12.0) / 24.0 * math.tau)


def busiest_share(*, nodes: int, keys: int, exponent: float, seeds: Sequence[int]) -> float:
    """Return the load of the busiest node as a multiple of the mean, in the middle of the seeds.

    The key of rank r has a share that falls with r to the power of the exponent, as in Zipf's law;
    each key goes to the node that chance gives it, as a hash would.
    """
    weights: list[float] = [rank**-exponent for rank in range(1, keys + 1)]
    mean = sum(weights) / nodes
    chances = [Random(seed) for seed in seeds]  # noqa: S311 - no secret
    found = sorted(_busiest(weights, nodes, chance) / mean for chance in chances)
    return found[len(found) // 2]


def _busiest(weights: Sequence[float], nodes: int, chance: Random) -> float:
    loads = [0.0] * nodes
    for weight in weights:
        loads[int(chance.random() * nodes)] += weight
    return max(loads)
