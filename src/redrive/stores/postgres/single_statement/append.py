"""Appending in one statement: it is a transaction of its own.

Most events have no key, so nobody has to be waited for, and their ids and idempotency keys are new.
Such ones go into the log in a single trip to the server. Where that is not so, the statement stores
nothing, and they are appended step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.store import Entry
from redrive.stores.codec import json_text
from redrive.stores.postgres.codec import array_text, columns
from redrive.stores.postgres.facts import Numbers

__all__ = ["append_statement", "is_simple"]

# The driver takes longer for the elements of an array than the server does. So ids and documents
# come as one text each, and the other columns twice: as an array, which is empty when all values
# of the column are alike, and as that value. `unnest` fills up what is shorter with NULL.
_APPEND = """
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now,
           pg_current_xact_id()::text::bigint + log.value AS xid{brief}
    FROM redrive.counters log JOIN redrive.counters routes ON routes.name = 'routes_version'
    WHERE log.name = 'log_offset' AND routes.value = $2
), numbers AS MATERIALIZED (
    SELECT array_agg(nextval('redrive.events_position_seq')) AS positions
    FROM generate_series(1, $3::integer)
), stored AS (
    INSERT INTO redrive.events
        (position, id, document, type, destinations, xid, routes_version)
    SELECT given.position, given.id, given.document, coalesce(given.type, $7),
           coalesce(given.destinations, $9)::text[], present.xid, $2
    FROM present CROSS JOIN unnest(
        (SELECT positions FROM numbers), (SELECT string_to_array($4, ',')::uuid[]),
        (SELECT string_to_array($5, E'\\x1e')), (SELECT $6::text[]), (SELECT $8::text[])
    ) AS given (position, id, document, type, destinations)
), late AS (
    INSERT INTO redrive.late_events (position, routes_version)
    SELECT position, latest.version
    FROM present CROSS JOIN LATERAL (
        -- Read when this transaction has its number: who changes the routes now, sees it.
        SELECT last_value AS version FROM redrive.route_versions
        WHERE is_called AND present.xid IS NOT NULL
    ) AS latest CROSS JOIN unnest((SELECT positions FROM numbers)) AS position
    WHERE latest.version > $2
), sent AS (
    INSERT INTO redrive.deliveries
        (position, enqueued_at, is_ready, kind, due, destination, priority, generation, tenant,
         deadline)
    SELECT numbers.positions[given.place], present.now, asked.due <= present.now,
           CASE WHEN asked.due <= present.now AND asked.priority = 0 THEN 3 ELSE 0 END,
           asked.due, coalesce(given.destination, $12), asked.priority,
           coalesce(given.generation, $16), coalesce(given.tenant, $18),
           coalesce(given.deadline, $22)
    FROM present CROSS JOIN numbers CROSS JOIN unnest(
        (SELECT coalesce($10::integer[], ARRAY(SELECT generate_series(1, $3::integer)))),
        (SELECT $11::integer[]), (SELECT $13::smallint[]),
        (SELECT $15::text[]), (SELECT $17::text[]), (SELECT $19::timestamptz[]),
        (SELECT $21::timestamptz[])
    ) AS given (place, destination, priority, generation, tenant, due, deadline)
    CROSS JOIN LATERAL (
        SELECT coalesce(given.due, $20, present.now) AS due,
               coalesce(given.priority, $14::smallint) AS priority
    ) AS asked
){more}
SELECT FROM present
"""
_IDLE = """, idle AS (
    INSERT INTO redrive.idle (position, since)
    SELECT numbers.positions[given.place], present.now
    FROM present CROSS JOIN numbers CROSS JOIN unnest((SELECT $23::integer[])) AS given (place)
)"""
_KEYED = """, keyed AS (
    INSERT INTO redrive.idempotency (source, key, event)
    SELECT given.source, given.key, given.event
    FROM present CROSS JOIN unnest(
        (SELECT ${0}::text[]), (SELECT ${1}::text[]), (SELECT ${2}::uuid[])
    ) AS given (source, key, event)
)"""
# Somebody's open transaction may have published with the same idempotency key. Whoever is in the
# same statement is not to wait for it.
_BRIEF = """,
           set_config('lock_timeout', '100ms', true)"""
_PLAIN = _APPEND.format(brief="", more="")
_WITH_IDLE = _APPEND.format(brief="", more=_IDLE)
_WITH_KEYED = _APPEND.format(brief=_BRIEF, more=_KEYED.format(23, 24, 25))
_WITH_BOTH = _APPEND.format(brief=_BRIEF, more=_IDLE + _KEYED.format(24, 25, 26))


# One event for one destination, as most calls have it: no arrays, and half the steps.
_APPEND_ONE = """
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now,
           pg_current_xact_id()::text::bigint + log.value AS xid,
           nextval('redrive.events_position_seq') AS position{brief}
    FROM redrive.counters log JOIN redrive.counters routes ON routes.name = 'routes_version'
    WHERE log.name = 'log_offset' AND routes.value = $2
), stored AS (
    INSERT INTO redrive.events
        (position, id, document, type, destinations, xid, routes_version)
    SELECT position, $3::uuid, $4, $5, ARRAY[$6], xid, $2 FROM present
), late AS (
    INSERT INTO redrive.late_events (position, routes_version)
    SELECT position, version
    FROM (
        -- Read when this transaction has its number: who changes the routes now, sees it.
        SELECT position, (
            SELECT last_value FROM redrive.route_versions
            WHERE is_called AND present.xid IS NOT NULL
        ) AS version
        FROM present
    ) AS latest
    WHERE version > $2
){more}
INSERT INTO redrive.deliveries
    (position, enqueued_at, is_ready, kind, due, destination, priority, generation, tenant,
     deadline)
