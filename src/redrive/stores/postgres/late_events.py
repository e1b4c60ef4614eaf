"""Events that were published by older routes than there were, in SQL: they get what they miss."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from redrive.conditions.routing import fulfils
from redrive.model.destination import Destination, Order, Recipient
from redrive.model.recipient import destination_of, is_given, pin_of
from redrive.store import CaughtUp
from redrive.stores.codec import destination_from
from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.core import Core
from redrive.stores.postgres.lanes import line_up_strays
from redrive.stores.postgres.pool import Link
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sql.giving import give
from redrive.stores.sql.lanes import hold

__all__ = ["LateEventsRole"]

_MOST_AT_ONCE = 500
_PATIENCE_SECONDS = 5.0

# Who was under way at the change has an earlier number than this transaction, which sees it.
_BOUND = """
UPDATE redrive.route_changes SET until = redrive.log_time() WHERE version IN (
    SELECT version FROM redrive.route_changes WHERE NOT is_done AND until IS NULL
    ORDER BY version FOR UPDATE SKIP LOCKED
)
RETURNING version
"""
_LATE = """
SELECT position, routes_version FROM redrive.late_events
ORDER BY position LIMIT $1 FOR UPDATE SKIP LOCKED
"""
_MARK = """
INSERT INTO redrive.late_events AS known (position, routes_version)
SELECT position, $2 FROM unnest($1::bigint[]) AS position ORDER BY position
ON CONFLICT (position) DO UPDATE
SET routes_version = greatest(known.routes_version, excluded.routes_version)
"""
_FORGET = "DELETE FROM redrive.late_events WHERE position = ANY ($1::bigint[])"
_CHANGES = """
SELECT version, documents FROM redrive.route_changes
WHERE version > $1 AND version <= $2 ORDER BY version
"""
_EVENTS = """
SELECT position, type, redrive.readable(document) ->> 'tenant', key, routes_version, destinations,
       redrive.readable(document) -> 'to' IS NOT NULL
FROM redrive.events
WHERE position = ANY ($1::bigint[])
"""
# Everybody who could have published by older routes has ended, so where they have is known now.
_TAKE_CHANGE = """
SELECT version, documents, read_xid, read_position,
       coalesce(last_xid, pg_snapshot_xmax(pg_current_snapshot())::text::bigint + (
           SELECT value FROM redrive.counters WHERE name = 'log_offset'
       )) AS last_xid
FROM redrive.route_changes WHERE NOT is_done AND until <= redrive.log_end()
ORDER BY version LIMIT 1 FOR UPDATE SKIP LOCKED
"""
_SLICE = """
SELECT xid, position, type, redrive.readable(document) ->> 'tenant', key, routes_version,
       destinations, redrive.readable(document) -> 'to' IS NOT NULL
FROM redrive.events
WHERE (xid, position) > ($1, $2) AND xid < $3 ORDER BY xid, position LIMIT $4
"""
_READ_ON = """
UPDATE redrive.route_changes SET read_xid = $2, read_position = $3, last_xid = $4
WHERE version = $1
"""
_CLOSE = "UPDATE redrive.route_changes SET is_done = true WHERE version = $1"
# Nobody is registering just now, so a number that is ahead belongs to somebody who gave up.
_HEAL = """
UPDATE redrive.counters SET value = (SELECT last_value FROM redrive.route_versions)
WHERE name = (
    SELECT name FROM redrive.counters WHERE name = 'routes_version' FOR UPDATE SKIP LOCKED
) AND value < (SELECT last_value FROM redrive.route_versions WHERE is_called)
"""
_DESTINATIONS = """
SELECT id, name, document FROM redrive.destinations
WHERE name = ANY ($1::text[]) AND removed_at IS NULL
"""
_LOCK_EVENTS = """
SELECT position, destinations, document FROM redrive.events
WHERE position = ANY ($1::bigint[]) ORDER BY position FOR NO KEY UPDATE SKIP LOCKED
"""
_INSERT = """
INSERT INTO redrive.deliveries
    (position, destination, is_ready, priority, generation, tenant, lane, is_behind, due,
     deadline, rule, enqueued_at)
SELECT given.position, given.destination, given.due <= $1, given.priority, given.generation,
       given.tenant, given.lane, given.lane IS NOT NULL AND (
           row_number() OVER (
               PARTITION BY given.destination, given.lane ORDER BY given.position
           ) > 1
           OR EXISTS (
               SELECT FROM redrive.deliveries AS head
               WHERE head.destination = given.destination AND head.lane = given.lane
                 AND head.status <> 2 AND head.resolution IS NULL
           )
       ),
       given.due, given.deadline, given.rule, $1::timestamptz
FROM unnest($2::bigint[], $3::integer[], $4::smallint[], $5::text[], $6::text[], $7::text[],
            $8::timestamptz[], $9::timestamptz[], $10::text[])
    AS given (position, destination, priority, generation, tenant, lane, due, deadline, rule)
