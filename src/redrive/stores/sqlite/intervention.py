"""What a person, or a deadline, may change in the SQLite store; each change leaves its audit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw

from redrive.model.audit import Actor
from redrive.model.delivery import Cycle, Delivery, DeliveryId, Resolution
from redrive.model.outcome import Fault
from redrive.model.settlement import FailureReason
from redrive.store import Blame
from redrive.stores.codec import json_text, micros
from redrive.stores.sqlite.auditing import record
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.inspection import find_deliveries
from redrive.stores.sqlite.lanes import free_lanes, lanes_of, pass_by, rejoin
from redrive.stores.sqlite.log import grow
from redrive.stores.sqlite.removing import remove
from redrive.stores.sqlite.settling import forget_exchanges

__all__ = [
    "begin_cycles",
    "cancel",
    "delete",
    "expire",
    "fail_pending",
    "has_expired",
    "prioritise",
    "replay",
    "reschedule",
    "resolve",
]

_OF = "id IN (SELECT value FROM json_each(?))"
_REPLAY = """
UPDATE redrive_deliveries
SET status = 0, is_ready = 1, kind = 2, due = ?1, attempts = 0, snoozes = 0, crashes = 0,
    last_crash_at = NULL, settled_at = NULL, first_failed_at = NULL, last_failed_at = NULL,
    reason = NULL, group_id = NULL, fault = NULL, log = NULL, cycles = ?2,
    generation = ifnull(?3, generation), replay = ?5, auto_replays = auto_replays + ?6,
    deadline = CASE WHEN deadline > ?1 THEN deadline END
WHERE id = ?4
"""
_DESTINATIONS = f"""
SELECT id, name FROM redrive_destinations
WHERE id IN (SELECT destination FROM redrive_deliveries WHERE {_OF})
"""
_FAIL_PENDING = f"""
UPDATE redrive_deliveries
SET status = 3, reason = ?1, fault = ?2, group_id = ?2 ->> 'group', settled_at = ?3,
    first_failed_at = ifnull(first_failed_at, ?3), last_failed_at = ?3
