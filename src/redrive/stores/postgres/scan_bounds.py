"""Lower bounds for the scans of a claim.

What was claimed leaves its entries in the index until the server may clear them away, which a
transaction that stays open can put off for as long as it likes. A claim that began at the front of
the index each time would walk past ever more of them, so it begins behind those it has seen to be
gone. Fresh deliveries come in the order of their numbers, and never come back as fresh ones; but a
transaction may hold a low number and commit late. So the bound follows only when every transaction
that was writing deliveries when the bound was chosen has ended.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from redrive.clock import Clock

__all__ = ["FreshLine", "Reading", "ScanBounds"]

Ask = Callable[[str], Awaitable[Sequence[Sequence[Any]]]]

FreshLine = tuple[int, str, str]
"""A destination's number, a generation and a tenant: their fresh deliveries stand in one line."""

_WRITERS = """
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE relation = 'redrive.deliveries'::regclass AND mode = 'RowExclusiveLock'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_FAR = 2_000
_BETWEEN_CHECKS = timedelta(milliseconds=100)
# A server that came back from an older copy gives numbers out again.
_KEPT_SECONDS = 60.0


class ScanBounds:
    """What this process knows about where the fresh deliveries of each line begin."""

    def __init__(
        self, clock: Clock, *, far: int = _FAR, between_checks: timedelta = _BETWEEN_CHECKS
    ) -> None:
        self._clock = clock
        self._far = far
        self._between_checks = between_checks.total_seconds()
        self._bounds: dict[FreshLine, int] = {}
        self._reached: dict[FreshLine, int] = {}
        self._marks: dict[FreshLine, int] = {}
        self._writers: frozenset[str] = frozenset()
        self._proven: dict[FreshLine, int] = {}
        self._checked = -math.inf
        self._began = -math.inf

    def below(self, line: FreshLine) -> int:
        """Return a number up to which the line has no deliveries, now and ever."""
        return self._bounds.get(line, 0)

    def reading(self) -> Reading:
        """Return what a claim that begins to read now may go by."""
        return Reading(self, dict(self._proven))

    def rise(self, line: FreshLine, to: int) -> None:
        """Begin there from now on."""
        self._proven.pop(line, None)
        self._bounds[line] = max(to, self.below(line))

    def reach(self, line: FreshLine, last: int) -> None:
        """Take note of how far a line was read."""
        self._reached[line] = max(last, self._reached.get(line, 0))

    def forget(self) -> None:
        """Begin at the front again."""
        for known in (self._bounds, self._reached, self._marks, self._proven):
            known.clear()

    async def follow(self, ask: Ask) -> None:
        """Let the bounds follow what was claimed, as far as no late commit can be before it.

        `ask` runs a statement, in whatever transaction; mostly there is nothing to ask.
        """
        now = self._clock.monotonic()
        if now - self._began >= _KEPT_SECONDS:
            self.forget()
            self._began = self._checked = now
            return
        far = self._far_ahead()
        if now - self._checked < self._between_checks or not (self._marks or far):
            return
        self._checked = now
        # Others may claim and follow meanwhile: what they find belongs to other writers.
        marks, then = self._marks, self._writers
        writers = frozenset(row[0] for row in await ask(_WRITERS))
        if not marks:
            self._marks, self._writers = far, writers
        elif not then & writers:
            self._proven |= marks
            if self._marks is marks:
                self._marks = {}

    def _far_ahead(self) -> dict[FreshLine, int]:
        return {
            line: last
            for line, last in self._reached.items()
            if last - self.below(line) > self._far
        }


class Reading:
    """The bounds of one claim, which knows what was proven before it began to read."""

    __slots__ = ("_bounds", "_proven")

    def __init__(self, bounds: ScanBounds, proven: Mapping[FreshLine, int]) -> None:
        self._bounds = bounds
        self._proven = proven

    def below(self, line: FreshLine) -> int:
        """Return a number up to which the line has no deliveries, now and ever."""
        return self._bounds.below(line)

    def saw(self, line: FreshLine, ids: Sequence[int]) -> None:
        """Take note of the first deliveries of a line, read from its bound on, if there are any."""
        mark = self._proven.get(line)
        if mark is not None:
            self._bounds.rise(line, min(mark, ids[0] - 1) if ids else mark)
        if ids:
            self._bounds.reach(line, ids[-1])