ORDER BY given.position
"""


class _Late(NamedTuple):
    """An event that may lack deliveries, and to whom."""

    position: int
    key: str | None
    lacking: frozenset[Recipient]


class LateEventsRole(Core):
    """How events get what they miss, of `Registry`."""

    async def catch_up(self) -> CaughtUp:
        if not (await self._duties()).has_late:
            return CaughtUp()
        caught_up = await self._write(_catch_up, within=_PATIENCE_SECONDS)
        if caught_up.added:
            self._notifications.notify()
        return caught_up


async def _catch_up(link: PostgresSession, now: datetime) -> CaughtUp:
    """Go through one stretch of the log."""
    has_read = await _mark_passed_by(link, _MOST_AT_ONCE)
    marks = {row[0]: row[1] for row in await link.fetch(_LATE, _MOST_AT_ONCE)}
    if not marks:
        return CaughtUp(has_more=has_read)
    await link.fetch(_HEAL)
    late = await _find_lacking(link, marks)
    busy, added = await _complete(link, late, now=now)
    busy |= await line_up_strays(link, list(marks))
    done = [position for position in marks if position not in busy]
    await link.fetch(_FORGET, done)
    return CaughtUp(added=added, has_more=has_read or (bool(done) and len(marks) == _MOST_AT_ONCE))


async def _mark_passed_by(link: Link, limit: int) -> bool:
    """Mark events whose transactions were under way when routes changed; tell if that goes on.

    They could not know of the change when they were stored.
    """
    if await link.fetch(_BOUND):
        return True
    for version, documents, read_xid, read_position, last_xid in await link.fetch(_TAKE_CHANGE):
        changed = _read(documents)
        rows = await link.fetch(_SLICE, read_xid, read_position, last_xid, limit)
        passed_by = [
            position
            for _, position, kind, tenant, key, routes_version, names, is_addressed in rows
            if routes_version is not None
            and routes_version < version
            and (
                (not is_addressed and _lacking(kind, tenant, names, changed))
                or (key is not None and _has(names, changed))
            )
        ]
        if passed_by:
            await link.fetch(_MARK, passed_by, version)
        if len(rows) == limit:
            await link.fetch(_READ_ON, version, *rows[-1][:2], last_xid)
        else:
            await link.fetch(_CLOSE, version)
        return True
    return False


async def _find_lacking(link: Link, marks: Mapping[int, int]) -> list[_Late]:
    """Return what events lack by the changes that they ought to have known of."""
    events = await link.fetch(_EVENTS, list(marks))
    first = min((row[4] for row in events), default=0)
    changes = [
        (version, _read(documents))
        for version, documents in await link.fetch(_CHANGES, first, max(marks.values()))
    ]
    return [
        _Late(
            position,
            key,
            frozenset(
                one
                for version, changed in changes
                if routes_version < version <= marks[position] and not is_addressed
                for one in _lacking(kind, tenant, names, changed)
            ),
        )
        for position, kind, tenant, key, routes_version, names, is_addressed in events
    ]


async def _complete(
    link: PostgresSession, late: Sequence[_Late], *, now: datetime
) -> tuple[frozenset[int], int]:
    """Give events the deliveries they lack, as if they were just published.

    Returns which of them somebody else has in hand, and how many deliveries were added.
    """
    lacking = {one.position: one for one in late if one.lacking}
    wanted = sorted({destination_of(lacked.name) for one in late for lacked in one.lacking})
    destinations = {
        name: (number, destination_from(document))
        for number, name, document in await link.fetch(_DESTINATIONS, wanted)
    }
    ordered = {name for name, (_, one) in destinations.items() if one.order is not Order.NONE}
    keys = {one.key for one in late if one.key is not None and _goes_to(one, ordered)}
    held = await hold(link, keys) if keys else set()
    free = [
        one.position
        for one in lacking.values()
        if one.key not in keys - held or not _goes_to(one, ordered)
    ]
    rows: list[tuple[object, ...]] = []
    given: list[tuple[int, str | None, str]] = []
    busy = set(lacking)
    for position, names, document in await link.fetch(_LOCK_EVENTS, free):
        busy.remove(position)
        event = link.codec.event(document)
        if event.erased is not None:
            continue
        for lacked in sorted(lacking[position].lacking):
            name = destination_of(lacked.name)
            is_there = is_given(lacked.name, names) or name not in destinations
            if is_there or not (lacked.is_certain or fulfils(lacked.route, event)):
                continue
            number, described = destinations[name]
            given.append((position, None, lacked.name))
            rows.append(
                (
                    position,
                    number,
                    event.priority,
                    event.generation,
                    event.tenant,
                    event.key if name in ordered else None,
                    event.due or now,
                    described.deadline_of(event, now=now),
                    pin_of(lacked.name) or None,
                )
            )
    if rows:
        await link.fetch(_INSERT, now, *columns(rows, 9))
        await give(link, given)
    return frozenset(busy), len(rows)


def _read(documents: Sequence[str]) -> list[Destination]:
    return [destination_from(one) for one in documents]


def _has(names: Sequence[str], changed: Sequence[Destination]) -> bool:
    given = {destination_of(one) for one in names}
    return any(one.name in given for one in changed)


def _goes_to(late: _Late, destinations: Collection[str]) -> bool:
    return any(destination_of(one.name) in destinations for one in late.lacking)


def _lacking(
    kind: str, tenant: str | None, names: Sequence[str], changed: Sequence[Destination]
) -> list[Recipient]:
    return [
        one
        for destination in changed
        for one in destination.recipients(kind, tenant)
        if not is_given(one.name, names)
    ]