WHERE destination = ?4 AND {_OF}
"""


def replay(
    connection: apsw.Connection,
    ids: Sequence[DeliveryId],
    *,
    actor: Actor,
    generation: str | None,
    now: datetime,
    history: int,
) -> Sequence[DeliveryId]:
    """Carry out `Intervention.replay`."""
    changed = begin_cycles(
        connection, ids, by=actor.by, generation=generation, now=now, history=history
    )
    if changed:
        record(connection, "replay", changed, actor, now=now, detail=generation or "")
    return changed


def begin_cycles(
    connection: apsw.Connection,
    ids: Sequence[DeliveryId],
    *,
    by: str,
    generation: str | None,
    now: datetime,
    history: int,
    replay: int | None = None,
    is_automatic: bool = False,
) -> list[DeliveryId]:
    """Make those that are unresolved dead letters pending again, and return them."""
    dead = find_deliveries(
        connection,
        f"WHERE d.{_OF} AND d.status = 3 AND d.resolution IS NULL ORDER BY d.id",
        (json_text(ids),),
    )
    connection.executemany(
        _REPLAY,
        (
            (
                micros(now),
                json_text((*delivery.cycles, _cycle(delivery, by, now=now))[-history:]),
                generation,
                delivery.id,
                replay,
                is_automatic,
            )
            for delivery in dead
        ),
    )
    changed = [delivery.id for delivery in dead]
    forget_exchanges(connection, changed)
    rejoin(connection, changed)
    return changed


def delete(
    connection: apsw.Connection, ids: Sequence[DeliveryId], *, actor: Actor, now: datetime
) -> Sequence[DeliveryId]:
    """Carry out `Intervention.delete`."""
    changed = _in_status(connection, ids, "status = 3")
    if changed:
        lanes = lanes_of(connection, changed)
        positions = rows(
            connection,
            f"SELECT id, position FROM redrive_deliveries WHERE {_OF}",
            (json_text(changed),),
        )
        remove(connection, json_text([(*one, micros(now)) for one in positions]))
        grow(connection, "deleted", len(changed))
        free_lanes(connection, lanes)
        record(connection, "delete", changed, actor, now=now)
    return changed


def resolve(
    connection: apsw.Connection, ids: Sequence[DeliveryId], *, actor: Actor, now: datetime
) -> Sequence[DeliveryId]:
    """Carry out `Intervention.resolve`."""
    changed = _in_status(connection, ids, "status = 3 AND resolution IS NULL")
    if changed:
        connection.execute(
            f"UPDATE redrive_deliveries SET resolution = ?, resolved_at = ? WHERE {_OF}",
            (
                json_text(Resolution(by=actor.by, at=now, why=actor.why)),
                micros(now),
                json_text(changed),
            ),
        )
        free_lanes(connection, lanes_of(connection, changed))
        record(connection, "resolve", changed, actor, now=now)
    return changed


def cancel(
    connection: apsw.Connection,
    ids: Sequence[DeliveryId],
    *,
    blame: Blame,
    actor: Actor,
    now: datetime,
) -> Sequence[DeliveryId]:
    """Carry out `Intervention.cancel`."""
    changed = _in_status(connection, ids, "status = 0")
    fail_pending(connection, changed, FailureReason.CANCELLED, blame, now=now)
    if changed:
        record(connection, "cancel", changed, actor, now=now)
    return changed


def expire(
    connection: apsw.Connection, *, blame: Blame, now: datetime, limit: int
) -> Sequence[Delivery]:
    """Carry out `DeliveryQueue.expire`."""
    changed = [
        DeliveryId(number)
        for (number,) in rows(
            connection,
            "SELECT id FROM redrive_deliveries WHERE status = 0 AND deadline <= ? "
            "ORDER BY deadline LIMIT ?",
            (micros(now), limit),
        )
    ]
    if not changed:
        return ()
    fail_pending(connection, changed, FailureReason.EXPIRED, blame, now=now)
    return find_deliveries(connection, f"WHERE d.{_OF} ORDER BY d.id", (json_text(changed),))


def has_expired(connection: apsw.Connection, *, now: datetime) -> bool:
    """Tell whether anything is past its deadline; takes no write lock, unlike `expire`."""
    found = connection.execute(
        "SELECT 1 FROM redrive_deliveries WHERE status = 0 AND deadline <= ? LIMIT 1",
        (micros(now),),
    ).get
    return found is not None


def reschedule(
    connection: apsw.Connection,
    ids: Sequence[DeliveryId],
    *,
    due: datetime,
    actor: Actor,
    now: datetime,
) -> Sequence[DeliveryId]:
    """Carry out `Intervention.reschedule`."""
    changed = _in_status(connection, ids, "status = 0")
    connection.execute(
        f"UPDATE redrive_deliveries SET due = ?, is_ready = ? WHERE {_OF}",
        (micros(due), due <= now, json_text(changed)),
    )
    if changed:
        record(connection, "reschedule", changed, actor, now=now, detail=due.isoformat())
    return changed


def prioritise(
    connection: apsw.Connection,
    ids: Sequence[DeliveryId],
    *,
    priority: int,
    actor: Actor,
    now: datetime,
) -> Sequence[DeliveryId]:
    """Carry out `Intervention.prioritise`."""
    changed = _in_status(connection, ids, "status = 0")
    connection.execute(
        f"UPDATE redrive_deliveries SET priority = ? WHERE {_OF}", (priority, json_text(changed))
    )
    if changed:
        record(connection, "prioritise", changed, actor, now=now, detail=str(priority))
    return changed


def _cycle(delivery: Delivery, by: str, *, now: datetime) -> Cycle:
    return Cycle(
        attempts=delivery.attempts,
        reason=delivery.reason or FailureReason.EXHAUSTED,
        fault=delivery.fault or Fault(error_class="", message="", rule=""),
        failed_at=delivery.settled_at or now,
        generation=delivery.generation,
        replayed_at=now,
        replayed_by=by,
        first_failed_at=delivery.first_failed_at,
        log=delivery.log,
    )


def _in_status(
    connection: apsw.Connection, ids: Sequence[DeliveryId], condition: str
) -> list[DeliveryId]:
    return [
        DeliveryId(number)
        for (number,) in rows(
            connection,
            f"SELECT id FROM redrive_deliveries WHERE {_OF} AND {condition} ORDER BY id",
            (json_text(ids),),
        )
    ]


def fail_pending(
    connection: apsw.Connection,
    ids: Sequence[DeliveryId],
    reason: FailureReason,
    blame: Blame,
    *,
    now: datetime,
) -> None:
    """Fail pending deliveries, each for what its destination is blamed for."""
    numbers = json_text(ids)
    destinations = rows(connection, _DESTINATIONS, (numbers,))
    for destination, name in destinations:
        values = (reason, json_text(blame(str(name))), micros(now), destination, numbers)
        connection.execute(_FAIL_PENDING, values)
    pass_by(connection, ids)
