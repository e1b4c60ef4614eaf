"""Settling in SQL: what happens to a lease after its claim."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_never

import apsw
import msgspec

from redrive.model.delivery import Attempt, DeliveryId, Lease
from redrive.model.outcome import Exchange
from redrive.model.settlement import Delivered, Failed, Requeued, RetryAt, Snoozed
from redrive.store import FORGOTTEN_AFTER, Left, Overdue, Rescue, Serving, Settled
from redrive.stores.codec import json_text, maybe_from_micros, maybe_micros, micros
from redrive.stores.sqlite.claiming import see_worker
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.lanes import Lane, free_lanes, line_up, pass_by
from redrive.stores.sqlite.log import grow

__all__ = [
    "extend",
    "forget_exchanges",
    "heartbeat",
    "keep_exchanges",
    "note",
    "overdue",
    "release",
    "rescue",
    "retire",
    "settle",
]

_CURRENT = """
SELECT json_group_array(json_array(d.id, d.token)),
       json_group_array(json_array(d.id, d.destination, d.lane)) FILTER (WHERE d.lane IS NOT NULL)
FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value ->> 0
WHERE d.token = value ->> 1 AND d.status = 1 AND d.lease_until > ?
"""
_OVERDUE = """
SELECT d.id, d.token, t.name, e.id, d.worker, d.attempts, d.crashes, d.last_crash_at, d.is_alone,
       ifnull(w.seen_at > d.lease_until, 1), w.seen_at
FROM redrive_deliveries d
JOIN redrive_destinations t ON t.id = d.destination
JOIN redrive_events e ON e.position = d.position
LEFT JOIN redrive_workers w ON w.id = d.worker
WHERE d.status = 1 AND d.lease_until <= ?
ORDER BY d.lease_until LIMIT ?
"""
_LOG = """CASE WHEN ?1 IS NULL THEN log
    WHEN log IS NULL THEN json_array(json(?1))
    WHEN json_array_length(log) < ?2 THEN json_insert(log, '$[#]', json(?1))
    ELSE json_insert(json_remove(log, '$[0]'), '$[#]', json(?1)) END"""
_NOTE = f"UPDATE redrive_deliveries SET log = {_LOG} WHERE id = ?3"
_BACK_TO_PENDING = "status = 0, worker = NULL, lease_until = NULL, is_alone = 0"
_DELIVER = """
UPDATE redrive_deliveries
SET status = 2, settled_at = ?, worker = NULL, lease_until = NULL, is_alone = 0, lane = NULL
WHERE id IN (SELECT value FROM json_each(?))
"""
_RETRY = f"""
UPDATE redrive_deliveries
SET {_BACK_TO_PENDING}, log = {_LOG}, kind = 1, due = ?3, is_ready = ?3 <= ?4, fault = ?5,
    attempts = attempts - ?7, first_failed_at = ifnull(first_failed_at, ?4), last_failed_at = ?4
WHERE id = ?6
"""
_SNOOZE = f"""
UPDATE redrive_deliveries
SET {_BACK_TO_PENDING}, log = {_LOG}, attempts = attempts - 1, snoozes = snoozes + 1,
    due = ?3, is_ready = ?3 <= ?4
WHERE id = ?5
"""
_FAIL = f"""
UPDATE redrive_deliveries
SET status = 3, worker = NULL, lease_until = NULL, is_alone = 0, log = {_LOG}, reason = ?3,
    settled_at = ?4, fault = ?5, group_id = ?5 ->> 'group',
    first_failed_at = ifnull(first_failed_at, ?4), last_failed_at = ?4
WHERE id = ?6
"""
_RELEASE = f"""
UPDATE redrive_deliveries
SET {_BACK_TO_PENDING}, attempts = attempts - 1, due = min(due, ?1), is_ready = 1
WHERE id IN (SELECT value FROM json_each(?2))
"""
_REQUEUE = f"""
UPDATE redrive_deliveries
SET {_BACK_TO_PENDING}, attempts = attempts - 1, due = ?1, is_ready = ?1 <= ?2,
    crashes = ?3, last_crash_at = ?4
WHERE id = ?5
"""
_CONDEMN = """
UPDATE redrive_deliveries
SET status = 3, worker = NULL, lease_until = NULL, is_alone = 0, attempts = attempts - 1,
    crashes = crashes + 1, last_crash_at = ?1, reason = ?2, fault = ?3,
    group_id = ?3 ->> 'group', settled_at = ?1,
    first_failed_at = ifnull(first_failed_at, ?1), last_failed_at = ?1
