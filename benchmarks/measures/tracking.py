"""What it costs to hand something to a thread that sends it: an event, a log record, a message."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from benchmarks.contender import Measure, Place, Run, Workload

__all__ = ["FIELDS", "Handing", "Way", "track_workload"]

_AT_ONCE = 200
FIELDS = {"page": 7, "path": "/orders/7", "took_ms": 12.5, "user": "u-4711"}
"""What each of them carries."""

Way = tuple[Callable[[], object], Callable[[], object]]
"""What hands one over, and what waits until all that was handed over is gone."""
Handing = Callable[[Place], AbstractContextManager[Way]]


def track_workload(handing: Handing) -> Mapping[Workload, Measure]:
    """Return the workload; what is given makes what hands one over.

    The best of many short stretches counts, since a long one is hardly ever left alone. Between
    them all is sent, so that none finds a full buffer.
    """

    def measure(size: int, place: Place) -> Run:
        with handing(place) as (hand_over, wait):
            hand_over()
            wait()
            seconds = min(_stretches(hand_over, wait, size))
        return Run(figures={"us": seconds / _AT_ONCE * 1e6})

    return {Workload.TRACK: measure}


def _stretches(
    hand_over: Callable[[], object], wait: Callable[[], object], size: int
) -> Iterator[float]:
    for _ in range(0, size, _AT_ONCE):
        began = time.perf_counter()
        for _ in range(_AT_ONCE):
            hand_over()
        yield time.perf_counter() - began
        wait()
