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
from collections.abc import Awaitable, Callable, Sequence
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
        self._far_ahead: dict[FreshLine, int] = {}
        """How far lines were read, where that is far beyond their bound."""
        self._marks: dict[FreshLine, int] = {}
        self._writers: frozenset[str] = frozenset()
        self._proven: dict[FreshLine, tuple[int, int]] = {}
        """Marks that hold, each with the number of the proof."""
        self._proofs = 0
        self._checked = -math.inf
        self._began = -math.inf

    def below(self, line: FreshLine) -> int:
        """Return a number up to which the line has no deliveries, now and ever."""
        return self._bounds.get(line, 0)

    def reading(self) -> Reading:
        """Return what a claim that begins to read now may go by."""
        return Reading(self, self._proofs)

    def proven(self, line: FreshLine, *, proofs: int) -> int | None:
        """Return up to where one of the first proofs has it that nothing can come late."""
        mark, proof = self._proven.get(line, (None, 0))
        return mark if proof <= proofs else None

    def rise(self, line: FreshLine, to: int) -> None:
        """Begin there from now on."""
        self._proven.pop(line, None)
        self._bounds[line] = bound = max(to, self.below(line))
        if self._far_ahead.get(line, bound) - bound <= self._far:
            self._far_ahead.pop(line, None)

    def reach(self, line: FreshLine, last: int) -> None:
        """Take note of how far a line was read."""
        if last - self.below(line) > self._far:
            self._far_ahead[line] = max(last, self._far_ahead.get(line, 0))

    def forget(self) -> None:
        """Begin at the front again."""
        for known in (self._bounds, self._far_ahead, self._marks, self._proven):
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
        if now - self._checked < self._between_checks or not (self._marks or self._far_ahead):
            return
        self._checked = now
        # Others may claim and follow meanwhile: what they find belongs to other writers.
        marks, then, far = self._marks, self._writers, dict(self._far_ahead)
        writers = frozenset(row[0] for row in await ask(_WRITERS))
        if not marks:
            self._marks, self._writers = far, writers
        elif not then & writers:
            self._proofs += 1
            self._proven |= {line: (mark, self._proofs) for line, mark in marks.items()}
            if self._marks is marks:
                self._marks = {}


class Reading:
    """The bounds of one claim, which knows what was proven before it began to read."""

    __slots__ = ("_bounds", "_proofs")

    def __init__(self, bounds: ScanBounds, proofs: int) -> None:
        self._bounds = bounds
        self._proofs = proofs

    def below(self, line: FreshLine) -> int:
        """Return a number up to which the line has no deliveries, now and ever."""
        return self._bounds.below(line)

    def saw(self, line: FreshLine, ids: Sequence[int]) -> None:
        """Take note of the first deliveries of a line, read from its bound on, if there are any."""
        mark = self._bounds.proven(line, proofs=self._proofs)
        if mark is not None:
            self._bounds.rise(line, min(mark, ids[0] - 1) if ids else mark)
        if ids:
            self._bounds.reach(line, ids[-1])
