"""The event log and the registry of destinations, in SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.errors import UsageError
from redrive.model.destination import Destination, Order, Routes
from redrive.model.event import Event, EventId
from redrive.store import Append, Appended, Conflict, Entry, LoggedEvent, RoutesChanged
from redrive.stores.codec import event_from, json_text
from redrive.stores.postgres.codec import is_uuid
from redrive.stores.postgres.connection import Link
from redrive.stores.sifting import sift

__all__ = ["append", "count", "find_event", "grow", "read_events", "read_routes", "register"]

_destinations = msgspec.json.Decoder(Destination)

_KNOWN = """
SELECT c.value, e.destinations, e.document
FROM redrive.counters c LEFT JOIN redrive.events e ON e.id = ANY ($1::uuid[])
WHERE c.name = 'routes_version'
"""
_TAKE_KEYS = """
WITH taken AS (
    INSERT INTO redrive.idempotency (source, key, event)
    SELECT source, key, event FROM unnest($1::text[], $2::text[], $3::uuid[])
        AS given (source, key, event)
    ORDER BY source, key
    ON CONFLICT (source, key) DO NOTHING
    RETURNING event
)
SELECT event::text FROM taken
"""
_KEYED = """
SELECT i.source, i.key, e.destinations, e.document
FROM unnest($1::text[], $2::text[]) AS given (source, key)
JOIN redrive.idempotency i ON i.source = given.source AND i.key = given.key
JOIN redrive.events e ON e.id = i.event
"""
_GIVE_BACK_KEYS = "DELETE FROM redrive.idempotency WHERE event = ANY ($1::uuid[])"
_TAKE_TURNS = """
INSERT INTO redrive.keys AS known (key, version, xid)
SELECT key, events, redrive.log_time()
FROM unnest($1::text[], $2::bigint[]) AS given (key, events) ORDER BY key
ON CONFLICT (key) DO UPDATE
SET version = known.version + excluded.version, xid = greatest(known.xid, excluded.xid)
RETURNING key, version, xid
"""
_INSERT = """
WITH stored AS (
    INSERT INTO redrive.events (id, type, key, version, xid, destinations, document)
    SELECT id, type, key, version, coalesce(xid, redrive.log_time()), destinations::text[],
           document
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[],
                $7::text[])
        WITH ORDINALITY AS given (id, type, key, version, xid, destinations, document, place)
    ORDER BY place
    RETURNING id, position
)
INSERT INTO redrive.deliveries
    (position, destination, is_ready, priority, generation, tenant, lane, is_behind, due,
     deadline, enqueued_at)
SELECT stored.position, given.destination, coalesce(given.due, $8) <= $8, given.priority,
       given.generation, given.tenant, given.lane, given.lane IS NOT NULL AND (
           row_number() OVER (PARTITION BY given.destination, given.lane ORDER BY given.place) > 1
           OR EXISTS (
               SELECT FROM redrive.deliveries AS head
               WHERE head.destination = given.destination AND head.lane = given.lane
                 AND head.status <> 2 AND head.resolution IS NULL
           )
       ),
       coalesce(given.due, $8), given.deadline, $8
FROM unnest($9::uuid[], $10::integer[], $11::timestamptz[], $12::smallint[], $13::text[],
            $14::text[], $15::text[], $16::timestamptz[]) WITH ORDINALITY
    AS given (id, destination, due, priority, generation, tenant, lane, deadline, place)