WHERE id = ?4
"""

_leases = msgspec.json.Decoder(set[Lease])
_lanes = msgspec.json.Decoder(list[tuple[int, int, str]])


def settle(
    connection: apsw.Connection, batch: Sequence[Settled], *, now: datetime, history: int
) -> Sequence[Lease]:
    """Carry out `DeliveryQueue.settle`."""
    current, lanes = _current(connection, [one.lease for one in batch], now=now)
    refused: list[Lease] = []
    accepted: list[Settled] = []
    delivered: list[int] = []
    failed: list[int] = []
    waiting: list[int] = []
    for one in batch:
        if one.lease not in current:
            refused.append(one.lease)
            continue
        current.remove(one.lease)
        accepted.append(one)
        if isinstance(one.settlement, Delivered):
            delivered.append(one.lease.delivery_id)
        else:
            _put_back(connection, one, one.settlement, moment=micros(now), history=history)
            kept = failed if isinstance(one.settlement, Failed) else waiting
            kept.append(one.lease.delivery_id)
    if refused:
        grow(connection, "refused_settlements", len(refused))
    _renew_exchanges(connection, accepted)
    if lanes and failed:
        pass_by(connection, failed)
    if lanes and waiting:
        line_up(connection, waiting)
    if delivered:
        connection.execute(_DELIVER, (micros(now), json_text(delivered)))
        if lanes:
            left = [lanes[number] for number in delivered if number in lanes]
            free_lanes(connection, list(dict.fromkeys(left)))
    return refused


def _renew_exchanges(connection: apsw.Connection, accepted: Sequence[Settled]) -> None:
    """Keep what was exchanged in each last try, and forget what was in the one before."""
    told = [(one.lease.delivery_id, one.exchange) for one in accepted]
    if connection.execute("SELECT 1 FROM redrive_exchanges LIMIT 1").get is not None:
        forget_exchanges(connection, [one.lease.delivery_id for one in accepted])
    keep_exchanges(connection, told)


def keep_exchanges(
    connection: apsw.Connection, told: Sequence[tuple[int, Exchange | None]]
) -> None:
    """Keep what was exchanged in the last tries of these deliveries, where something was."""
    documents = [(number, json_text(one)) for number, one in told if one is not None]
    if documents:
        connection.executemany("INSERT OR REPLACE INTO redrive_exchanges VALUES (?, ?)", documents)


def forget_exchanges(connection: apsw.Connection, ids: Sequence[int]) -> None:
    """Forget what was exchanged in the last tries of these deliveries."""
    connection.execute(
        "DELETE FROM redrive_exchanges WHERE delivery IN (SELECT value FROM json_each(?))",
        (json_text(ids),),
    )


def _put_back(
    connection: apsw.Connection,
    settled: Settled,
    settlement: RetryAt | Snoozed | Failed,
    *,
    moment: int,
    history: int,
) -> None:
    number, attempt = settled.lease.delivery_id, settled.attempt and json_text(settled.attempt)
    match settlement:
        case RetryAt(when=when, fault=fault, spends=spends):
            due, back = micros(when), int(not spends)
            connection.execute(
                _RETRY, (attempt, history, due, moment, json_text(fault), number, back)
            )
        case Snoozed(until=until):
            connection.execute(_SNOOZE, (attempt, history, micros(until), moment, number))
        case Failed(reason=reason, fault=fault):
            connection.execute(_FAIL, (attempt, history, reason, moment, json_text(fault), number))
        case never:
            assert_never(never)


def release(
    connection: apsw.Connection, leases: Sequence[Lease], *, now: datetime
) -> Sequence[Lease]:
    """Carry out `DeliveryQueue.release`."""
    current, lanes = _current(connection, leases, now=now)
    connection.execute(_RELEASE, (micros(now), _ids_of(current)))
    if lanes:
        line_up(connection, sorted(lease.delivery_id for lease in current))
    return [lease for lease in leases if lease not in current]


def heartbeat(
    connection: apsw.Connection,
    worker: str,
    leases: Sequence[Lease],
    *,
    now: datetime,
    lease: timedelta,
    serving: Serving | None,
) -> Sequence[Lease]:
    """Carry out `DeliveryQueue.heartbeat`."""
    see_worker(connection, worker, micros(now))
    if serving is not None:
        connection.execute(
            "UPDATE redrive_workers SET destinations = ?, generations = ? WHERE id = ?",
            (json_text(serving.destinations), json_text(serving.generations), worker),
        )
    connection.execute(
        "DELETE FROM redrive_workers WHERE seen_at < ?", (micros(now - FORGOTTEN_AFTER),)
    )
    return extend(connection, leases, now=now, lease=lease)


def extend(
    connection: apsw.Connection, leases: Sequence[Lease], *, now: datetime, lease: timedelta
) -> Sequence[Lease]:
    """Carry out `DeliveryQueue.extend`."""
    if not leases:
        return ()
    current, _ = _current(connection, leases, now=now)
    connection.execute(
        "UPDATE redrive_deliveries SET lease_until = ? "
        "WHERE id IN (SELECT value FROM json_each(?))",
        (micros(now + lease), _ids_of(current)),
    )
    return [one for one in leases if one not in current]


def retire(
    connection: apsw.Connection,
    worker: str,
    left: Sequence[Left],
    *,
    now: datetime,
    history: int,
) -> None:
    """Carry out `DeliveryQueue.retire`."""
    connection.execute("DELETE FROM redrive_workers WHERE id = ?", (worker,))
    if left and connection.changes():
        current, _ = _current(connection, [one.lease for one in left], now=now)
        for one in left:
            if one.lease in current:
                note(connection, one.lease.delivery_id, one.attempt, history=history)
    connection.execute("DELETE FROM redrive_watches WHERE worker = ?", (worker,))


def note(
    connection: apsw.Connection, number: DeliveryId, attempt: Attempt, *, history: int
) -> None:
    """Add a try to the story of a delivery."""
    connection.execute(_NOTE, (json_text(attempt), history, number))


def overdue(connection: apsw.Connection, *, now: datetime, limit: int) -> Sequence[Overdue]:
    """Carry out `DeliveryQueue.overdue`."""
    return tuple(
        Overdue(
            lease=Lease(number, token),
            destination=destination,
            event_id=event_id,
            worker=worker,
            attempt=attempt,
            crashes=crashes,
            last_crash_at=maybe_from_micros(last_crash_at),
            was_alone=bool(was_alone),
            owner_is_alive=bool(is_alive),
            seen_at=maybe_from_micros(seen_at),
            now=now,
        )
        for (
            number,
            token,
            destination,
            event_id,
            worker,
            attempt,
            crashes,
            last_crash_at,
            was_alone,
            is_alive,
            seen_at,
        ) in rows(connection, _OVERDUE, (micros(now), limit))
    )


def rescue(
    connection: apsw.Connection, batch: Sequence[Rescue], *, now: datetime
) -> Sequence[Lease]:
    """Carry out `DeliveryQueue.rescue`."""
    moment = micros(now)
    refused = []
    for one in batch:
        number, token = one.lease.delivery_id, one.lease.token
        is_overdue = connection.execute(
            "SELECT 1 FROM redrive_deliveries "
            "WHERE id = ? AND token = ? AND status = 1 AND lease_until <= ?",
            (number, token, moment),
        ).get
        if not is_overdue:
            refused.append(one.lease)
            continue
        match one.recovery:
            case Requeued(when=when, crashes=crashes, last_crash_at=last_crash_at):
                connection.execute(
                    _REQUEUE, (micros(when), moment, crashes, maybe_micros(last_crash_at), number)
                )
                line_up(connection, [number])
            case Failed(reason=reason, fault=fault):
                connection.execute(_CONDEMN, (moment, reason, json_text(fault), number))
                pass_by(connection, [number])
            case never:
                assert_never(never)
    return refused


def _current(
    connection: apsw.Connection, leases: Sequence[Lease], *, now: datetime
) -> tuple[set[Lease], dict[int, Lane]]:
    """Return the leases that are current, and the lanes of those deliveries that are in one."""
    found, in_lanes = connection.execute(_CURRENT, (json_text(leases), micros(now))).get
    lanes = {number: (destination, lane) for number, destination, lane in _lanes.decode(in_lanes)}
    return _leases.decode(found), lanes


def _ids_of(leases: set[Lease]) -> str:
    return json_text(sorted(lease.delivery_id for lease in leases))
