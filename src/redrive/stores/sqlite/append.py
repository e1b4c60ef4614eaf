"""Events and their deliveries, appended in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

import apsw
import msgspec

from redrive.errors import UsageError
from redrive.model.destination import Destination, Order
from redrive.model.event import Event, EventId, Receipt
from redrive.model.recipient import destination_of, pin_of
from redrive.store import Appended, Entry
from redrive.stores.codec import destination_from, json_text, micros
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
from redrive.stores.sealed import Codec
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.counting import fold, is_much

__all__ = [
    "add_events",
    "append",
    "count",
]

_names = msgspec.json.Decoder(tuple[str, ...])

_AT_ONCE = 50
"""So many rows are inserted by one statement: to begin one costs as much as a row."""


class _Insertion:
    """Inserts rows into some columns of a table, in the order that they have."""

    def __init__(self, table: str, *columns: str) -> None:
        row = f"({', '.join('?' * len(columns))})"
        begin = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "
        self._one = begin + row
        self._many = begin + ", ".join([row] * _AT_ONCE)

    def insert(self, connection: apsw.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert rows, and return the number of the last one; numbers follow each other."""
        full = len(rows) - len(rows) % _AT_ONCE
        batches = (rows[one : one + _AT_ONCE] for one in range(0, full, _AT_ONCE))
        connection.executemany(self._many, (tuple(chain.from_iterable(one)) for one in batches))
        connection.executemany(self._one, rows[full:])
        return connection.last_insert_rowid()


_EVENTS = _Insertion("redrive_events", "id", "type", "key", "version", "destinations", "document")
_DELIVERIES = _Insertion(
    "redrive_deliveries",
    *("position", "destination", "is_ready", "priority", "generation", "tenant", "lane", "due"),
    *("deadline", "rule", "enqueued_at"),
)
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
    codec: Codec,
) -> Appended | None:
    """Append within the open transaction; `None` if there are newer routes."""
    if count(connection, "routes_version") != routes_version:
        return None
    versions = _versions(connection, entries) if has_expectations(entries) else {}
    uniques = _uniques(connection, entries, now=now, codec=codec)
    results, fresh = sift(
        entries, _known_events(connection, entries, codec), versions, uniques, codec=codec
    )
    if all_or_nothing and is_refused(results):
        return Appended(tuple(results))
    given = _insert(connection, fresh, now=now, codec=codec) if fresh else {}
    return Appended(numbered(results, given))


def _versions(connection: apsw.Connection, entries: Sequence[Entry]) -> dict[str, int]:
    """Return how far the keys of these entries are."""
    keys = sorted({entry.event.key for entry in entries if entry.event.key is not None})
    return dict(rows(connection, _VERSIONS, (json_text(keys),)))


def _known_events(
    connection: apsw.Connection, entries: Sequence[Entry], codec: Codec
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
        event = codec.event(document)
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
                else Kept(codec.event(document), _names.decode(destinations), version)
            )
    return known


def _uniques(
    connection: apsw.Connection, entries: Sequence[Entry], *, now: datetime, codec: Codec
) -> dict[tuple[str, str], Receipt]:
    """Return what entries get that are to be unique, where something is the same for now."""
    keys = [key for one in entries if (key := unique_key(one, codec)) is not None]
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
    connection: apsw.Connection, entries: Sequence[Entry], *, now: datetime, codec: Codec
) -> dict[EventId, int]:
    """Store events and their deliveries; return the versions of those that have a key."""
    ways = _ways(connection, {entry.destinations for entry in entries})
    versions = _take_versions(connection, [entry.event for entry in entries])
    last = _EVENTS.insert(connection, _event_rows(entries, versions, codec))
    is_time_to_count = is_much(last, len(entries))
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
        if entry.unique is not None and (key := unique_key(entry, codec)) is not None
    ]
    if uniques:
        connection.execute(_KEEP_UNIQUES, (json_text(uniques),))
    unrouted = [entry.event.id for entry in entries if not entry.destinations]
    if unrouted:
        connection.execute(_LEAVE_IDLE, (micros(now), json_text(unrouted)))
    if rows := _delivery_rows(entries, ways, first=last - len(entries) + 1, now=now):
        last = _DELIVERIES.insert(connection, rows)
        is_time_to_count |= is_much(last, len(rows))
        if any(one.is_ordered for one in ways.values()):
            connection.execute(_FALL_IN_BEHIND, (last - len(rows),))
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


def add_events(
    connection: apsw.Connection, events: Collection[Event[msgspec.Raw]], codec: Codec
) -> None:
    """Append events that come back, unless they are there; a key that is taken stays as it is."""
    ids = json_text([one.id for one in events])
    known = {number for (number,) in rows(connection, _KNOWN_IDS, (ids,))}
    missing = [one for one in events if one.id not in known]
    versions = _take_versions(connection, missing)
    batch = [
        (one.id, one.type, one.key, versions.get(one.id), "[]", codec.event_text(one))
        for one in missing
    ]
    _EVENTS.insert(connection, batch)
    keys = [(one.source, one.idempotency_key, one.id) for one in events if one.idempotency_key]
    connection.execute(_RESTORE_KEYS, (json_text(keys),))


def _event_rows(
    entries: Sequence[Entry], versions: Mapping[EventId, int], codec: Codec
) -> list[tuple[object, ...]]:
    texts = {
        names: json_text(names) for names in dict.fromkeys(entry.destinations for entry in entries)
    }
    return [
        (
            entry.event.id,
            entry.event.type,
            entry.event.key,
            versions.get(entry.event.id),
            texts[entry.destinations],
            codec.event_text(entry.event),
        )
        for entry in entries
    ]


class _Way(NamedTuple):
    """A recipient as deliveries have it: a destination's number, and the rule that leads there."""

    number: int
    destination: Destination
    rule: str | None

    @property
    def is_ordered(self) -> bool:
        return self.destination.order is not Order.NONE


def _ways(connection: apsw.Connection, given: AbstractSet[tuple[str, ...]]) -> dict[str, _Way]:
    """Return the ways that any of the events are to go."""
    names = {name for recipients in given for name in recipients}
    found = _destination_ids(connection, {destination_of(name) for name in names})
    return {name: _Way(*found[destination_of(name)], pin_of(name) or None) for name in names}


def _delivery_rows(
    entries: Sequence[Entry], ways: Mapping[str, _Way], *, first: int, now: datetime
) -> list[tuple[object, ...]]:
    """Return the deliveries of events whose positions follow each other."""
    rows: list[tuple[object, ...]] = []
    moment = micros(now)
    expiring = {name for name, way in ways.items() if way.destination.expire_after is not None}
    ordered = {name for name, way in ways.items() if way.is_ordered}
    for position, entry in enumerate(entries, first):
        event = entry.event
        due = moment if event.due is None else micros(event.due)
        for name in entry.destinations:
            number, destination, rule = ways[name]
            end = destination.deadline_of(event, now=now) if name in expiring else event.deadline
            rows.append(
                (
                    position,
                    number,
                    due <= moment,
                    event.priority,
                    event.generation,
                    event.tenant,
                    event.key if name in ordered else None,
                    due,
                    None if end is None else micros(end),
                    rule,
                    moment,
                )
            )
    return rows


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
