"""Destinations that go and destinations that come late, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Kind, Status
from redrive.model.destination import Destination, Order
from redrive.model.pattern import matches
from redrive.model.recipient import destination_of, is_given, recipient
from redrive.policies.declaring import removed, restored
from redrive.store import LOWEST_PRIORITY, Backfilled, LogSlice, Moved
from redrive.stores.declaring import refuse_service
from redrive.stores.deduplicate import Kept
from redrive.stores.memory.log import MemoryEventLog
from redrive.stores.memory.row import Row

__all__ = ["MemoryRerouting"]


class MemoryRerouting(MemoryEventLog):
    """`Rerouting` over the tables."""

    async def unregister(self, destination: str, *, actor: Actor) -> bool:
        with self._lock:
            self._destination(destination)
            if destination in self._removed:
                return False
            refuse_service(self._standing(destination), "delete")
            now = self._clock.now()
            self._standings[destination] = removed(self._standing(destination))
            self._removed[destination] = now
            self._routes_version += 1
            self._note("remove", actor, now=now, count=1, detail=destination)
            return True

    async def reregister(self, destination: str, *, actor: Actor) -> bool:
        with self._lock:
            self._destination(destination)
            if destination not in self._removed:
                return False
            refuse_service(self._standing(destination), "add")
            self._standings[destination] = restored(self._standing(destination))
            del self._removed[destination]
            self._routes_version += 1
            self._note("restore", actor, now=self._clock.now(), count=1, detail=destination)
            return True

    async def waiting_for(
        self,
        destination: str,
        *,
        after: int = 0,
        limit: int = 500,
        with_dead_letters: bool = False,
    ) -> Sequence[DeliveryId]:
        with self._lock:
            self._destination(destination)
            ids = [
                row.id
                for row in self._rows.values()
                if row.destination == destination
                and row.id > after
                and (row.status is Status.PENDING or (with_dead_letters and row.is_dead_letter))
            ]
            return sorted(ids)[:limit]

    async def move(self, ids: Sequence[DeliveryId], *, target: str, actor: Actor) -> Moved:
        with self._lock:
            now = self._clock.now()
            to = self._destination(target)
            rows = sorted(self._found(ids), key=lambda row: row.id)
            moved: list[Row] = []
            skipped = busy = 0
            for row in rows:
                if row.status is not Status.PENDING and not row.is_dead_letter:
                    continue
                moved_to = recipient(target, row.rule if to.service else "")
                if self._was_given(self._log[self._positions[row.event.id]], moved_to):
                    skipped += 1
                elif self._is_busy(target, row.event.key):
                    busy += 1
                else:
                    self._move(row, target)
                    moved.append(row)
            changed = tuple(row.id for row in moved)
            if changed:
                self._note("move", actor, now=now, ids=changed, detail=target)
            return Moved(moved=changed, skipped=skipped, busy=busy)

    async def drop(self, ids: Sequence[DeliveryId], *, actor: Actor) -> Sequence[DeliveryId]:
        with self._lock:
            now = self._clock.now()
            rows = [row for row in self._found(ids) if row.status is Status.PENDING]
            self._remove(rows, at=now)
            self._deleted += len(rows)
            dropped = [row.id for row in rows]
            if dropped:
                self._note("drop", actor, now=now, ids=dropped)
            return dropped

    async def read_log(
        self,
        destination: str,
        *,
        after: int = 0,
        limit: int = 1_000,
        since: datetime | None = None,
        until: datetime | None = None,
        event_type: str | None = None,
    ) -> LogSlice:
        with self._lock:
            wanting, now = self._destination(destination), self._clock.now()
            ahead = ((one, entry) for one, entry in self._log.items() if one > after)
            read = list(islice(ahead, limit))
            given = [one for one in read if self._was_given(one[1], destination)]
            missing = [
                (position, entry)
                for position, entry in read
                if not self._was_given(entry, destination)
                and wanting.wants_event(entry.event)
                and (event_type is None or matches(event_type, entry.event.type))
                and (since is None or entry.event.published_at >= since)
                and (until is None or entry.event.published_at < until)
                and (entry.event.deadline is None or entry.event.deadline > now)
            ]
            return LogSlice(
                missing=tuple((position, entry.event.key) for position, entry in missing),
                given=tuple((position, entry.event.key) for position, entry in given),
                last=read[-1][0] if read else None,
                is_ordered=wanting.order is not Order.NONE,
            )

    async def backfill(
        self,
        destination: str,
        positions: Sequence[int],
        *,
        actor: Actor,
        generation: str | None = None,
    ) -> Backfilled:
        with self._lock:
            now, wanting = self._clock.now(), self._destination(destination)
            overtaken = 0
            added: list[DeliveryId] = []
            for position in sorted(positions):
                entry = self._log.get(position)
                if entry is None or self._was_given(entry, destination) or entry.event.erased:
                    continue
                if self._is_overtaken(position, entry.event.key, wanting):
                    overtaken += 1
                    continue
                added.append(self._add(position, destination, generation, now=now).id)
            if added:
                count = len(added)
                self._note("backfill", actor, now=now, count=count, detail=destination)
            return Backfilled(added=len(added), overtaken=overtaken)

    def _was_given(self, entry: Kept, destination: str) -> bool:
        names = entry.destinations
        return is_given(destination, names) or destination in map(destination_of, names)

    def _destination(self, name: str) -> Destination:
        if name not in self._destinations:
            raise not_found(name, sorted(self._destinations), what="destination")
        return self._destinations[name]

    def _is_busy(self, destination: str, key: str | None) -> bool:
        """Tell whether something of the lane runs, so that nothing can go in front of it."""
        return (
            key is not None
            and self._destinations[destination].order is not Order.NONE
            and any(
                row.destination == destination
                and row.event.key == key
                and row.status is Status.IN_FLIGHT
                for row in self._rows.values()
            )
        )

    def _move(self, row: Row, target: str) -> None:
        before = row.recipient
        if not self._destinations[target].service:
            row.rule = ""
        row.destination = target
        self._give(self._positions[row.event.id], row.recipient, instead_of=before)
        row.was_passed_by = False

    def _is_overtaken(self, position: int, key: str | None, destination: Destination) -> bool:
        return (
            key is not None
            and destination.order is not Order.NONE
            and any(
                row.destination == destination.name
                and row.event.key == key
                and row.blocks_its_lane
                and self._positions[row.event.id] > position
                for row in self._rows.values()
            )
        )

    def _add(
        self, position: int, destination: str, generation: str | None, *, now: datetime
    ) -> Row:
        event = self._log[position].event
        self._give(position, destination)
        self._last_delivery_id += 1
        row = Row(
            id=DeliveryId(self._last_delivery_id),
            event=event,
            destination=destination,
            enqueued_at=now,
            due=now if event.due is None else max(event.due, now),
            generation=generation or event.generation,
            priority=LOWEST_PRIORITY,
            deadline=self._destination(destination).deadline_of(event, now=now),
            kind=Kind.REPLAY,
        )
        self._rows[row.id] = row
        return row
