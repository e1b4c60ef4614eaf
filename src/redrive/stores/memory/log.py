"""The event log and the registry of destinations, in memory."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from redrive.errors import TransactionError, UsageError
from redrive.model.audit import REDRIVE, Actor
from redrive.model.delivery import DeliveryId
from redrive.model.destination import Destination, Routes
from redrive.model.event import Event, EventId, Receipt
from redrive.model.pattern import matches
from redrive.model.position import LOG_START, LogPosition
from redrive.model.projection import partition_of
from redrive.model.recipient import destination_of, pin_of
from redrive.store import (
    PUBLISHER,
    Append,
    Appended,
    AppendResult,
    CaughtUp,
    Conflict,
    Declarer,
    Entry,
    LoggedEvent,
    LogPage,
    Registered,
    RoutesChanged,
    VersionConflict,
)
from redrive.stores.codec import carrying, is_same_body, why_unreadable
from redrive.stores.declaring import (
    Release,
    Ruling,
    audited,
    registered,
    release_from,
    release_of,
    rule,
)
from redrive.stores.deduplicate import Kept, is_refused, unique_key
from redrive.stores.memory.row import Row
from redrive.stores.memory.tables import Identity, Tables
from redrive.stores.sealed import PLAIN

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
            return self._append(
                entries, routes_version=routes_version, all_or_nothing=all_or_nothing
            )

    def _append(
        self, entries: Sequence[Entry], *, routes_version: int, all_or_nothing: bool
    ) -> Append:
        if not self._is_current_version(routes_version):
            return RoutesChanged(self._routes())
        self._check_destinations(entries)
        now = self._clock.now()
        results, fresh = self._sift(entries, now=now)
        if all_or_nothing and is_refused(results):
            return Appended(results)
        self._store_fresh(entries, fresh, now=now)
        return Appended(results)

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
            looked_at = [
                LoggedEvent(LogPosition(number=number), kept.event, kept.version)
                for number, kept in islice(
                    ((one, kept) for one, kept in self._log.items() if one > after.number), limit
                )
            ]
        return LogPage(
            events=tuple(
                one
                for one in looked_at
                if (not types or any(matches(pattern, one.event.type) for pattern in types))
                and partition_of(one.event.key, one.event.id, partitions) == partition
            ),
            reached=looked_at[-1].position if looked_at else after,
            is_end=len(looked_at) < limit,
        )

    async def read_key(
        self, key: str, *, after: int = 0, limit: int = 100
    ) -> Sequence[LoggedEvent]:
        with self._lock:
            return tuple(
                islice(
                    (
                        LoggedEvent(LogPosition(number=number), kept.event, kept.version)
                        for number, kept in self._log.items()
                        if kept.event.key == key and (kept.version or 0) > after
                    ),
                    limit,
                )
            )

    async def end_of_log(self) -> LogPosition:
        with self._lock:
            return LogPosition(number=self._last_position)

    async def find_event(self, event_id: EventId) -> Event[msgspec.Raw] | None:
        with self._lock:
            kept = self._known.get((event_id,))
            return None if kept is None else kept.event

    def _store_fresh(
        self, entries: Sequence[Entry], fresh: Sequence[Kept], *, now: datetime
    ) -> None:
        """Store what is new of some entries."""
        self._keep_uniques(entries, fresh, now=now)
        for kept in fresh:
            self._insert(kept, now=now)
        if fresh:
            self._tell()

    def _is_current_version(self, version: int) -> bool:
        return version == self._routes_version

    def _check_destinations(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            for recipient in entry.destinations:
                name = destination_of(recipient)
                if name not in self._destinations or name in self._removed:
                    raise UsageError(
                        f"The destination {name!r} is not registered in this store; "
                        "register it before publishing to it."
                    )

    def _sift(
        self, entries: Sequence[Entry], *, now: datetime
    ) -> tuple[tuple[AppendResult, ...], Sequence[Kept]]:
        """Decide each entry's result, and what is new."""
        uniques = {key: kept for key, (kept, until) in self._uniques.items() if now < until}
        results: list[AppendResult] = []
        fresh: list[Kept] = []
        known = ChainMap[Identity, Kept]({}, self._known)
        versions = ChainMap[str, int]({}, self._versions)
        for entry in entries:
            identities = self._identities(entry.event)
            first = next((known[one] for one in identities if one in known), None)
            unique = unique_key(entry, PLAIN)
            if first is None and unique is not None and unique in uniques:
                results.append(_duplicate(uniques[unique]))
                continue
            if first is None:
                key = entry.event.key
                actual = 0 if key is None else versions.get(key, 0)
                if not self._is_expected(entry, actual):
                    results.append(VersionConflict(actual))
                    continue
                event = _readable(entry.event)
                first = Kept(event, entry.destinations, self._next(event, versions))
                fresh.append(first)
                known |= dict.fromkeys(identities, first)
                if unique is not None:
                    uniques[unique] = first
            results.append(self._result(entry, first))
        return tuple(results), fresh

    def _keep_uniques(
        self, entries: Sequence[Entry], fresh: Sequence[Kept], *, now: datetime
    ) -> None:
        stored = {kept.event.id: kept for kept in fresh}
        for one in entries:
            key = unique_key(one, PLAIN)
            if key is not None and one.unique is not None and one.event.id in stored:
                self._uniques[key] = (stored[one.event.id], now + one.unique.span)

    def _is_expected(self, entry: Entry, actual: int) -> bool:
        return entry.expected_version in (None, actual)

    def _next(self, event: Event[msgspec.Raw], versions: MutableMapping[str, int]) -> int | None:
        """Return the version of one more event, which is counted."""
        if event.key is None:
            return None
        versions[event.key] = versions.get(event.key, 0) + 1
        return versions[event.key]

    def _identities(self, event: Event[msgspec.Raw]) -> list[Identity]:
        if event.idempotency_key is None:
            return [(event.id,)]
        return [(event.id,), (event.source, event.idempotency_key)]

    def _result(self, entry: Entry, first: Kept) -> Receipt | Conflict:
        is_same_event = entry.event.id == first.event.id
        if not is_same_event and not is_same_body(entry.event, first.event):
            return Conflict(first.event.id)
        return Receipt(
            event_id=first.event.id,
            destinations=first.destinations,
            is_duplicate=not is_same_event,
            version=first.version,
        )

    def _insert(self, kept: Kept, *, now: datetime) -> None:
        event = kept.event
        self._log_event(kept)
        if not kept.destinations:
            self._idle[self._last_position] = now
        for recipient in kept.destinations:
            destination = destination_of(recipient)
            self._last_delivery_id += 1
            row = Row(
                id=DeliveryId(self._last_delivery_id),
                event=event,
                destination=destination,
                enqueued_at=now,
                due=event.due or now,
                generation=event.generation,
                priority=event.priority,
                deadline=self._destinations[destination].deadline_of(event, now=now),
                rule=pin_of(recipient),
            )
            self._rows[row.id] = row

    def _log_event(self, kept: Kept) -> None:
        self._last_position += 1
        self._log[self._last_position] = kept
        self._positions[kept.event.id] = self._last_position
        if kept.event.key is not None and kept.version is not None:
            self._versions[kept.event.key] = kept.version
        for identity in self._identities(kept.event):
            known = self._known.setdefault(identity, kept)
            if identity in self._outlived and known.event.id == kept.event.id:
                del self._outlived[identity]
                self._known[identity] = kept

    def _give(self, position: int, destination: str, *, instead_of: str = "") -> None:
        """Note that an event was given to one more destination, or to another one."""
        before = self._log[position]
        names = {*before.destinations, destination} - {instead_of}
        kept = msgspec.structs.replace(before, destinations=tuple(sorted(names)))
        self._log[position] = kept
        for identity in self._identities(kept.event):
            if self._known.get(identity) is before:
                self._known[identity] = kept


