"""What has been kept long enough goes, in SQL: small batches that wait for nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.event import EventId
from redrive.model.letter import Letter
from redrive.model.retention import Retention
from redrive.store import LetterQuota, Pruned
from redrive.stores.codec import destination_from, event_from
from redrive.stores.postgres.auditing import count_acts, forget_acts, has_past_acts, record
from redrive.stores.postgres.codec import columns, jsonb
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.effects import forget_inbox, leave_inbox
from redrive.stores.postgres.idempotency import forget_keys, forget_remains, outlive
from redrive.stores.postgres.lanes import free_lanes, lanes_of
from redrive.stores.postgres.letters import letters_of
from redrive.stores.postgres.log import grow
from redrive.stores.postgres.removing import leave_idle, remove
from redrive.stores.sifting import Kept

__all__ = [
    "HAS_PRUNABLE",
    "HOARDED",
    "HOARDS",
    "TAKE_WATCH",
    "discard",
    "has_watch",
    "is_prunable",
    "letter_quotas",
    "oldest_letters",
    "prunable",
    "prune",
    "spans",
    "watch",
]


def is_prunable(delivered: str, events: str, keys: str, inbox: str, audit: str) -> str:
    """Return the column that tells whether anything has been kept for longer than these spans."""
    return f"""(
           EXISTS (
               SELECT FROM redrive.deliveries
               WHERE status = 2 AND settled_at <= present.now - {delivered}::interval
           )
           OR EXISTS (
               SELECT FROM redrive.deliveries WHERE resolved_at <= present.now - {events}::interval
           )
           OR EXISTS (SELECT FROM redrive.idle WHERE since <= present.now - {events}::interval)
           OR EXISTS (SELECT FROM redrive.idempotency WHERE since <= present.now - {keys}::interval)
           OR EXISTS (SELECT FROM redrive.inbox WHERE since <= present.now - {inbox}::interval)
           OR EXISTS (
               SELECT FROM redrive.tenants WHERE served_at <= present.now - {events}::interval
           )
           OR {has_past_acts(audit)}
       )"""


HAS_PRUNABLE = f"""
SELECT {is_prunable("$2", "$3", "$4", "$5", "$6")}
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) AS present
"""
"""Tells whether anything has been kept long enough; takes an instant, and `spans`."""


def watch(duty: str, worker: str, span: str) -> str:
    """Return the part of a statement by which a worker takes its turn.

    Nothing is written while somebody else has it, nor while its own lasts for half of the span.
    """
    return f"""watch AS (
    INSERT INTO redrive.watches AS known (duty, worker, until)
    SELECT {duty}, {worker}, present.now + {span}::interval FROM present
    WHERE NOT EXISTS (
        SELECT FROM redrive.watches
        WHERE duty = {duty} AND until > present.now
          AND (worker <> {worker} OR until > present.now + {span}::interval / 2)
    )
    ON CONFLICT (duty) DO UPDATE SET worker = excluded.worker, until = excluded.until
    WHERE known.worker = excluded.worker OR known.until <= excluded.until - {span}::interval
    RETURNING true
)"""


def has_watch(duty: str, worker: str) -> str:
    """Return the column that tells whether a worker has its turn."""
    return f"""(
           EXISTS (SELECT FROM watch)
           OR EXISTS (
               SELECT FROM redrive.watches
               WHERE duty = {duty} AND worker = {worker} AND until > present.now
           )
       )"""


TAKE_WATCH = f"""
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), {watch("$2", "$3", "$4")}
SELECT {has_watch("$2", "$3")} FROM present
"""

# Who has work is found out only if somebody may go: it reads all that waits.
_FORGET_TENANTS = """
WITH busy AS MATERIALIZED (
    SELECT DISTINCT destination, coalesce(tenant, '') COLLATE "C" AS tenant
    FROM redrive.deliveries
    WHERE status IN (0, 1) AND EXISTS (SELECT FROM redrive.tenants WHERE served_at <= $1)
), idle AS MATERIALIZED (
    SELECT t.destination, t.tenant FROM redrive.tenants t
    WHERE t.served_at <= $1 AND NOT EXISTS (
        SELECT FROM busy WHERE busy.destination = t.destination AND busy.tenant = t.tenant
    )
    LIMIT $2 FOR UPDATE OF t SKIP LOCKED
)
DELETE FROM redrive.tenants t USING idle
WHERE t.destination = idle.destination AND t.tenant = idle.tenant
"""
_DELIVERED = """
WITH chosen AS MATERIALIZED (
    SELECT id FROM redrive.deliveries WHERE status = 2 AND settled_at <= $1
    ORDER BY settled_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM redrive.deliveries d USING chosen WHERE d.id = chosen.id
RETURNING d.position, d.settled_at, d.destination
"""
_RESOLVED = """
WITH chosen AS MATERIALIZED (
    SELECT id FROM redrive.deliveries WHERE resolved_at <= $1
    ORDER BY resolved_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM redrive.deliveries d USING chosen WHERE d.id = chosen.id
RETURNING d.position, d.resolved_at
"""
_IDLE = """
SELECT position, since FROM redrive.idle WHERE since <= $1
ORDER BY since, position LIMIT $2 FOR UPDATE SKIP LOCKED
"""
_LOCK_EVENTS = """
SELECT position FROM redrive.events WHERE position = ANY ($1::bigint[])
ORDER BY position FOR UPDATE SKIP LOCKED
"""
_FORGET_IDLE = "DELETE FROM redrive.idle WHERE position = ANY ($1::bigint[])"
# A statement after the lock: what was given to an event until then is seen. The document is read
# only of those whose key outlives them.
_DELETE_EVENTS = """
DELETE FROM redrive.events e
USING unnest($1::bigint[], $2::timestamptz[]) AS given (position, since)
WHERE e.position = given.position
  AND NOT EXISTS (SELECT FROM redrive.deliveries d WHERE d.position = e.position)
RETURNING e.id::text, e.destinations, e.version, given.since, CASE
    WHEN given.since > $3 AND EXISTS (SELECT FROM redrive.idempotency i WHERE i.event = e.id)
    THEN e.document
END
"""
_LOCK_DESTINATIONS = """
SELECT id FROM redrive.destinations WHERE id = ANY ($1::integer[]) ORDER BY id
FOR NO KEY UPDATE
"""
_COUNT_PRUNED = """
UPDATE redrive.destinations t SET pruned = t.pruned + given.number
FROM unnest($1::integer[], $2::bigint[]) AS given (id, number) WHERE t.id = given.id
"""
_PRUNABLE_EVENTS = """
SELECT count(*), count(*) FILTER (WHERE has_key AND since <= $3),
       coalesce(sum(applied) FILTER (WHERE since <= $4), 0)
FROM (
    SELECT EXISTS (SELECT FROM redrive.idempotency i WHERE i.event = e.id) AS has_key,
    (SELECT count(*) FROM redrive.inbox n WHERE n.event = e.id) AS applied, greatest(
        (SELECT i.since FROM redrive.idle i WHERE i.position = e.position),
        (SELECT max(coalesce(d.resolved_at, d.settled_at)) FROM redrive.deliveries d
         WHERE d.position = e.position)
    ) AS since
    FROM redrive.events e WHERE NOT EXISTS (
        SELECT FROM redrive.deliveries d WHERE d.position = e.position
          AND (d.status = 2 AND d.settled_at <= $1) IS NOT TRUE
          AND (d.resolved_at <= $2) IS NOT TRUE
    )
) AS finished WHERE since <= $2
"""
_PRUNABLE = """
SELECT (SELECT count(*) FROM redrive.deliveries WHERE status = 2 AND settled_at <= $1),
       (SELECT count(*) FROM redrive.deliveries WHERE resolved_at <= $2),
       (SELECT count(*) FROM redrive.idempotency WHERE since <= $3),
       (SELECT count(*) FROM redrive.inbox WHERE since <= $4)
"""
HOARDED = """(
    SELECT json_agg(json_build_array(
        t.name, t.document, (
            SELECT count(*) FROM redrive.deliveries d
            WHERE d.destination = t.id AND d.status = 3 AND d.resolution IS NULL
        ), (
            SELECT min(d.settled_at) FROM redrive.deliveries d
            WHERE d.destination = t.id AND d.status = 3 AND d.resolution IS NULL
        )
    ) ORDER BY t.name COLLATE "C")::text
    FROM redrive.destinations t WHERE t.document::json ->> 'dead_letters' IS NOT NULL
) AS hoarded"""
"""What each destination with a limit keeps, as a column."""

HOARDS = f"SELECT coalesce($1::timestamptz, clock_timestamp()), {HOARDED}"
_hoarded = msgspec.json.Decoder(list[tuple[str, str, int, datetime | None]])
_UNCHANGED = """
SELECT d.id FROM unnest($1::bigint[], $2::timestamptz[], $3::text[]) AS given (id, at, edits)
JOIN redrive.deliveries d ON d.id = given.id
WHERE d.status = 3 AND d.resolution IS NULL AND d.settled_at = given.at
  AND d.edits IS NOT DISTINCT FROM given.edits::jsonb
ORDER BY d.id FOR UPDATE OF d
"""


async def prune(link: Link, retention: Retention, *, limit: int, now: datetime) -> Pruned:
    """Carry out `Housekeeping.prune`; what somebody else has in hand is left for the next time."""
    delivered_by, events_by, keys_by, inbox_by, audit_by = _cuts(retention, now)
    delivered = await link.fetch(_DELIVERED, delivered_by, limit)
    resolved = await link.fetch(_RESOLVED, events_by, limit)
    await leave_idle(link, [(row[0], row[1]) for row in (*delivered, *resolved)])
    events, keys = await _prune_events(link, events_by, keys_by, limit=limit)
    keys += await forget_remains(link, keys_by=keys_by, limit=limit)
    inbox = await forget_inbox(link, inbox_by=inbox_by, limit=limit)
    if resolved:
        await grow(link, "pruned_resolved", len(resolved))
    if events:
        await grow(link, "pruned_events", events)
    numbers = sorted(Counter(row[2] for row in delivered).items())
    if numbers:
        await link.fetch(_LOCK_DESTINATIONS, [number for number, _ in numbers])
        await link.fetch(_COUNT_PRUNED, *columns(numbers, 2))
    await link.fetch(_FORGET_TENANTS, events_by, limit)
    audit, replays = await forget_acts(link, by=audit_by, limit=limit)
    return Pruned(
        delivered=len(delivered),
        resolved=len(resolved),
        events=events,
        keys=keys,
        inbox=inbox,
        audit=audit,
        replays=replays,
    )


async def _prune_events(
    link: Link, events_by: datetime, keys_by: datetime, *, limit: int
) -> tuple[int, int]:
    idle = {row[0]: row[1] for row in await link.fetch(_IDLE, events_by, limit)}
    if not idle:
        return 0, 0
    # Whoever gives an event one more delivery has it locked: its turn comes again.
    locked = [row[0] for row in await link.fetch(_LOCK_EVENTS, list(idle))]
    since = [idle[position] for position in locked]
    gone = await link.fetch(_DELETE_EVENTS, locked, since, keys_by)
    # One that has a delivery left will be idle once more, when that one goes.
    await link.fetch(_FORGET_IDLE, locked)
    await outlive(
        link,
        [
            (Kept(event_from(document), tuple(destinations), version), at)
            for _, destinations, version, at, document in gone
            if document is not None
        ],
    )
    await leave_inbox(link, [(EventId(event_id), at) for event_id, _, _, at, _ in gone])
    passing = [EventId(event_id) for event_id, _, _, at, _ in gone if at <= keys_by]
    return len(gone), await forget_keys(link, passing)


async def prunable(link: Link, retention: Retention, *, now: datetime) -> Pruned:
    """Carry out `Housekeeping.prunable`."""
    *cuts, audit_by = _cuts(retention, now)
    audit, replays = await count_acts(link, by=audit_by)
    [(events, keys, inbox)] = await link.fetch(_PRUNABLE_EVENTS, *cuts)
    [(delivered, resolved, outlived, remains)] = await link.fetch(_PRUNABLE, *cuts)
    return Pruned(
        delivered=delivered,
        resolved=resolved,
        events=events,
        keys=keys + outlived,
        inbox=int(inbox) + remains,
        audit=audit,
        replays=replays,
    )


def letter_quotas(rows: Sequence[Sequence[Any]]) -> Sequence[LetterQuota]:
    """Read what `HOARDS` has found."""
    ((now, hoarded),) = rows
    return [
        LetterQuota(destination=name, keep=keep, count=count, oldest=oldest, now=now)
        for name, document, count, oldest in _hoarded.decode(hoarded or "[]")
        if (keep := destination_from(document).dead_letters) is not None
    ]


async def oldest_letters(link: Link, destination: str, *, limit: int) -> Sequence[Letter]:
    """Carry out `Housekeeping.oldest_letters`."""
    return await letters_of(
        link,
        "WHERE d.destination = (SELECT id FROM redrive.destinations WHERE name = $1) "
        "AND d.status = 3 AND d.resolution IS NULL ORDER BY d.settled_at, d.id LIMIT $2",
        (destination, limit),
    )


async def discard(
    link: Link, letters: Sequence[Letter], *, actor: Actor, detail: str, now: datetime
) -> Sequence[DeliveryId]:
    """Carry out `Housekeeping.discard`."""
    read = [
        (one.id, one.settled_at, jsonb(one.edits) if one.edits else None)
        for one in (letter.delivery for letter in letters)
    ]
    ids = [DeliveryId(row[0]) for row in await link.fetch(_UNCHANGED, *columns(read, 3))]
    if ids:
        lanes = await lanes_of(link, ids)
        await remove(link, ids, now=now)
        await free_lanes(link, lanes)
        await grow(link, "exported", len(ids))
        await record(link, "export", ids, actor, now=now, detail=detail)
    return ids


def spans(retention: Retention) -> tuple[timedelta, ...]:
    """Return how long delivered rows, events, keys, inbox records and acts are kept."""
    return (
        *(retention.delivered, retention.events, retention.idempotency, retention.inbox),
        retention.audit,
    )


def _cuts(retention: Retention, now: datetime) -> tuple[datetime, ...]:
    """Return up to when what may go was settled, in the order of `spans`."""
    return tuple(now - one for one in spans(retention))
