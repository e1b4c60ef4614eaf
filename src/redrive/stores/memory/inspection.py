"""Looking into the memory store: lists, one delivery, and the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.model.delivery import Delivery, DeliveryId, Kind, Status
from redrive.model.destination import Destination
from redrive.model.event import EventId
from redrive.model.pattern import matches
from redrive.policies.declaring import differing
from redrive.store import (
    MOST_COMPARED,
    MOST_COUNTED,
    DestinationFigures,
    DueWork,
    EventDelivery,
    EventPage,
    EventQuery,
    Figures,
    FoundEvent,
    Group,
    LaneFigures,
    LetterFigures,
    Page,
    Query,
    WorkerFigures,
    Workload,
)
from redrive.stores.codec import from_micros, micros, read_cursor, read_place, write_cursor
from redrive.stores.deduplicate import Kept
from redrive.stores.memory.row import Row
from redrive.stores.memory.tables import Heads, Tables

__all__ = ["MemoryInspection", "fits"]

Place = tuple[int, int]
_TOP_TENANTS = 3
_MOST_TENANTS = 10


class MemoryInspection(Tables):
    """`Inspection` and `EventSearch` over the tables."""

    async def find(
        self,
        query: Query,
        *,
        cursor: str | None = None,
        limit: int = 50,
        most_read: int | None = None,
    ) -> Page:
        with self._lock:
            found, end = self._fitting(query, cursor, most_read)
            rows, next_cursor = self._cut(found, cursor, limit)
            heads = self._heads()
            return Page(
                deliveries=tuple(row.delivery(self._behind(row, heads)) for _, row in rows),
                next_cursor=next_cursor or end,
            )

    def _fitting(
        self, query: Query, cursor: str | None, most_read: int | None
    ) -> tuple[Sequence[tuple[Place, Row]], str | None]:
        """Return what fits among what is looked at, and where that ends if there is more."""
        groups = self._groups_named(query.group)
        rest = (
            query.listed
            if query.text is None and most_read is not None
            else msgspec.structs.replace(query, text=None)
        )
        left = [
            (_place(row) if query.status else (0, row.id), row)
            for row in self._rows.values()
            if fits(row, rest, groups)
        ]
        left.sort(key=lambda one: one[0], reverse=True)
        read: Sequence[tuple[Place, Row]] = left
        end = None
        if most_read is not None:
            read, end = self._cut(left, cursor, most_read)
        return [(place, row) for place, row in read if fits(row, query, groups)], end

    async def find_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        with self._lock:
            row = self._rows.get(delivery_id)
            if row is None:
                return None
            delivery = row.delivery(self._behind(row, self._heads()))
            return msgspec.structs.replace(
                delivery, exchange=row.exchange, addressees=row.addressees
            )

    async def find_events(
        self, query: EventQuery, *, cursor: str | None = None, limit: int = 50
    ) -> EventPage:
        before = None if cursor is None else read_place(cursor)
        with self._lock:
            rows: dict[EventId, list[Row]] = {}
            for row in self._rows.values():
                rows.setdefault(row.event.id, []).append(row)
            found = [
                (position, event)
                for position, kept in reversed(self._log.items())
                if (before is None or position < before)
                and query.fits(event := _found_event(kept, rows.get(kept.event.id, ())))
                and query.fits_one_of(event.deliveries)
            ]
        return EventPage(
            events=tuple(event for _, event in found[:limit]),
            next_cursor=str(found[limit - 1][0]) if len(found) > limit else None,
        )

    async def lanes(
        self, *, destination: str | None = None, limit: int = 50
    ) -> Sequence[LaneFigures]:
        with self._lock:
            heads = self._heads()
            stopped = [self._rows[head] for head in heads.values()]
            found = [
                LaneFigures(
                    destination=row.destination,
                    key=row.event.key or "",
                    head=row.id,
                    since=row.changed_at,
                    reason=row.reason,
                    waiting=sum(self._behind(one, heads) == row.id for one in self._rows.values()),
                )
                for row in stopped
                if row.is_dead_letter
                and row.reason is not None
                and destination in (None, row.destination)
            ]
            return sorted(found, key=lambda one: (one.since, one.head))[:limit]

    async def groups(
        self, query: Query, *, limit: int = 50, most_read: int | None = None
    ) -> Sequence[Group]:
        with self._lock:
            members: dict[str, list[Row]] = {}
            for _, row in self._fitting(query, None, most_read)[0]:
                if row.group is not None:
                    members.setdefault(row.group, []).append(row)
            groups = sorted((_group(rows) for rows in members.values()), key=lambda one: one.id)
            groups.sort(key=lambda one: (one.count, one.last_seen), reverse=True)
            return tuple(groups[:limit])

    async def figures(self) -> Figures:
        with self._lock:
            now = self._clock.now()
            heads = self._heads()
            return Figures(
                now=now,
                events=len(self._log),
                unrouted=sum(not entry.destinations for entry in self._log.values()),
                refused_settlements=self._refused_settlements,
                deleted=self._deleted,
                destinations=tuple(
                    self._count(self._destinations[name], heads, now=now) for name in self._listed()
                ),
                workers=self._worker_figures(with_others=True),
                pruned=self._pruned.total(),
                pruned_resolved=self._pruned_resolved,
                pruned_events=self._pruned_events,
                exported=self._exported,
                due=self._due_work(heads, now=now),
                letters=self._letter_figures(now),
            )

    async def workload(self) -> Workload:
        with self._lock:
            now = self._clock.now()
            due = tuple(
                msgspec.structs.replace(one, count=min(one.count, MOST_COUNTED))
                for one in self._due_work(self._heads(), now=now)
            )
            return Workload(now=now, due=due, workers=self._worker_figures())

    def _worker_figures(self, *, with_others: bool = False) -> tuple[WorkerFigures, ...]:
        standings = {one: self._standing(one) for one in self._destinations if with_others}
        return tuple(
            WorkerFigures(
                id=worker,
                seen_at=seen_at,
                in_flight=sum(row.worker == worker for row in self._rows.values()),
                serving=self._serving.get(worker),
                others=differing(self._releases.get(worker, {}), standings),
            )
            for worker, seen_at in sorted(self._workers.items())
        )

    def _due_work(self, heads: Heads, *, now: datetime) -> tuple[DueWork, ...]:
        counts = Counter(
            (row.destination, row.generation)
            for row in self._rows.values()
            if row.status is Status.PENDING and row.is_due(now) and self._behind(row, heads) is None
        )
        return tuple(
            DueWork(destination=destination, generation=generation, count=count)
            for (destination, generation), count in sorted(counts.items())
        )

    def _letter_figures(self, now: datetime) -> LetterFigures:
        dead = [row for row in self._rows.values() if row.is_dead_letter]
        span = LetterFigures().span
        reasons = Counter(row.reason for row in dead if row.reason is not None)
        tenants = Counter(row.event.tenant for row in dead if row.event.tenant is not None)
        return LetterFigures(
            count=len(dead),
            oldest=min((row.changed_at for row in dead), default=None),
            lately=sum(row.changed_at > now - span for row in dead),
            span=span,
            by_reason=tuple(sorted(reasons.items(), key=_most_first)),
            by_tenant=tuple(sorted(tenants.items(), key=_most_first)[:_MOST_TENANTS]),
        )

    def _cut(
        self, found: Sequence[tuple[Place, Row]], cursor: str | None, limit: int
    ) -> tuple[Sequence[tuple[Place, Row]], str | None]:
        """Return the rows behind the cursor, each with its place, and the cursor behind those."""
        if cursor is not None:
            last = read_cursor(cursor)
            found = [(place, row) for place, row in found if place < last]
        page = found[:limit]
        if not page or len(found) == len(page):
            return page, None
        (time, number), _ = page[-1]
        return page, write_cursor(from_micros(time), DeliveryId(number))

    def _count(
        self, destination: Destination, heads: Heads, *, now: datetime
    ) -> DestinationFigures:
        rows = [row for row in self._rows.values() if row.destination == destination.name]
        pending = [row for row in rows if row.status is Status.PENDING]
        behind = [row for row in pending if self._behind(row, heads) is not None]
        startable = [row.due for row in pending if row.is_due(now) and row not in behind]
        failed = [row for row in rows if row.status is Status.FAILED]
        return DestinationFigures(
            name=destination.name,
            patterns=destination.patterns,
            pending=len(pending),
            waiting=sum(not row.is_due(now) for row in pending),
            retrying=sum(not row.is_due(now) and row.kind is Kind.RETRY for row in pending),
            behind=len(behind),
            due=len(startable),
            in_flight=sum(row.status is Status.IN_FLIGHT for row in rows),
            delivered=sum(row.status is Status.DELIVERED for row in rows),
            failed=sum(row.is_dead_letter for row in failed),
            resolved=sum(not row.is_dead_letter for row in failed),
            oldest_due=min(startable, default=None),
            pruned=self._pruned[destination.name],
            oldest_failed=min(
                (row.changed_at for row in failed if row.is_dead_letter), default=None
            ),
            keep=destination.dead_letters,
            is_disabled=destination.is_disabled,
            is_removed=destination.name in self._removed,
        )


def fits(row: Row, query: Query, groups: frozenset[str] | None) -> bool:
    """Tell whether a query finds a row; `groups` are those that its group stands for."""
    event, fault = row.event, row.fault
    return (
        query.status in (None, row.status)
        and query.destination in (None, row.destination)
        and (query.event_type is None or matches(query.event_type, event.type))
        and query.event_id in (None, event.id)
        and query.key in (None, event.key)
        and query.tenant in (None, event.tenant)
        and query.reason in (None, row.reason)
        and query.error_class in (None, fault and fault.error_class)
        and (groups is None or row.group in groups)
        and (query.since is None or row.changed_at >= query.since)
        and (query.until is None or row.changed_at < query.until)
        and (query.text is None or query.text.casefold() in _searchable(row))
        and (query.with_resolved or query.status is None or row.resolution is None)
    )


def _found_event(kept: Kept, rows: Sequence[Row]) -> FoundEvent:
    event = kept.event
    return FoundEvent(
        id=event.id,
        type=event.type,
        published_at=event.published_at,
        key=event.key,
        tenant=event.tenant,
        source=event.source,
        version=kept.version,
        destinations=kept.destinations,
        deliveries=tuple(
            EventDelivery(
                id=row.id,
                destination=row.destination,
                status=row.status,
                is_resolved=row.resolution is not None,
            )
            for row in rows
        ),
    )


def _group(rows: Sequence[Row]) -> Group:
    latest = max(rows, key=_place)
    if latest.fault is None or latest.reason is None:
        raise AssertionError(f"Delivery {latest.id} has not failed, so it is in no group.")
    compared = sorted(rows, key=_place)[-MOST_COMPARED:]
    tenants = Counter(row.event.tenant for row in compared if row.event.tenant is not None)
    return Group(
        id=latest.fault.group,
        title=latest.fault.title,
        destination=latest.destination,
        error_class=latest.fault.error_class,
        reason=latest.reason,
        count=len(rows),
        first_seen=min(row.changed_at for row in rows),
        last_seen=latest.changed_at,
        example=latest.id,
        message=latest.fault.message,
        top_tenants=tuple(sorted(tenants.items(), key=_most_first)[:_TOP_TENANTS]),
    )


def _most_first(tenant: tuple[str, int]) -> tuple[int, str]:
    name, count = tenant
    return -count, name


def _searchable(row: Row) -> str:
    error = f"{row.fault.error_class}\n{row.fault.message}" if row.fault else ""
    payloads = bytes(row.event.payload).decode(), bytes(row.carried.payload).decode()
    return "\n".join([error, *payloads]).casefold()


def _place(row: Row) -> Place:
    return micros(row.changed_at), row.id