SELECT position, now, coalesce($7::timestamptz, now) <= now,
       CASE WHEN coalesce($7, now) <= now AND $8::smallint = 0 THEN 3 ELSE 0 END,
       coalesce($7, now), $9, $8, $10, $11, $12
FROM present
RETURNING 1
"""
_ONE_KEYED = """, keyed AS (
    INSERT INTO redrive.idempotency (source, key, event)
    SELECT $13, $14, $3::uuid FROM present
)"""
_ONE_PLAIN = _APPEND_ONE.format(brief="", more="")
_ONE_WITH_KEY = _APPEND_ONE.format(brief=_BRIEF, more=_ONE_KEYED)


_BETWEEN = "\x1e"
"""What stands between two documents: a character that JSON does not have."""


def is_simple(entries: Sequence[Entry], numbers: Numbers) -> bool:
    """Tell whether nothing stands against appending these at once."""
    known = numbers.of.keys()
    return all(entry.event.key is None for entry in entries) and all(
        known >= set(destinations)
        for destinations in dict.fromkeys(one.destinations for one in entries)
    )


def append_statement(
    entries: Sequence[Entry], numbers: Numbers, *, now: datetime | None
) -> tuple[str, list[object]]:
    """Return a statement and its values; without an instant, it is the server's present.

    It stores all of the entries and returns a row, or nothing when the routes are others by now.
    """
    if len(entries) == 1 and len(entries[0].destinations) == 1:
        return _statement_for_one(entries[0], numbers, now=now)
    events = [entry.event for entry in entries]
    values: list[object] = [now, numbers.version, len(events)]
    values.append(",".join([one.id for one in events]))
    values.append(_BETWEEN.join([json_text(one) for one in events]))
    values += _given([one.type for one in events])
    values += _given([array_text(one.destinations) for one in entries])
    sent = [
        (place, numbers.of[name], entry.event)
        for place, entry in enumerate(entries, 1)
        for name in entry.destinations
    ]
    # Left out when each event has one destination.
    has_one_each = all(len(entry.destinations) == 1 for entry in entries)
    values.append(None if has_one_each else [place for place, _, _ in sent])
    values += _given([number for _, number, _ in sent])
    values += _given([event.priority for _, _, event in sent])
    values += _given([event.generation for _, _, event in sent])
    values += _given([event.tenant for _, _, event in sent])
    values += _given([event.due for _, _, event in sent])
    values += _given([event.deadline for _, _, event in sent])
    idle = [place for place, entry in enumerate(entries, 1) if not entry.destinations]
    keyed = [
        (one.source, one.idempotency_key, one.id)
        for one in events
        if one.idempotency_key is not None
    ]
    if idle:
        values.append(idle)
    if keyed:  # whoever takes the same keys meanwhile takes them in the same order
        values += columns(sorted(keyed), 3)
    text = (_WITH_BOTH if idle else _WITH_KEYED) if keyed else (_WITH_IDLE if idle else _PLAIN)
    return text, values


def _statement_for_one(
    entry: Entry, numbers: Numbers, *, now: datetime | None
) -> tuple[str, list[object]]:
    event, (name,) = entry.event, entry.destinations
    values: list[object] = [now, numbers.version, event.id, json_text(event), event.type, name]
    values += event.due, event.priority, numbers.of[name]
    values += event.generation, event.tenant, event.deadline
    if event.idempotency_key is None:
        return _ONE_PLAIN, values
    values += event.source, event.idempotency_key
    return _ONE_WITH_KEY, values


def _given(column: list[object]) -> tuple[list[object], object]:
    """Return the values of a column as an array, or the one value that all of them have."""
    if not column:
        return [], None
    if column.count(column[0]) == len(column):
        return [], column[0]
    return column, None
