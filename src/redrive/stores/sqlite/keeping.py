"""What has been kept long enough goes, in SQL: small batches that hold the write lock briefly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import apsw
import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.letter import Letter
from redrive.model.retention import Retention
from redrive.store import LetterQuota, Pruned
from redrive.stores.codec import (
    destination_from,
    event_from,
    from_micros,
    json_text,
    maybe_from_micros,
    maybe_micros,
    micros,
)
from redrive.stores.sifting import Kept, Remains
from redrive.stores.sqlite.auditing import HAS_PAST_ACTS, count_acts, forget_acts, record
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.effects import forget_inbox, leave_inbox
from redrive.stores.sqlite.lanes import free_lanes, lanes_of
from redrive.stores.sqlite.letters import letters_of
from redrive.stores.sqlite.log import grow
from redrive.stores.sqlite.removing import remove

__all__ = [
    "discard",
    "has_prunable",
    "has_watch",
    "letter_quotas",
    "oldest_letters",
    "prunable",
    "prune",
    "take_watch",
]

_names = msgspec.json.Decoder(tuple[str, ...])

_HAS_PRUNABLE = f"""
SELECT EXISTS (SELECT 1 FROM redrive_deliveries WHERE status = 2 AND settled_at <= ?1)
    OR EXISTS (SELECT 1 FROM redrive_deliveries WHERE resolved_at <= ?2)
    OR EXISTS (SELECT 1 FROM redrive_idle WHERE since <= ?2)
    OR EXISTS (SELECT 1 FROM redrive_idempotency WHERE since <= ?3)
    OR EXISTS (SELECT 1 FROM redrive_inbox WHERE since <= ?4)
    OR EXISTS (SELECT 1 FROM redrive_tenants WHERE served_at <= ?2)
    OR {HAS_PAST_ACTS.format("?5")}
"""
# Who has work is found out only if somebody may go: it reads all that waits.
_FORGET_TENANTS = """
DELETE FROM redrive_tenants WHERE (destination, tenant) IN (
    SELECT t.destination, t.tenant FROM redrive_tenants t
    WHERE t.served_at <= ?1 AND (t.destination, t.tenant) NOT IN (
        SELECT destination, ifnull(tenant, '') FROM redrive_deliveries WHERE status IN (0, 1)
    )
    LIMIT ?2
)
"""
_DELIVERED = """
SELECT json_group_array(json_array(id, position, settled_at, destination)) FROM (
    SELECT id, position, settled_at, destination FROM redrive_deliveries
    WHERE status = 2 AND settled_at <= ? ORDER BY settled_at, id LIMIT ?
)
"""
_RESOLVED = """
SELECT json_group_array(json_array(id, position, resolved_at)) FROM (
    SELECT id, position, resolved_at FROM redrive_deliveries
    WHERE resolved_at <= ? ORDER BY resolved_at, id LIMIT ?
)
"""
_COUNT_PRUNED = """
UPDATE redrive_destinations SET pruned = pruned + gone.number FROM (
    SELECT value ->> 3 AS destination, count(*) AS number FROM json_each(?) GROUP BY 1
) AS gone WHERE redrive_destinations.id = gone.destination
"""
_IDLE = """
SELECT json_group_array(json_array(position, since)) FROM (
    SELECT position, since FROM redrive_idle WHERE since <= ? ORDER BY since, position LIMIT ?
)
"""
_FINISHED_EVENTS = """
SELECT e.position, value ->> 1, e.destinations = '[]',
       ifnull(iif(json_valid(e.document), e.document ->> 'source', ''), ''),
       iif(json_valid(e.document), e.document ->> 'idempotency_key', NULL), e.id
FROM json_each(?) CROSS JOIN redrive_events e ON e.position = value ->> 0
WHERE NOT EXISTS (SELECT 1 FROM redrive_deliveries d WHERE d.position = e.position)
"""
_OF_POSITIONS = "position IN (SELECT value FROM json_each(?))"
_FORGET_KEYS = """
DELETE FROM redrive_idempotency WHERE (source, key) IN (
    SELECT i.source, i.key FROM json_each(?) CROSS JOIN redrive_idempotency i
    ON i.source = value ->> 0 AND i.key = value ->> 1 WHERE i.position = value ->> 2
)
"""
_OUTLIVE = """
UPDATE redrive_idempotency SET since = ?, remains = ?
WHERE source = ? AND key = ? AND position = ?
"""
_FORGET_REMAINS = """
DELETE FROM redrive_idempotency WHERE (source, key) IN (
    SELECT source, key FROM redrive_idempotency WHERE since <= ? ORDER BY since LIMIT ?
)
"""
_PRUNABLE_EVENTS = """
SELECT count(*), ifnull(sum(has_key AND since <= ?3), 0),
       ifnull(sum(iif(since <= ?4, applied, 0)), 0)
