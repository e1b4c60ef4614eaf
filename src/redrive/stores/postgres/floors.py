"""Lower bounds for the scans of a claim.

What was claimed leaves its entries in the index until the server may clear them away, which a
transaction that stays open can put off for as long as it likes. A claim that began at the front of
the index each time would walk past ever more of them, so it begins behind those it has seen to be
gone. Fresh deliveries come in the order of their numbers, and never come back as fresh ones; but a
transaction may hold a low number and commit late. So the bound follows only when every transaction
that was writing deliveries when the bound was chosen has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from redrive.stores.postgres.connection import Link

__all__ = ["Floors", "FreshLine"]

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
_KEPT = timedelta(seconds=60)


class Floors:
    """What this process knows about where the fresh deliveries of each line begin."""

    def __init__(self, *, far: int = _FAR, between_checks: timedelta = _BETWEEN_CHECKS) -> None:
        self._far = far
        self._between_checks = between_checks
        self._floors: dict[FreshLine, int] = {}
        self._reached: dict[FreshLine, int] = {}
        self._marks: dict[FreshLine, int] = {}
        self._are_proven = False
        self._writers: frozenset[str] = frozenset()
        self._checked_at: datetime | None = None
        self._began_at: datetime | None = None

    def below(self, line: FreshLine) -> int:
        """Return a number up to which the line has no deliveries, now and ever."""
        return self._floors.get(line, 0)

    def saw(self, line: FreshLine, ids: Sequence[int]) -> None:
        """Take note of the first deliveries of a line, read from its bound on, if there are any."""
        if self._are_proven and line in self._marks:
            mark = self._marks.pop(line)
            self._floors[line] = min(mark, ids[0] - 1) if ids else mark
        if ids:
            self._reached[line] = max(ids[-1], self._reached.get(line, 0))

    def forget(self) -> None:
        """Begin at the front again."""
        for known in (self._floors, self._reached, self._marks):
            known.clear()
        self._are_proven = False

    def are_stale(self, now: datetime) -> bool:
        """Tell whether it is time to forget them, or to let them follow."""
        if self._began_at is None or not timedelta(0) <= now - self._began_at < _KEPT:
            return True
        if self._checked_at is not None and now - self._checked_at < self._between_checks:
            return False
        return bool(self._marks) or bool(self._far_ahead())

    async def follow(self, link: Link, *, now: datetime) -> None:
        """Let the bounds follow what was claimed, as far as no late commit can be before it."""
        if not self.are_stale(now):
            return
        if self._began_at is None or not timedelta(0) <= now - self._began_at < _KEPT:
            self.forget()
            self._began_at = self._checked_at = now
            return
        far = self._far_ahead()
        self._checked_at = now
        writers = frozenset(row[0] for row in await link.fetch(_WRITERS))
        if self._marks and not self._are_proven:
            self._are_proven = not self._writers & writers
        else:
            self._marks = {line: self._reached[line] for line in far}
            self._writers, self._are_proven = writers, False

    def _far_ahead(self) -> Sequence[FreshLine]:
        return [line for line, last in self._reached.items() if last - self.below(line) > self._far]
