"""The event log and the registry of destinations, in memory."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from datetime import datetime
from itertools import islice

import msgspec

from redrive.errors import TransactionError, UsageError
from redrive.model.delivery import DeliveryId
from redrive.model.destination import Destination, Routes
from redrive.model.event import Event, EventId, Receipt
from redrive.store import Append, Appended, Conflict, Entry, LoggedEvent, RoutesChanged
from redrive.stores.codec import is_same_body
from redrive.stores.memory.row import Row
from redrive.stores.memory.tables import Identity, Tables

__all__ = ["MemoryEventLog", "MemoryRegistry"]


class MemoryEventLog(Tables):
    """`EventLog` over the tables."""

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        routes_version: int,
        all_or_nothing: bool,
        within: object = None,
    ) -> Append:
        if within is not None:
            raise TransactionError(
                f"within= got {type(within).__name__}, but the memory store has no transactions "
                "to join; publish without it, or use a store with a database."
            )
        with self._lock:
            if not self._is_current_version(routes_version):
                return RoutesChanged(self._routes())
            self._check_destinations(entries)
            results, fresh = self._sift(entries)
            if all_or_nothing and any(isinstance(one, Conflict) for one in results):
                return Appended(results)
            now = self._clock.now()
            for entry in fresh:
                self._insert(entry, now=now)
            if fresh:
                self._tell()
            return Appended(results)

    async def read_events(self, *, after: int = 0, limit: int = 100) -> Sequence[LoggedEvent]:
        with self._lock:
            return tuple(
                LoggedEvent(position, entry.event)
                for position, entry in islice(
                    ((one, entry) for one, entry in self._log.items() if one > after), limit
                )
            )

    async def find_event(self, event_id: EventId) -> Event[msgspec.Raw] | None:
        with self._lock:
            entry = self._known.get((event_id,))
            return None if entry is None else entry.event

    def _is_current_version(self, version: int) -> bool:
        return version == self._routes_version

    def _check_destinations(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            for name in entry.destinations:
                if name not in self._destinations or name in self._removed:
                    raise UsageError(
                        f"The destination {name!r} is not registered in this store; "
                        "register it before publishing to it."
                    )

    def _sift(
        self, entries: Sequence[Entry]
    ) -> tuple[tuple[Receipt | Conflict, ...], Sequence[Entry]]:
        """Decide each entry's result, and which entries are new."""
        results: list[Receipt | Conflict] = []
        fresh: list[Entry] = []
        known = ChainMap[Identity, Entry]({}, self._known)
        for entry in entries:
            identities = self._identities(entry.event)
            first = next((known[one] for one in identities if one in known), None)
            if first is None:
                fresh.append(entry)
                known |= dict.fromkeys(identities, entry)
            results.append(self._result(entry, first or entry))
        return tuple(results), fresh

    def _identities(self, event: Event[msgspec.Raw]) -> list[Identity]:
        if event.idempotency_key is None:
            return [(event.id,)]
        return [(event.id,), (event.source, event.idempotency_key)]

    def _result(self, entry: Entry, first: Entry) -> Receipt | Conflict:
        is_same_event = entry.event.id == first.event.id
        if not is_same_event and not is_same_body(entry.event, first.event):
            return Conflict(first.event.id)
        return Receipt(
            event_id=first.event.id,
            destinations=first.destinations,
            is_duplicate=not is_same_event,
        )

    def _insert(self, entry: Entry, *, now: datetime) -> None:
        event = entry.event
        self._log_event(entry)
        if not entry.destinations:
            self._idle[self._last_position] = now
        for destination in entry.destinations:
            self._last_delivery_id += 1
            row = Row(
                id=DeliveryId(self._last_delivery_id),
                event=event,
                destination=destination,
                enqueued_at=now,
                due=event.due or now,
                generation=event.generation,
                priority=event.priority,
                deadline=event.deadline,
            )
            self._rows[row.id] = row

    def _log_event(self, entry: Entry) -> None:
        self._last_position += 1
        self._log[self._last_position] = entry
        self._positions[entry.event.id] = self._last_position
        for identity in self._identities(entry.event):
            known = self._known.setdefault(identity, entry)
            if identity in self._outlived and known.event.id == entry.event.id:
                del self._outlived[identity]
                self._known[identity] = entry

    def _give(self, position: int, destination: str, *, instead_of: str = "") -> None:
        """Note that an event was given to one more destination, or to another one."""
        before = self._log[position]
        names = {*before.destinations, destination} - {instead_of}
        entry = Entry(before.event, tuple(sorted(names)))
        self._log[position] = entry
        for identity in self._identities(entry.event):
            if self._known.get(identity) is before:
                self._known[identity] = entry


class MemoryRegistry(Tables):
    """`Registry` over the tables."""

    async def register(self, destinations: Sequence[Destination]) -> Routes:
        with self._lock:
            changed = {
                one.name: one
                for one in destinations
                if self._destinations.get(one.name) != one or one.name in self._removed
            }
            if changed:
                self._pass_by()
                self._destinations |= changed
                for name in changed:
                    self._removed.pop(name, None)
                self._routes_version += 1
            return self._routes()

    async def routes(self) -> Routes:
        with self._lock:
            return self._routes()
