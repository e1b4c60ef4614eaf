"""Writers that take their place in the log first and commit later, while others read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast

from redrive.clock import Clock
from redrive.model.pattern import matches
from redrive.model.position import LOG_START, LogPosition
from redrive.model.projection import partition_of
from redrive.store import Entry, LoggedEvent, LogPage
from redrive.stores.deduplicate import Kept
from redrive.stores.memory import MemoryStore
from redrive.stores.memory.tables import Identity

__all__ = ["LateCommits", "Transaction", "with_late_commits"]

_LAST = 2**63 - 1


class Transaction(NamedTuple):
    """A write under way. Others that need what it `holds` wait until it ends.

    `position` is the place it has in the log already, if it does not take one when it commits.
    """

    number: int
    position: int | None
    holds: frozenset[Identity]
    ends_at: float


class LateCommits(MemoryStore):
    """A store as PostgreSQL is: transactions overlap, and end in another order than they began.

    The log goes by transaction and position, and is read below the first that is still open.
    """

    def __init__(self, clock: Clock, history: int = 20) -> None:
        super().__init__(clock, history)
        self._open: dict[int, Transaction] = {}
        self._last_transaction = 0
        self._writing: int | None = None
        self._times: dict[int, int] = {}

    @property
    def open_transactions(self) -> tuple[Transaction, ...]:
        return tuple(self._open.values())

    def begin(self, entries: Sequence[Entry], *, ends_at: float, is_placed: bool) -> Transaction:
        """Begin to store events, at the next places of the log or at those free at the commit."""
        self._last_transaction += 1
        position = None
        if is_placed:
            position = self._last_position + 1
            self._last_position += len(entries)
        transaction = Transaction(self._last_transaction, position, self._needs(entries), ends_at)
        self._open[transaction.number] = transaction
        return transaction

    def held_until(self, entries: Sequence[Entry]) -> float | None:
        """Return when what these need is let go of; `None` if nobody holds it."""
        needs = self._needs(entries)
        return max((one.ends_at for one in self._open.values() if one.holds & needs), default=None)

    @contextmanager
    def committing(self, transaction: Transaction) -> Iterator[None]:
        """Let what is appended in the block be what the transaction has written."""
        last, self._writing = self._last_position, transaction.number
        if transaction.position is not None:
            self._last_position = transaction.position - 1
        try:
            yield
        finally:
            self._last_position = max(last, self._last_position)
            self._writing = None
            self._log = dict(sorted(self._log.items()))
            del self._open[transaction.number]

    def roll_back(self, transaction: Transaction) -> None:
        """End a transaction as if it had never been; its places stay empty."""
        del self._open[transaction.number]

    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        types: Sequence[str] = (),
        limit: int = 100,
        partition: int = 0,
        partitions: int = 1,
    ) -> LogPage:
        with self._lock:
            horizon = self._horizon()
            ahead = sorted(
                (self._place(number), number)
                for number in self._log
                if self._times[number] < horizon
            )
            found = [(place, self._log[number]) for place, number in ahead if place > after]
        read = tuple(LoggedEvent(place, one.event, one.version) for place, one in found[:limit])
        return LogPage(
            events=tuple(
                one
                for one in read
                if (not types or any(matches(pattern, one.event.type) for pattern in types))
                and partition_of(one.event.key, one.event.id, partitions) == partition
            ),
            reached=read[-1].position if read else after,
            is_end=len(read) < limit,
        )

    async def end_of_log(self) -> LogPosition:
        with self._lock:
            return LogPosition(self._horizon() - 1, _LAST)

    def _horizon(self) -> int:
        """Return the first transaction that is open: nothing from there on may be read."""
        return min(self._open, default=self._last_transaction + 1)

    def _place(self, number: int) -> LogPosition:
        return LogPosition(self._times[number], number)

    def _log_event(self, kept: Kept) -> None:
        super()._log_event(kept)
        if self._writing is None:
            self._last_transaction += 1
        self._times[self._last_position] = self._writing or self._last_transaction

    def _needs(self, entries: Sequence[Entry]) -> frozenset[Identity]:
        """Return the keys and identities that only one transaction may have at a time."""
        identities = [one for entry in entries for one in self._identities(entry.event)]
        keys = [("key", one.event.key) for one in entries if one.event.key is not None]
        return frozenset([*identities, *keys])


def with_late_commits(store: type[MemoryStore]) -> type[LateCommits]:
    """Return a store that is as the given one, and whose transactions overlap."""
    return cast("type[LateCommits]", type(f"Late{store.__name__}", (LateCommits, store), {}))