FROM (
    SELECT iif(json_valid(e.document), e.document ->> 'idempotency_key', NULL) IS NOT NULL
        AS has_key,
    (SELECT count(*) FROM redrive_inbox n WHERE n.event = e.id) AS applied, max(
        ifnull((SELECT since FROM redrive_idle i WHERE i.position = e.position), 0),
        ifnull((SELECT max(ifnull(resolved_at, settled_at)) FROM redrive_deliveries d
                WHERE d.position = e.position), 0)
    ) AS since
    FROM redrive_events e WHERE NOT EXISTS (
        SELECT 1 FROM redrive_deliveries d WHERE d.position = e.position
          AND NOT (d.status = 2 AND d.settled_at <= ?1)
          AND NOT (d.resolved_at IS NOT NULL AND d.resolved_at <= ?2)
    )
) WHERE since <= ?2
"""
_HOARDS = """
SELECT name, document, (
    SELECT count(*) FROM redrive_deliveries d
    WHERE d.destination = t.id AND d.status = 3 AND d.resolution IS NULL
), (
    SELECT min(settled_at) FROM redrive_deliveries d
    WHERE d.destination = t.id AND d.status = 3 AND d.resolution IS NULL
)
FROM redrive_destinations t
WHERE document ->> 'dead_letters' IS NOT NULL ORDER BY name
"""
_UNCHANGED = """
SELECT d.id, d.position FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value ->> 0
WHERE d.status = 3 AND d.resolution IS NULL AND d.settled_at = value ->> 1
  AND d.edits IS value ->> 2 ORDER BY d.id
