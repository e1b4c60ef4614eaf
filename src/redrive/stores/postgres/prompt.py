"""Appending at once: one statement that is a transaction of its own.

Most events have no key, so nobody has to be waited for, and their ids and idempotency keys are new.
Such ones go into the log in a single trip to the server. Where that is not so, the statement stores
nothing, and they are appended step by step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from redrive.model.event import Receipt
from redrive.store import Entry
from redrive.stores.codec import json_text
from redrive.stores.postgres.codec import columns

__all__ = ["APPEND", "Numbers", "is_simple", "receipts", "values"]

APPEND = """
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now,
           pg_current_xact_id()::text::bigint + log.value AS xid
    FROM redrive.counters log JOIN redrive.counters routes ON routes.name = 'routes_version'
    WHERE log.name = 'log_offset' AND routes.value = $2
), numbers AS MATERIALIZED (
    SELECT array_agg(nextval('redrive.events_position_seq')) AS positions
    FROM generate_series(1, $3::integer)
), stored AS (
    INSERT INTO redrive.events (position, id, type, destinations, document, xid)
    SELECT given.position, given.id, given.type, given.destinations::text[], given.document,
           present.xid
    FROM present CROSS JOIN unnest(
        (SELECT positions FROM numbers), (SELECT $4::uuid[]), (SELECT $5::text[]),
        (SELECT $6::text[]), (SELECT $7::text[])
    ) AS given (position, id, type, destinations, document)
), idle AS (
    INSERT INTO redrive.idle (position, since)
    SELECT numbers.positions[given.place], present.now
    FROM present CROSS JOIN numbers CROSS JOIN unnest((SELECT $8::integer[])) AS given (place)
), keyed AS (
    INSERT INTO redrive.idempotency (source, key, event)
    SELECT given.source, given.key, given.event
    FROM present CROSS JOIN unnest(
        (SELECT $9::text[]), (SELECT $10::text[]), (SELECT $11::uuid[])
    ) AS given (source, key, event)
), sent AS (
    INSERT INTO redrive.deliveries
        (position, destination, priority, generation, tenant, due, deadline, enqueued_at,
         is_ready, kind)
    SELECT numbers.positions[given.place], given.destination, given.priority, given.generation,
           given.tenant, coalesce(given.due, present.now), given.deadline, present.now,
           coalesce(given.due <= present.now, true),
           CASE WHEN coalesce(given.due <= present.now, true) AND given.priority = 0 THEN 3
                ELSE 0 END
    FROM present CROSS JOIN numbers CROSS JOIN unnest(
        (SELECT $12::integer[]), (SELECT $13::integer[]), (SELECT $14::smallint[]),
        (SELECT $15::text[]), (SELECT $16::text[]), (SELECT $17::timestamptz[]),
        (SELECT $18::timestamptz[])
    ) AS given (place, destination, priority, generation, tenant, due, deadline)
)
SELECT FROM present
"""
"""Stores all of the entries and returns a row, or nothing when the routes are others by now."""


class Numbers(msgspec.Struct, frozen=True):
    """The numbers of the destinations in one version of the routes."""

    version: int
    of: Mapping[str, int]


def is_simple(entries: Sequence[Entry], numbers: Numbers) -> bool:
    """Tell whether nothing stands against appending these at once."""
    return all(
        entry.event.key is None and numbers.of.keys() >= set(entry.destinations)
        for entry in entries
    )


def values(entries: Sequence[Entry], numbers: Numbers, *, now: datetime | None) -> list[object]:
    """Return what `APPEND` takes; without an instant, it is the server's present."""
    of = numbers.of
    events, idle, keyed, sent = [], [], [], []
    for place, entry in enumerate(entries, 1):
        event, destinations = entry.event, entry.destinations
        names = "{" + ",".join(destinations) + "}"
        events.append((event.id, event.type, names, json_text(event)))
        if not destinations:
            idle.append(place)
        if event.idempotency_key is not None:
            keyed.append((event.source, event.idempotency_key, event.id))
        sent += [
            (
                place,
                of[name],
                event.priority,
                event.generation,
                event.tenant,
                event.due,
                event.deadline,
            )
            for name in destinations
        ]
    keyed.sort()  # whoever takes the same keys meanwhile takes them in the same order
    return [
        now,
        numbers.version,
        len(events),
        *columns(events, 4),
        idle,
        *columns(keyed, 3),
        *columns(sent, 7),
    ]


def receipts(entries: Sequence[Entry]) -> tuple[Receipt, ...]:
    """Return what those who published them get."""
    return tuple(
        Receipt(event_id=entry.event.id, destinations=entry.destinations) for entry in entries
    )
