"""What the memory store keeps and lets go, and dead letters on their way out and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice

import msgspec

from redrive.model.audit import Actor, AuditEntry
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.destination import Destination
from redrive.model.letter import Letter
from redrive.model.outcome import Fault
from redrive.model.retention import Retention
from redrive.store import Grouping, LetterPage, LetterQuota, Pruned, Query, Restored
from redrive.stores.codec import read_cursor, write_cursor
from redrive.stores.deduplicate import Kept
from redrive.stores.memory.inspection import MemoryInspection, fits
from redrive.stores.memory.log import MemoryEventLog
from redrive.stores.memory.row import Row
from redrive.stores.memory.tables import Identity

__all__ = ["MemoryHousekeeping", "MemoryLetters"]


class MemoryHousekeeping(MemoryEventLog):
    """`Housekeeping` over the tables."""

    async def prune(self, retention: Retention, *, limit: int = 500) -> Pruned:
        with self._lock:
            now = self._clock.now()
            delivered = self._delivered_before(now - retention.delivered)[:limit]
            self._pruned.update(row.destination for row in delivered)
            self._remove(delivered)
            resolved = self._resolved_before(now - retention.events)[:limit]
            self._pruned_resolved += len(resolved)
            self._remove(resolved)
            events, keys = self._prune_events(retention, limit=limit, now=now)
            keys += self._prune_keys(now - retention.idempotency, limit=limit)
            for key in [one for one, (_, until) in self._uniques.items() if until <= now][:limit]:
                del self._uniques[key]
            self._forget_tenants(now - retention.events, limit=limit)
            audit, replays = self._past_acts(now - retention.audit)
            self._forget_acts(audit[:limit], replays[:limit], now - retention.audit)
            return Pruned(
                delivered=len(delivered),
                resolved=len(resolved),
                events=events,
                keys=keys,
                audit=len(audit[:limit]),
                replays=len(replays[:limit]),
            )

    def _past_acts(self, by: datetime) -> tuple[list[AuditEntry], list[int]]:
        """Return the entries of the audit log, and the replays that were over, up to an instant."""
        replays = [number for number, one in self._replays.items() if one.was_over(by)]
        return [one for one in self._audit if one.at <= by], replays

    def _forget_acts(
        self, audit: Sequence[AuditEntry], replays: Sequence[int], by: datetime
    ) -> None:
        self._audit = self._audit[len(audit) :]
        for number in replays:
            del self._replays[number]
        self._aliases = {
            old: kept
            for old, news in self._aliases.items()
            if (kept := {new: at for new, at in news.items() if at > by})
        }

    async def regroup(self, grouped: Grouping, *, before: str, limit: int = 200) -> int:
        with self._lock:
            now = self._clock.now()
            found = self._outdated(before)[:limit]
            for row, fault in found:
                row.fault = grouped(fault, row.destination)
                if fault.group:
                    self._aliases.setdefault(fault.group, {}).setdefault(row.fault.group, now)
            return len(found)

    async def outdated(self, *, before: str) -> int:
        with self._lock:
            return len(self._outdated(before))

    def _outdated(self, before: str) -> list[tuple[Row, Fault]]:
        return [
            (row, row.fault)
            for row in self._rows.values()
            if row.group is not None and row.fault is not None and row.group < before
        ]

    def _forget_tenants(self, by: datetime, *, limit: int) -> None:
        busy = frozenset(
            (row.destination, row.event.tenant or "")
            for row in self._rows.values()
            if row.status in (Status.PENDING, Status.IN_FLIGHT)
        )
        idle = [
            one for one, past in self._tenants.items() if past.served_at <= by and one not in busy
        ]
        for one in idle[:limit]:
            del self._tenants[one]

    async def prunable(self, retention: Retention) -> Pruned:
        with self._lock:
            now = self._clock.now()
            delivered = self._delivered_before(now - retention.delivered)
            resolved = self._resolved_before(now - retention.events)
            gone = frozenset(row.id for row in (*delivered, *resolved))
            left = frozenset(row.event.id for row in self._rows.values() if row.id not in gone)
            idle = dict(self._idle)
            for row in (*delivered, *resolved):
                position = self._positions[row.event.id]
                idle[position] = max(row.finished_at, idle.get(position, row.finished_at))
            events = [
                (self._log[position].event, since)
                for position, since in idle.items()
                if position in self._log
                and self._may_go(position, since, retention, now=now)
                and self._log[position].event.id not in left
            ]
            expires = now - retention.idempotency
            audit, replays = self._past_acts(now - retention.audit)
            return Pruned(
                audit=len(audit),
                replays=len(replays),
                delivered=len(delivered),
                resolved=len(resolved),
                events=len(events),
                keys=sum(one.idempotency_key is not None and at <= expires for one, at in events)
                + sum(since <= expires for since in self._outlived.values()),
            )

    async def letter_quotas(self) -> Sequence[LetterQuota]:
        with self._lock:
            return [
                LetterQuota(
                    destination=name,
                    keep=one.dead_letters,
                    count=len(letters := self._dead_letters_of(name)),
                    oldest=letters[0].changed_at if letters else None,
                    now=self._clock.now(),
                )
                for name, one in sorted(self._destinations.items())
                if one.dead_letters is not None
            ]

    async def oldest_letters(self, destination: str, *, limit: int = 500) -> Sequence[Letter]:
        with self._lock:
            return [_letter(row) for row in self._dead_letters_of(destination)[:limit]]

    async def discard(
        self, letters: Sequence[Letter], *, actor: Actor, detail: str
    ) -> Sequence[DeliveryId]:
        with self._lock:
            now = self._clock.now()
            read = {one.delivery.id: one.delivery for one in letters}
            rows = [row for row in self._found(read) if self._is_as_read(row, read[row.id])]
            self._remove(rows, at=now)
            self._exported += len(rows)
            ids = [row.id for row in rows]
            if ids:
                self._note("export", actor, now=now, ids=ids, detail=detail)
            return ids

    async def take_watch(self, duty: str, worker: str, *, span: timedelta) -> bool:
        with self._lock:
            now = self._clock.now()
            holder, until = self._watches.get(duty, (worker, now))
            if holder != worker and until > now:
                return False
            self._watches[duty] = (worker, now + span)
            return True

    def _is_as_read(self, row: Row, read: Delivery) -> bool:
        return row.is_dead_letter and row.settled_at == read.settled_at and row.edits == read.edits

    def _delivered_before(self, moment: datetime) -> list[Row]:
        rows = [
            row
            for row in self._rows.values()
            if row.status is Status.DELIVERED and row.changed_at <= moment
        ]
        return sorted(rows, key=lambda row: (row.changed_at, row.id))

    def _resolved_before(self, moment: datetime) -> list[Row]:
        rows = [
            row
            for row in self._rows.values()
            if row.status is Status.FAILED
            and row.resolution is not None
            and row.resolution.at <= moment
        ]
        return sorted(rows, key=lambda row: (row.finished_at, row.id))

    def _prune_events(self, retention: Retention, *, limit: int, now: datetime) -> tuple[int, int]:
        expired = sorted(
            (since, position)
            for position, since in self._idle.items()
            if self._may_go(position, since, retention, now=now)
        )
        left = frozenset(row.event.id for row in self._rows.values())
        events = keys = 0
        for since, position in islice(expired, limit):
            del self._idle[position]
            event = self._log[position].event
            if event.id in left:  # whatever is left will make it idle once more
                continue
            events += 1
            del self._log[position], self._positions[event.id], self._known[(event.id,)]
            for identity in self._identities(event)[1:]:
                keys += self._outlive(identity, since, expires=now - retention.idempotency)
        self._pruned_events += events
        return events, keys

    def _may_go(
        self, position: int, since: datetime, retention: Retention, *, now: datetime
    ) -> bool:
        """Tell whether an event is old enough, and nobody has still to read it."""
        if not self._is_read(position):
            return False
        span = retention.keeps(self._log[position].event.type)
        return span is not None and since <= now - span

    def _is_read(self, position: int) -> bool:
        """Tell whether every projection is past an event."""
        return all(one.position.number >= position for _, one in self._checkpoints.values())

    def _outlive(self, identity: Identity, since: datetime, *, expires: datetime) -> bool:
        """Let a key go with its event, or remember what it was used for a while longer."""
        if since <= expires:
            self._known.pop(identity, None)
            return True
        self._outlived[identity] = since
        return False

    def _prune_keys(self, moment: datetime, *, limit: int) -> int:
        expired = [one for one, since in self._outlived.items() if since <= moment][:limit]
        for identity in expired:
            del self._outlived[identity], self._known[identity]
        return len(expired)

    def _dead_letters_of(self, destination: str) -> list[Row]:
        rows = [
            row
            for row in self._rows.values()
            if row.is_dead_letter and row.destination == destination
        ]
        return sorted(rows, key=lambda row: (row.changed_at, row.id))


class MemoryLetters(MemoryInspection, MemoryEventLog):
    """`Letters` over the tables."""

    async def letters(
        self, query: Query, *, cursor: str | None = None, limit: int = 500
    ) -> LetterPage:
        dead = msgspec.structs.replace(query, status=Status.FAILED)
        _, last = (0, 0) if cursor is None else read_cursor(cursor)
        with self._lock:
            groups = self._groups_named(dead.group)
            found = [
                row for row in self._rows.values() if row.id > last and fits(row, dead, groups)
            ]
            found.sort(key=lambda row: row.id)
            page = found[:limit]
            has_more = page and len(found) > limit
            return LetterPage(
                letters=tuple(_letter(row) for row in page),
                next_cursor=write_cursor(page[-1].changed_at, page[-1].id) if has_more else None,
            )

    async def restore(self, letters: Sequence[Letter], *, actor: Actor) -> Restored:
        with self._lock:
            now = self._clock.now()
            ids = [row.id for one in letters if (row := self._restore(one, now=now)) is not None]
            if ids:
                self._note("import", actor, now=now, ids=ids)
            return Restored(deliveries=tuple(ids), known=len(letters) - len(ids))

    def _restore(self, letter: Letter, *, now: datetime) -> Row | None:
        told, event = letter.delivery, letter.event
        is_known = any(
            row.event.id == event.id and row.recipient == told.recipient
            for row in self._rows.values()
        )
        place = self._positions.get(event.id)
        if is_known or (place is not None and self._log[place].event.erased is not None):
            return None
        if told.destination not in self._destinations:
            self._destinations[told.destination] = Destination(
                name=told.destination, patterns=("*",)
            )
            self._removed[told.destination] = now
        if event.id in self._positions:
            self._give(self._positions[event.id], told.recipient)
            event = self._log[self._positions[event.id]].event
        else:
            version = self._next(event, self._versions)
            self._log_event(Kept(event, (told.recipient,), version))
        self._last_delivery_id += 1
        row = Row(
            id=DeliveryId(self._last_delivery_id),
            event=event,
            destination=told.destination,
            enqueued_at=told.enqueued_at,
            due=told.due,
            generation=told.generation,
            priority=told.priority,
            deadline=told.deadline,
            status=told.status,
            kind=told.kind,
            attempts=told.attempts,
            snoozes=told.snoozes,
            crashes=told.crashes,
            settled_at=told.settled_at,
            reason=told.reason,
            fault=told.fault,
            first_failed_at=told.first_failed_at,
            last_failed_at=told.last_failed_at,
            resolution=told.resolution,
            log=told.log,
            cycles=told.cycles,
            payload=told.payload,
            edits=told.edits,
            auto_replays=told.auto_replays,
            rule=told.rule,
            exchange=told.exchange,
            addressees=told.addressees,
        )
        self._rows[row.id] = row
        return row


def _letter(row: Row) -> Letter:
    delivery = msgspec.structs.replace(
        row.delivery(behind=None), exchange=row.exchange, addressees=row.addressees
    )
    return Letter(event=row.event, delivery=delivery)
