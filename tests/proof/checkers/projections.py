"""I11: who reads the log on from where they were sees every event once, in order."""

from __future__ import annotations

from collections.abc import Iterator

from redrive.model.event import EventId
from redrive.model.position import LOG_START
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Ledger
from tests.proof.checkers.records import Looked, Read, Record

__all__ = ["LogReadWhole"]

_MOST_NAMED = 5


class LogReadWhole(Check):
    """A reader who goes on from the last position gets each event once, and keys in order.

    At the end it has had everything that was ever stored, whatever was committed late.
    """

    name = "I11 projection"

    def __init__(self) -> None:
        self._read: dict[EventId, None] = {}
        self._last = LOG_START
        self._versions: dict[str, int] = {}

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, Read):
            yield from self._take(record)
        elif isinstance(record, Looked) and record.is_final:
            missed = [one for one in ledger.events if one not in self._read]
            if missed:
                named = ", ".join(missed[:_MOST_NAMED])
                yield f"{len(missed)} events of the log were never read: {named}"

    def _take(self, read: Read) -> Iterator[str]:
        if read.event_id in self._read:
            yield f"{read.event_id} was read twice"
        if read.position <= self._last:
            yield f"{read.event_id} was read at {read.position}, after {self._last}"
        self._read[read.event_id] = None
        self._last = read.position
        if read.key is not None and read.version is not None:
            before = self._versions.get(read.key, 0)
            if read.version <= before:
                yield f"version {read.version} of {read.key} was read after {before}"
            self._versions[read.key] = read.version
