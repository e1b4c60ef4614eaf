"""Events and their deliveries, appended in steps of one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from redrive.errors import UsageError
from redrive.model.destination import Destination, Order
from redrive.model.event import Event, EventId
from redrive.model.recipient import destination_of, pin_of
from redrive.store import Appended, Entry
from redrive.stores.codec import destination_from
from redrive.stores.deduplicate import (
    Kept,
    Remains,
    has_expectations,
    is_refused,
    numbered,
    sift,
)
from redrive.stores.postgres.codec import array_text, columns
from redrive.stores.postgres.facts import Numbers
from redrive.stores.postgres.idempotency import give_back_keys, take_keys
from redrive.stores.postgres.pool import Link
from redrive.stores.postgres.uniques import give_back_uniques, take_uniques

__all__ = [
    "append",
    "read_numbers",
    "take_versions",
]


_KNOWN = """
SELECT c.value, e.destinations, e.version, e.document
FROM redrive.counters c LEFT JOIN redrive.events e ON e.id = ANY ($1::uuid[])
WHERE c.name = 'routes_version'
"""
_TAKE_VERSIONS = """
INSERT INTO redrive.keys AS known (key, version, xid)
SELECT key, events, redrive.log_time()
FROM unnest($1::text[], $2::bigint[]) AS given (key, events) ORDER BY key
ON CONFLICT (key) DO UPDATE
SET version = known.version + excluded.version, xid = greatest(known.xid, excluded.xid)
RETURNING key, version, xid
"""
# A transaction whose view is older than this statement cannot know who is in a lane by now, and
# while routes are changing there may be somebody who belongs into it. What is added then stays
# behind, and the first claim after the commit finds out who goes next.
_INSERT = """
WITH stored AS (
    INSERT INTO redrive.events
        (id, type, key, version, xid, destinations, document, routes_version, counted)
    SELECT id, type, key, version, coalesce(xid, redrive.log_time()), destinations::text[],
           document, $18::integer, false
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[],
                $7::text[])
        WITH ORDINALITY AS given (id, type, key, version, xid, destinations, document, place)
    ORDER BY place
    RETURNING id, position, destinations, routes_version
), idle AS (
    INSERT INTO redrive.idle (position, since)
    SELECT position, $8::timestamptz FROM stored WHERE destinations = '{}'
), late AS (
    INSERT INTO redrive.late_events (position, routes_version)
    SELECT position, (SELECT last_value FROM redrive.route_versions) FROM stored
    WHERE routes_version < (SELECT last_value FROM redrive.route_versions WHERE is_called)
), present AS MATERIALIZED (
    SELECT current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
           OR EXISTS (SELECT FROM redrive.route_changes WHERE NOT is_done AND begins_order)
           OR EXISTS (SELECT FROM redrive.late_events) AS is_unsure
), unsure AS (
    INSERT INTO redrive.late_lanes (destination, lane)
    SELECT DISTINCT given.destination, given.lane
    FROM present CROSS JOIN unnest($10::integer[], $15::text[]) AS given (destination, lane)
    WHERE present.is_unsure AND given.lane IS NOT NULL
), sent AS (
    INSERT INTO redrive.deliveries
        (position, destination, is_ready, kind, priority, generation, tenant, lane, is_behind, due,
         deadline, enqueued_at, rule, counted)
    SELECT stored.position, given.destination, coalesce(given.due, $8) <= $8,
           CASE WHEN coalesce(given.due, $8) <= $8 AND given.priority = 0 AND given.lane IS NULL
                THEN 3 ELSE 0 END, given.priority,
           given.generation, given.tenant, given.lane, given.lane IS NOT NULL AND (
               present.is_unsure
               OR row_number() OVER (
                   PARTITION BY given.destination, given.lane ORDER BY given.place
               ) > 1
               OR coalesce((
                   SELECT true FROM redrive.deliveries AS head
                   WHERE head.destination = given.destination AND head.lane = given.lane
                     AND head.status <> 2 AND head.resolution IS NULL
                   ORDER BY head.id LIMIT 1
               ), false)
           ),
           coalesce(given.due, $8), given.deadline, $8, given.rule, false
    FROM unnest($9::uuid[], $10::integer[], $11::timestamptz[], $12::smallint[], $13::text[],
                $14::text[], $15::text[], $16::timestamptz[], $17::text[]) WITH ORDINALITY
        AS given (id, destination, due, priority, generation, tenant, lane, deadline, rule, place)
    JOIN stored ON stored.id = given.id CROSS JOIN present
    ORDER BY given.place
    RETURNING destination, generation, is_ready, is_behind
)
INSERT INTO redrive.count_changes (destination, state, detail, tenant, number)
SELECT destination, 1 - is_ready::integer + 2 * is_behind::integer, generation, '', count(*)
FROM sent GROUP BY 1, 2, 3
UNION ALL
SELECT 0, CASE WHEN destinations = '{}' THEN 41 ELSE 40 END, '', '', count(*)
FROM stored GROUP BY 2
"""
_DESTINATIONS = """
SELECT id, name, document FROM redrive.destinations
WHERE name = ANY ($1::text[]) AND removed_at IS NULL
"""
_FORGET_NEW = "DELETE FROM redrive.keys WHERE key = ANY ($1::text[]) AND version = 0"


async def append(
    link: Link,
    entries: Sequence[Entry],
    *,
    routes_version: int,
    all_or_nothing: bool,
    now: datetime,
) -> Appended | None:
    """Append within the open transaction; `None` if there are newer routes."""
    known: dict[object, Kept | Remains] = {}
    current = routes_version
    for of_routes, destinations, version, document in await link.fetch(
        _KNOWN, [entry.event.id for entry in entries]
    ):
        current = of_routes
        if document is not None:
            event = link.codec.event(document)
            known[event.id] = Kept(event, tuple(destinations), version)
    if current != routes_version:
        return None
    try:
        destinations = await _destinations_of(link, entries)
    except UsageError:
        # Each statement sees what was committed before it: one may have been removed meanwhile.
        if (await read_numbers(link)).version == routes_version:
            raise
        return None
    taken = await take_keys(link, entries, known)
    uniques = await take_uniques(link, entries, known, now=now)
    versions = await _versions(link, entries) if has_expectations(entries) else {}
    results, fresh = sift(entries, known, versions.copy(), uniques.held.copy(), codec=link.codec)
    if is_refused(results):
        stored = [] if all_or_nothing else fresh
        await _give_back(link, taken, keys=versions, stored=stored)
        fresh = stored
    elif len(fresh) < len(entries) and taken and uniques.asked:
        await _give_back(link, taken, keys=(), stored=fresh)
    await give_back_uniques(link, uniques, stored=fresh)
    given = (
        await _insert(link, fresh, destinations, routes_version=current, now=now) if fresh else {}
    )
    return Appended(numbered(results, given))


async def _versions(link: Link, entries: Sequence[Entry]) -> dict[str, int]:
    """Return how far the keys of these entries are; nobody else publishes to them from now on."""
    keys = {entry.event.key for entry in entries if entry.event.key is not None}
    rows = await link.fetch(_TAKE_VERSIONS, list(keys), [0] * len(keys))
    return {key: version for key, version, _ in rows}


async def _give_back(
    link: Link,
    taken: Sequence[tuple[str, str]],
    *,
    keys: Collection[str],
    stored: Sequence[Entry],
) -> None:
    """Leave no trace of entries that are not stored."""
    used = {(entry.event.source, entry.event.idempotency_key) for entry in stored}
    await give_back_keys(link, [pair for pair in taken if pair not in used])
    new = set(keys) - {entry.event.key for entry in stored}
    if new:
        await link.fetch(_FORGET_NEW, sorted(new))


async def _insert(
    link: Link,
    entries: Sequence[Entry],
    destinations: Mapping[str, tuple[int, Destination]],
    *,
    routes_version: int,
    now: datetime,
) -> dict[EventId, int]:
    """Store events and their deliveries; return the versions of those that have a key."""
    versions = await take_versions(link, [entry.event.key for entry in entries])
    events = [
        (
            entry.event.id,
            entry.event.type,
            entry.event.key,
            *versions[place],
            array_text(entry.destinations),
            link.codec.event_text(entry.event),
        )
        for place, entry in enumerate(entries)
    ]
    deliveries = [
        _delivery_row(entry.event, destinations[destination_of(name)], name, now=now)
        for entry in entries
        for name in entry.destinations
    ]
    await link.fetch(_INSERT, *columns(events, 7), now, *columns(deliveries, 9), routes_version)
    return {
        entry.event.id: version
        for entry, (version, _) in zip(entries, versions, strict=True)
        if version is not None
    }


async def take_versions(
    link: Link, keys: Sequence[str | None], *, also: Collection[str] = ()
) -> list[tuple[int | None, int | None]]:
    """Return each event's version within its key, and its time in the log.

    Whoever publishes to the same key meanwhile waits until this transaction ends, so that the
    order of a key is the order of commits. `also` are keys to keep others from meanwhile.
    """
    counts = Counter(dict.fromkeys(also, 0))
    counts.update(key for key in keys if key is not None)
    if not counts:
        return [(None, None)] * len(keys)
    taken = {
        key: (version - counts[key], xid)
        for key, version, xid in await link.fetch(
            _TAKE_VERSIONS, list(counts), list(counts.values())
        )
    }
    turns: list[tuple[int | None, int | None]] = []
    for key in keys:
        if key is None:
            turns.append((None, None))
        else:
            version, xid = taken[key]
            taken[key] = (version + 1, xid)
            turns.append((version + 1, xid))
    return turns


def _delivery_row(
    event: Event[msgspec.Raw],
    destination: tuple[int, Destination],
    recipient: str,
    *,
    now: datetime,
) -> tuple[object, ...]:
    number, described = destination
    return (
        event.id,
        number,
        event.due,
        event.priority,
        event.generation,
        event.tenant,
        event.key if described.order is not Order.NONE else None,
        described.deadline_of(event, now=now),
        pin_of(recipient) or None,
    )


async def _destinations_of(
    link: Link, entries: Sequence[Entry]
) -> dict[str, tuple[int, Destination]]:
    """Return the id of each destination that is wanted, and what is declared of it."""
    names = {destination_of(name) for entry in entries for name in entry.destinations}
    found = {
        name: (number, destination_from(document))
        for number, name, document in await link.fetch(_DESTINATIONS, list(names))
    }
    if missing := sorted(names - found.keys()):
        raise UsageError(
            f"The destination {missing[0]!r} is not registered in this store; "
            "start its worker once, or register it, before publishing to it."
        )
    return found


async def read_numbers(link: Link) -> Numbers:
    """Return the numbers of the destinations, with the version of the routes."""
    rows = await link.fetch(
        "SELECT c.value, t.name, t.id, t.document::json ->> 'expire_after' IS NOT NULL "
        "FROM redrive.counters c LEFT JOIN redrive.destinations t ON t.removed_at IS NULL "
        "WHERE c.name = 'routes_version'"
    )
    return Numbers(
        rows[0][0],
        {name: number for _, name, number, _ in rows if name is not None},
        frozenset(name for _, name, _, expires in rows if expires),
    )
