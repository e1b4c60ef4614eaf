"""Planted bugs of how events are stored and read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from redrive.model.event import Event
from redrive.model.position import LOG_START, LogPosition
from redrive.store import LogPage
from redrive.stores.deduplicate import Kept
from redrive.stores.memory import MemoryStore
from redrive.stores.memory.tables import Identity
from tests.simulation.bugs.bug import Bug
from tests.simulation.late import LateCommits, Transaction

__all__ = ["BUGS"]


class GapBlindLog(MemoryStore):
    """Every fifth event is committed late, and what was stored after it is read before it."""

    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        **options: Any,  # noqa: ANN401 - as it comes
    ) -> LogPage:
        committed = self._clock.now() - timedelta(milliseconds=500)
        page = await super().read_events(after=after, **options)
        read = tuple(
            one
            for one in page.events
            if one.position.number % 5 or one.event.published_at < committed
        )
        return msgspec.structs.replace(page, events=read)


class LogReadTwice(MemoryStore):
    """Who reads on gets the last event again, as one whose checkpoint comes before the event."""

    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        **options: Any,  # noqa: ANN401 - as it comes
    ) -> LogPage:
        before = LogPosition(number=max(0, after.number - 1))
        return await super().read_events(after=before, **options)


class PublishNotAtomic(MemoryStore):
    def _insert(self, entry: Kept, *, now: datetime) -> None:
        is_cut = len(entry.destinations) > 1 and self._last_position % 7 == 3
        some = Kept(entry.event, entry.destinations[:-1], entry.version)
        super()._insert(some if is_cut else entry, now=now)


class IdempotencyIgnored(MemoryStore):
    def _identities(self, event: Event[msgspec.Raw]) -> list[Identity]:
        return [(event.id,)]


def _number_alone(self: LateCommits, number: int) -> LogPosition:
    return LogPosition(number=number)


def _forgotten(self: LateCommits, transaction: Transaction) -> None:
    self._open[transaction.number] = transaction._replace(holds=frozenset())


BUGS: tuple[Bug, ...] = (
    Bug("gap-blind reader", GapBlindLog),
    Bug("the last event is read again", LogReadTwice),
    Bug("publish not atomic over destinations", PublishNotAtomic),
    Bug("idempotency ignored", IdempotencyIgnored),
    Bug("open transactions are read past", patches=((LateCommits, "_horizon", lambda _: 10**9),)),
    Bug("log read by position alone", patches=((LateCommits, "_place", _number_alone),)),
    Bug("a rolled back transaction stays open", patches=((LateCommits, "roll_back", _forgotten),)),
)