"""
_TAKE_TURN = """
INSERT INTO redrive_watches (duty, worker, until) VALUES (?1, ?2, ?3)
ON CONFLICT (duty) DO UPDATE SET worker = excluded.worker, until = excluded.until
WHERE worker = excluded.worker OR until <= ?4
RETURNING 1
"""


def has_prunable(connection: apsw.Connection, retention: Retention, *, now: datetime) -> bool:
    """Tell whether anything has been kept long enough; takes no write lock, unlike `prune`."""
    return bool(connection.execute(_HAS_PRUNABLE, _cuts(retention, now)).get)


def prune(
    connection: apsw.Connection, retention: Retention, *, limit: int, now: datetime
) -> Pruned:
    """Carry out `Housekeeping.prune`."""
    delivered_by, events_by, keys_by, inbox_by, audit_by = _cuts(retention, now)
    delivered = connection.execute(_DELIVERED, (delivered_by, limit)).get
    connection.execute(_COUNT_PRUNED, (delivered,))
    resolved = connection.execute(_RESOLVED, (events_by, limit)).get
    gone = remove(connection, delivered), remove(connection, resolved)
    if gone[1]:
        grow(connection, "pruned_resolved", gone[1])
    events, keys = _prune_events(connection, (events_by, keys_by), limit=limit)
    connection.execute(_FORGET_REMAINS, (keys_by, limit))
    keys += connection.changes()
    connection.execute(_FORGET_TENANTS, (events_by, limit))
    inbox = forget_inbox(connection, inbox_by=inbox_by, limit=limit)
    audit, replays = forget_acts(connection, by=audit_by, limit=limit)
    return Pruned(
        delivered=gone[0],
        resolved=gone[1],
        events=events,
        keys=keys,
        inbox=inbox,
        audit=audit,
        replays=replays,
    )


def _prune_events(
    connection: apsw.Connection, cuts: tuple[int, int], *, limit: int
) -> tuple[int, int]:
    events_by, keys_by = cuts
    idle = connection.execute(_IDLE, (events_by, limit)).get
    if idle == "[]":
        return 0, 0
    # One that has a delivery left will be idle once more, when that one goes.
    connection.execute(
        "DELETE FROM redrive_idle WHERE position IN (SELECT value ->> 0 FROM json_each(?))", (idle,)
    )
    finished = rows(connection, _FINISHED_EVENTS, (idle,))
    if not finished:
        return 0, 0
    keyed = [one for one in finished if one[4] is not None]
    lasting = [one for one in keyed if one[1] > keys_by]
    for position, since, _, source, key, _ in lasting:
        remains = _remains(connection, position)
        connection.execute(_OUTLIVE, (since, remains, source, key, position))
    passing = [
        (source, key, position) for position, since, _, source, key, _ in keyed if since <= keys_by
    ]
    if passing:
        connection.execute(_FORGET_KEYS, (json_text(passing),))
    leave_inbox(connection, [(event_id, since) for _, since, *_, event_id in finished])
    positions = json_text([position for position, *_ in finished])
    connection.execute(f"DELETE FROM redrive_events WHERE {_OF_POSITIONS}", (positions,))
    grow(connection, "pruned_events", len(finished))
    unrouted = sum(is_unrouted for _, _, is_unrouted, *_ in finished)
    if unrouted:
        grow(connection, "unrouted", -unrouted)
    return len(finished), len(passing)


def _remains(connection: apsw.Connection, position: int) -> str:
    destinations, version, document = connection.execute(
        "SELECT destinations, version, CAST(document AS BLOB) FROM redrive_events "
        "WHERE position = ?",
        (position,),
    ).get
    return json_text(Remains.of(Kept(event_from(document), _names.decode(destinations), version)))


def prunable(connection: apsw.Connection, retention: Retention, *, now: datetime) -> Pruned:
    """Carry out `Housekeeping.prunable`."""
    cuts = _cuts(retention, now)
    delivered_by, events_by, keys_by, inbox_by, audit_by = cuts
    events, keys, inbox = connection.execute(_PRUNABLE_EVENTS, cuts[:4]).get
    audit, replays = count_acts(connection, by=audit_by)
    return Pruned(
        audit=audit,
        replays=replays,
        delivered=connection.execute(
            "SELECT count(*) FROM redrive_deliveries WHERE status = 2 AND settled_at <= ?",
            (delivered_by,),
        ).get,
        resolved=connection.execute(
            "SELECT count(*) FROM redrive_deliveries WHERE resolved_at <= ?", (events_by,)
        ).get,
        events=events,
        keys=keys
        + connection.execute(
            "SELECT count(*) FROM redrive_idempotency WHERE since <= ?", (keys_by,)
        ).get,
        inbox=inbox
        + connection.execute(
            "SELECT count(*) FROM redrive_inbox WHERE since <= ?", (inbox_by,)
        ).get,
    )


def letter_quotas(connection: apsw.Connection, *, now: datetime) -> Sequence[LetterQuota]:
    """Carry out `Housekeeping.letter_quotas`."""
    return [
        LetterQuota(
            destination=name, keep=keep, count=count, oldest=maybe_from_micros(oldest), now=now
        )
        for name, document, count, oldest in rows(connection, _HOARDS)
        if (keep := destination_from(document).dead_letters) is not None
    ]


def oldest_letters(
    connection: apsw.Connection, destination: str, *, limit: int
) -> Sequence[Letter]:
    """Carry out `Housekeeping.oldest_letters`."""
    return letters_of(
        connection,
        "WHERE d.destination = (SELECT id FROM redrive_destinations WHERE name = ?) "
        "AND d.status = 3 AND d.resolution IS NULL ORDER BY d.settled_at, d.id LIMIT ?",
        (destination, limit),
    )


def discard(
    connection: apsw.Connection,
    letters: Sequence[Letter],
    *,
    actor: Actor,
    detail: str,
    now: datetime,
) -> Sequence[DeliveryId]:
    """Carry out `Housekeeping.discard`."""
    read = [
        (one.id, maybe_micros(one.settled_at), json_text(one.edits) if one.edits else None)
        for one in (letter.delivery for letter in letters)
    ]
    found: list[Any] = rows(connection, _UNCHANGED, (json_text(read),))
    ids = [DeliveryId(number) for number, _ in found]
    if ids:
        lanes = lanes_of(connection, ids)
        moment = micros(now)
        remove(connection, json_text([(*one, moment) for one in found]))
        free_lanes(connection, lanes)
        grow(connection, "exported", len(ids))
        record(connection, "export", ids, actor, now=now, detail=detail)
    return ids


def has_watch(
    connection: apsw.Connection, duty: str, worker: str, *, span: timedelta, now: datetime
) -> bool | None:
    """Tell whose turn it is, if that needs no write lock; `None` if it has to be taken."""
    found = connection.execute(
        "SELECT worker, until FROM redrive_watches WHERE duty = ?", (duty,)
    ).fetchone()
    if found is None:
        return None
    holder, until = found[0], from_micros(found[1])
    if holder != worker and until > now:
        return False
    return True if holder == worker and until > now + span / 2 else None


def take_watch(
    connection: apsw.Connection, duty: str, worker: str, *, span: timedelta, now: datetime
) -> bool:
    """Carry out `Housekeeping.take_watch`."""
    taken = connection.execute(_TAKE_TURN, (duty, worker, micros(now + span), micros(now))).get
    return taken is not None


def _cuts(retention: Retention, now: datetime) -> tuple[int, int, int, int, int]:
    """Return up to when delivered rows, events, keys, inbox records and acts are that may go."""
    return (
        micros(now - retention.delivered),
        micros(now - retention.events),
        micros(now - retention.idempotency),
        micros(now - retention.inbox),
        micros(now - retention.audit),
    )
