"""Events and their deliveries, appended in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

import apsw
import msgspec

from redrive.errors import UsageError
from redrive.model.destination import Destination, Order
from redrive.model.event import Event, EventId, Receipt
from redrive.model.recipient import destination_of, pin_of
from redrive.store import Appended, Entry
from redrive.stores.codec import destination_from, event_from, json_text, maybe_micros, micros
from redrive.stores.deduplicate import (
    Kept,
    Remains,
    has_expectations,
    is_refused,
    numbered,
    remains_from,
    sift,
    unique_key,
)
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.counting import fold, is_much

__all__ = [
    "add_events",
    "append",
    "count",
]

_names = msgspec.json.Decoder(tuple[str, ...])

_INSERT_EVENTS = """
INSERT INTO redrive_events (id, type, key, version, destinations, document)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
FROM json_each(?) ORDER BY json_each.key
"""
_VERSIONS = """
SELECT k.key, k.version FROM json_each(?) CROSS JOIN redrive_keys k ON k.key = value
"""
_TAKE_VERSIONS = """
INSERT INTO redrive_keys (key, version)
SELECT value ->> 0, value ->> 1 FROM json_each(?) WHERE true
ON CONFLICT (key) DO UPDATE SET version = version + excluded.version
RETURNING key, version
"""
_INSERT_KEYS = """
INSERT INTO redrive_idempotency (source, key, position)
SELECT value ->> 0, value ->> 1, e.position
FROM json_each(?) CROSS JOIN redrive_events e ON e.id = value ->> 2
"""
_INSERT_DELIVERIES = """
INSERT INTO redrive_deliveries
    (position, destination, is_ready, priority, generation, tenant, lane, due, deadline, rule,
     enqueued_at)
SELECT e.position, value ->> 1, (value ->> 2) <= :now, value ->> 3, value ->> 4, value ->> 5,
       value ->> 6, value ->> 2, value ->> 7, value ->> 8, :now