JOIN stored ON stored.id = given.id
ORDER BY given.place
"""
_READ = """
SELECT position, document FROM redrive.events
WHERE (xid, position) > ($1, $2) AND xid < redrive.log_end()
ORDER BY xid, position LIMIT $3
"""


async def append(
    link: Link,
    entries: Sequence[Entry],
    *,
    routes_version: int,
    all_or_nothing: bool,
    now: datetime,
) -> Append:
    """Carry out `EventLog.append` within the open transaction."""
    known: dict[object, Entry] = {}
    current = routes_version
    for version, destinations, document in await link.fetch(
        _KNOWN, [entry.event.id for entry in entries]
    ):
        current = version
        if document is not None:
            event = event_from(document)
            known[event.id] = Entry(event, tuple(destinations))
    if current != routes_version:
        return RoutesChanged(await read_routes(link))
    taken = await _take_keys(link, entries, known)
    results, fresh = sift(entries, known)
    if all_or_nothing and any(isinstance(result, Conflict) for result in results):
        if taken:
            await link.fetch(_GIVE_BACK_KEYS, taken)
        return Appended(tuple(results))
    if fresh:
        await _insert(link, fresh, now=now)
    return Appended(tuple(results))


async def _take_keys(
    link: Link, entries: Sequence[Entry], known: dict[object, Entry]
) -> list[EventId]:
    """Take the idempotency keys that are free, and note who had the others.

    Somebody who takes the same key at the same moment waits here until this transaction ends.
    """
    first: dict[tuple[str, str], EventId] = {}
    for entry in entries:
        event = entry.event
        if event.idempotency_key is not None and event.id not in known:
            first.setdefault((event.source, event.idempotency_key), event.id)
    if not first:
        return []
    sources, keys = [source for source, _ in first], [key for _, key in first]
    taken = [
        EventId(row[0]) for row in await link.fetch(_TAKE_KEYS, sources, keys, list(first.values()))
    ]
    if len(taken) < len(first):
        for source, key, destinations, document in await link.fetch(_KEYED, sources, keys):
            known[(source, key)] = Entry(event_from(document), tuple(destinations))
    return taken


async def _insert(link: Link, entries: Sequence[Entry], *, now: datetime) -> None:
    wanted = {name for entry in entries for name in entry.destinations}
    destinations = await _destination_ids(link, wanted) if wanted else {}
    versions = await _take_turns(link, entries)
    events = [
        (
            entry.event.id,
            entry.event.type,
            entry.event.key,
            *versions[place],
            "{" + ",".join(entry.destinations) + "}",
            json_text(entry.event),
        )
        for place, entry in enumerate(entries)
    ]
    deliveries = [
        _delivery_row(entry.event, destinations[name])
        for entry in entries
        for name in entry.destinations
    ]
    await link.fetch(_INSERT, *_columns(events, 7), now, *_columns(deliveries, 8))


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


async def _take_turns(link: Link, entries: Sequence[Entry]) -> list[tuple[int | None, int | None]]:
    """Return each entry's version within its key, and its time in the log.

    Whoever publishes to the same key meanwhile waits until this transaction ends, so that the
    order of a key is the order of commits.
    """
    counts = Counter(entry.event.key for entry in entries if entry.event.key is not None)
    if not counts:
        return [(None, None)] * len(entries)
    taken = {
        key: (version - counts[key], xid)
        for key, version, xid in await link.fetch(_TAKE_TURNS, list(counts), list(counts.values()))
    }
    turns: list[tuple[int | None, int | None]] = []
    for entry in entries:
        key = entry.event.key
        if key is None:
            turns.append((None, None))
        else:
            version, xid = taken[key]
            taken[key] = (version + 1, xid)
            turns.append((version + 1, xid))
    return turns


def _delivery_row(event: Event[msgspec.Raw], destination: tuple[int, bool]) -> tuple[object, ...]:
    number, is_ordered = destination
    return (
        event.id,
        number,
        event.due,
        event.priority,
        event.generation,
        event.tenant,
        event.key if is_ordered else None,
        event.deadline,
    )


async def _destination_ids(link: Link, names: set[str]) -> dict[str, tuple[int, bool]]:
    """Return each destination's id and whether it keeps order."""
    found = {
        name: (number, _destinations.decode(document).order is not Order.NONE)
        for number, name, document in await link.fetch(
            "SELECT id, name, document FROM redrive.destinations WHERE name = ANY ($1::text[])",
            sorted(names),
        )
    }
    if missing := sorted(names - found.keys()):
        raise UsageError(
            f"The destination {missing[0]!r} is not registered in this store; "
            "start its worker once, or register it, before publishing to it."
        )
    return found


async def read_events(link: Link, *, after: int, limit: int) -> Sequence[LoggedEvent]:
    """Carry out `EventLog.read_events`."""
    xid = await link.value("SELECT xid FROM redrive.events WHERE position = $1", after) or 0
    return tuple(
        LoggedEvent(position, event_from(document))
        for position, document in await link.fetch(_READ, xid, after, limit)
    )


async def find_event(link: Link, event_id: EventId) -> Event[msgspec.Raw] | None:
    """Carry out `EventLog.find_event`."""
    if not is_uuid(event_id):
        return None
    document = await link.value("SELECT document FROM redrive.events WHERE id = $1", event_id)
    return None if document is None else event_from(document)


async def register(link: Link, destinations: Sequence[Destination]) -> Routes:
    """Carry out `Registry.register`."""
    await link.fetch("SELECT value FROM redrive.counters WHERE name = 'routes_version' FOR UPDATE")
    known = {one.name: one for one in (await read_routes(link)).destinations}
    changed = [one for one in destinations if known.get(one.name) != one]
    for one in changed:
        await link.fetch(
            """
            WITH kept AS (
                INSERT INTO redrive.destinations (name, document) VALUES ($1, $2)
                ON CONFLICT (name) DO UPDATE SET document = excluded.document
                RETURNING id
            )
            INSERT INTO redrive.gates (destination, document) SELECT id, '{}' FROM kept
            ON CONFLICT DO NOTHING
            """,
            one.name,
            json_text(one),
        )
    if not changed:
        return Routes(await count(link, "routes_version"), known.values())
    await grow(link, "routes_version", 1)
    return await read_routes(link)


async def read_routes(link: Link) -> Routes:
    """Carry out `Registry.routes`."""
    rows = await link.fetch(
        "SELECT c.value, t.document FROM redrive.counters c "
        "LEFT JOIN redrive.destinations t ON true WHERE c.name = 'routes_version'"
    )
    return Routes(
        rows[0][0],
        [_destinations.decode(document) for _, document in rows if document is not None],
    )


async def count(link: Link, name: str) -> int:
    """Read one of the counters."""
    return int(await link.value("SELECT value FROM redrive.counters WHERE name = $1", name))


async def grow(link: Link, name: str, by: int) -> None:
    """Add to one of the counters."""
    await link.fetch("UPDATE redrive.counters SET value = value + $2 WHERE name = $1", name, by)