def _duplicate(kept: Kept) -> Receipt:
    return Receipt(
        event_id=kept.event.id,
        destinations=kept.destinations,
        is_duplicate=True,
        version=kept.version,
    )


def _readable(event: Event[msgspec.Raw]) -> Event[msgspec.Raw]:
    """Return an event, or what stands in for one whose payload nobody could read."""
    if why_unreadable(event.payload) is None:
        return event
    return carrying(event, bytes(event.payload))


class MemoryRegistry(Tables):
    """`Registry` over the tables."""

    async def register(
        self,
        destinations: Sequence[Destination],
        *,
        by: Declarer = PUBLISHER,
        again: bool = False,
    ) -> Registered:
        with self._lock:
            now = self._clock.now()
            known = {one.name for one in destinations} & self._destinations.keys()
            standings = {name: self._standing(name) for name in known}
            live = self._declared_by_others(by, now=now)
            rulings = rule(destinations, standings, by=by, live=live, now=now)
            for count, detail in audited(rulings, is_first=not self._routes_version):
                self._note("declare", Actor(REDRIVE, by.why), now=now, count=count, detail=detail)
            self._keep(rulings)
            if by.worker:
                self._workers[by.worker] = now
                if not again:
                    self._releases[by.worker] = release_from(release_of(destinations)[1])
            return registered(self._routes(), rulings, self._overridden(now))

    def _declared_by_others(self, by: Declarer, *, now: datetime) -> list[Release]:
        """Return what live workers declare, but for the one that asks."""
        return [
            release
            for worker, release in self._releases.items()
            if worker != by.worker and now - self._workers[worker] < by.lease
        ]

    def _keep(self, rulings: Sequence[Ruling]) -> None:
        self._standings |= {one.name: one.after for one in rulings}
        changed = [one for one in rulings if one.is_change]
        if changed:
            self._pass_by()
            self._destinations |= {one.name: one.after.destination for one in changed}
            for one in changed:
                self._removed.pop(one.name, None)
            self._routes_version += 1

    async def catch_up(self) -> CaughtUp:
        """Nothing: an append is checked and stored at one moment."""
        return CaughtUp()

    async def routes(self) -> Routes:
        with self._lock:
            return self._routes()