FROM json_each(:rows) CROSS JOIN redrive_events e ON e.id = value ->> 0
ORDER BY json_each.key
"""
_LEAVE_IDLE = """
INSERT INTO redrive_idle (position, since)
SELECT position, ? FROM json_each(?) CROSS JOIN redrive_events e ON e.id = value
"""
_RESTORE_KEYS = """
INSERT INTO redrive_idempotency (source, key, position)
SELECT value ->> 0, value ->> 1, e.position
FROM json_each(?) CROSS JOIN redrive_events e ON e.id = value ->> 2 WHERE true
ON CONFLICT (source, key) DO UPDATE SET position = excluded.position, since = NULL, remains = NULL
WHERE remains ->> 'event_id' = (SELECT id FROM redrive_events WHERE position = excluded.position)
"""
_UNIQUES = """
SELECT u.source, u.key, u.event, e.destinations, e.version FROM json_each(?)
CROSS JOIN redrive_uniques u ON u.source = value ->> 0 AND u.key = value ->> 1 AND u.until > ?
LEFT JOIN redrive_events e ON e.id = u.event
"""
_KEEP_UNIQUES = """
INSERT INTO redrive_uniques (source, key, event, until)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?) WHERE true
ON CONFLICT (source, key) DO UPDATE SET event = excluded.event, until = excluded.until
"""
_KNOWN_IDS = "SELECT id FROM redrive_events WHERE id IN (SELECT value FROM json_each(?))"
_FALL_IN_BEHIND = """
UPDATE redrive_deliveries AS d SET is_behind = 1
WHERE d.id > ? AND d.lane IS NOT NULL AND EXISTS (
    SELECT 1 FROM redrive_deliveries AS head
    WHERE head.destination = d.destination AND head.lane = d.lane AND head.id < d.id
      AND head.status <> 2 AND head.resolution IS NULL
)
"""


def append(
    connection: apsw.Connection,
    entries: Sequence[Entry],
    *,
    routes_version: int,
    all_or_nothing: bool,
    now: datetime,
) -> Appended | None:
    """Append within the open transaction; `None` if there are newer routes."""
    if count(connection, "routes_version") != routes_version:
        return None
    versions = _versions(connection, entries) if has_expectations(entries) else {}
    uniques = _uniques(connection, entries, now=now)
    results, fresh = sift(entries, _known_events(connection, entries), versions, uniques)
    if all_or_nothing and is_refused(results):
        return Appended(tuple(results))
    given = _insert(connection, fresh, now=now) if fresh else {}
    return Appended(numbered(results, given))


def _versions(connection: apsw.Connection, entries: Sequence[Entry]) -> dict[str, int]:
    """Return how far the keys of these entries are."""
    keys = sorted({entry.event.key for entry in entries if entry.event.key is not None})
    return dict(rows(connection, _VERSIONS, (json_text(keys),)))


def _known_events(
    connection: apsw.Connection, entries: Sequence[Entry]
) -> dict[object, Kept | Remains]:
    """Return what was stored before, by event id and by idempotency key."""
    known: dict[object, Kept | Remains] = {}
    ids = json_text([entry.event.id for entry in entries])
    for destinations, version, document in rows(
        connection,
        "SELECT destinations, version, CAST(document AS BLOB) FROM redrive_events "
        "WHERE id IN (SELECT value FROM json_each(?))",
        (ids,),
    ):
        event = event_from(document)
        known[event.id] = Kept(event, _names.decode(destinations), version)
    keyed = [
        (entry.event.source, entry.event.idempotency_key)
        for entry in entries
        if entry.event.idempotency_key is not None
    ]
    if keyed:
        for source, key, destinations, version, document, remains in rows(
            connection,
            "SELECT i.source, i.key, e.destinations, e.version, CAST(e.document AS BLOB), "
            "i.remains FROM json_each(?) "
            "CROSS JOIN redrive_idempotency i ON i.source = value ->> 0 AND i.key = value ->> 1 "
            "LEFT JOIN redrive_events e ON e.position = i.position",
            (json_text(keyed),),
        ):
            known[(source, key)] = (
                remains_from(remains)
                if document is None
                else Kept(event_from(document), _names.decode(destinations), version)
            )
    return known


def _uniques(
    connection: apsw.Connection, entries: Sequence[Entry], *, now: datetime
) -> dict[tuple[str, str], Receipt]:
    """Return what entries get that are to be unique, where something is the same for now."""
    keys = [key for one in entries if (key := unique_key(one)) is not None]
    if not keys:
        return {}
    return {
        (source, key): Receipt(
            event_id=EventId(event),
            destinations=() if names is None else _names.decode(names),
            is_duplicate=True,
            version=version,
        )
        for source, key, event, names, version in rows(
            connection, _UNIQUES, (json_text(keys), micros(now))
        )
    }


def _insert(
    connection: apsw.Connection, entries: Sequence[Entry], *, now: datetime
) -> dict[EventId, int]:
    """Store events and their deliveries; return the versions of those that have a key."""
    wanted = {destination_of(name) for entry in entries for name in entry.destinations}
    destinations = _destination_ids(connection, wanted)
    versions = _take_versions(connection, [entry.event for entry in entries])
    connection.execute(
        _INSERT_EVENTS,
        (
            json_text(
                [
                    (
                        entry.event.id,
                        entry.event.type,
                        entry.event.key,
                        versions.get(entry.event.id),
                        json_text(entry.destinations),
                        json_text(entry.event),
                    )
                    for entry in entries
                ]
            ),
        ),
    )
    is_time_to_count = is_much(connection.last_insert_rowid(), len(entries))
    keys = [
        (entry.event.source, entry.event.idempotency_key, entry.event.id)
        for entry in entries
        if entry.event.idempotency_key is not None
    ]
    if keys:
        connection.execute(_INSERT_KEYS, (json_text(keys),))
    uniques = [
        (*key, entry.event.id, micros(now + entry.unique.span))
        for entry in entries
        if entry.unique is not None and (key := unique_key(entry)) is not None
    ]
    if uniques:
        connection.execute(_KEEP_UNIQUES, (json_text(uniques),))
    unrouted = [entry.event.id for entry in entries if not entry.destinations]
    if unrouted:
        connection.execute(_LEAVE_IDLE, (micros(now), json_text(unrouted)))
    moment = micros(now)
    rows = [
        _delivery_row(entry.event, destinations[destination_of(name)], name, now, moment)
        for entry in entries
        for name in entry.destinations
    ]
    if rows:
        last = connection.execute("SELECT max(id) FROM redrive_deliveries").get or 0
        connection.execute(_INSERT_DELIVERIES, {"rows": json_text(rows), "now": moment})
        is_time_to_count |= is_much(connection.last_insert_rowid(), len(rows))
        if any(one.order is not Order.NONE for _, one in destinations.values()):
            connection.execute(_FALL_IN_BEHIND, (last,))
    if is_time_to_count:
        fold(connection)
    return versions


def _take_versions(
    connection: apsw.Connection, events: Collection[Event[msgspec.Raw]]
) -> dict[EventId, int]:
    """Return the version of each event within its key, for those that have one."""
    counts = Counter(event.key for event in events if event.key is not None)
    if not counts:
        return {}
    taken = dict(rows(connection, _TAKE_VERSIONS, (json_text(list(counts.items())),)))
    last = {key: version - counts[key] for key, version in taken.items()}
    versions: dict[EventId, int] = {}
    for event in events:
        if event.key is not None:
            versions[event.id] = last[event.key] = last[event.key] + 1
    return versions


def add_events(connection: apsw.Connection, events: Collection[Event[msgspec.Raw]]) -> None:
    """Append events that come back, unless they are there; a key that is taken stays as it is."""
    ids = json_text([one.id for one in events])
    known = {number for (number,) in rows(connection, _KNOWN_IDS, (ids,))}
    missing = [one for one in events if one.id not in known]
    versions = _take_versions(connection, missing)
    batch = [
        (one.id, one.type, one.key, versions.get(one.id), "[]", json_text(one)) for one in missing
    ]
    connection.execute(_INSERT_EVENTS, (json_text(batch),))
    keys = [(one.source, one.idempotency_key, one.id) for one in events if one.idempotency_key]
    connection.execute(_RESTORE_KEYS, (json_text(keys),))


def _delivery_row(
    event: Event[msgspec.Raw],
    destination: tuple[int, Destination],
    recipient: str,
    now: datetime,
    moment: int,
) -> tuple[object, ...]:
    number, described = destination
    return (
        event.id,
        number,
        moment if event.due is None else micros(event.due),
        event.priority,
        event.generation,
        event.tenant,
        event.key if described.order is not Order.NONE else None,
        maybe_micros(
            event.deadline
            if described.expire_after is None
            else described.deadline_of(event, now=now)
        ),
        pin_of(recipient) or None,
    )


def _destination_ids(
    connection: apsw.Connection, names: AbstractSet[str]
) -> dict[str, tuple[int, Destination]]:
    """Return each destination's id, and what is declared of it."""
    found = {
        name: (number, destination_from(document))
        for number, name, document in rows(
            connection,
            "SELECT id, name, document FROM redrive_destinations "
            "WHERE name IN (SELECT value FROM json_each(?)) AND removed_at IS NULL",
            (json_text(sorted(names)),),
        )
    }
    if missing := sorted(names - found.keys()):
        raise UsageError(
            f"The destination {missing[0]!r} is not registered in this store; "
            "start its worker once, or register it, before publishing to it."
        )
    return found


def count(connection: apsw.Connection, name: str) -> int:
    """Read one of the counters."""
    return int(connection.execute("SELECT value FROM redrive_counters WHERE name = ?", (name,)).get)
