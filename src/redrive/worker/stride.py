"""Stride: how many events a reader of the log takes at once, and how long it rests in between."""

from __future__ import annotations

from redrive.store import LogPage

__all__ = ["Stride"]

_FIRST_BATCH = 50
_LARGEST_BATCH = 1_000
_SHARE_SECONDS = 0.25
"""How much of its rate a rebuild takes at once."""


class Stride:
    """Takes twice as many at a time as before, up to what takes too long to wait for."""

    def __init__(self, *, long_seconds: float) -> None:
        self._long_seconds = long_seconds
        self._size = _FIRST_BATCH
        self._rest = 0.0

    def limit(self, rate: float | None) -> int:
        """Return how many to take: no more than may be applied in a while at so many a second."""
        if rate is None:
            return self._size
        return max(1, min(self._size, int(rate * _SHARE_SECONDS)))

    def heed(self, page: LogPage, *, took: float, rate: float | None) -> None:
        """Take note of how many seconds a page took."""
        if took > self._long_seconds:
            self._size = max(1, self._size // 2)
        elif not page.is_end:
            self._size = min(_LARGEST_BATCH, self._size * 2)
        self._rest = 0.0 if rate is None else max(0.0, len(page.events) / rate - took)

    def go_one_by_one(self) -> None:
        """Take one, and then ever more again."""
        self._size = 1

    def take_rest(self) -> float:
        """Return for how many seconds to rest, once, so that a rebuild keeps to its rate."""
        rest, self._rest = self._rest, 0.0
        return rest
