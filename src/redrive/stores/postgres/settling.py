"""Settling in SQL: what happens to a lease after its claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, assert_never

from redrive.model.delivery import DeliveryId, Lease
from redrive.model.outcome import Exchange
from redrive.model.settlement import Delivered, Failed, Requeued, RetryAt, Snoozed
from redrive.store import Left, Overdue, Rescue, Settled
from redrive.stores.codec import json_text
from redrive.stores.postgres.codec import columns, jsonb, numbers
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.lanes import free_held, line_up, pass_by
from redrive.stores.postgres.log import grow

__all__ = [
    "extend",
    "keep_exchanges",
    "overdue",
    "release",
    "rescue",
    "retire",
    "see_worker",
    "settle",
]

# Not `status = 1`: the planner would go through all leases for each of them, by their own index.
_IS_CURRENT = """d.id = given.id AND d.token = given.token AND d.status + 0 = 1
  AND d.lease_until > $1"""
_DONE = "worker = NULL, lease_until = NULL, is_alone = false"
_LOG = """CASE WHEN given.attempt IS NULL THEN d.log
    WHEN jsonb_array_length(coalesce(d.log, '[]')) < $2
    THEN coalesce(d.log, '[]') || given.attempt::jsonb
    ELSE (d.log - 0) || given.attempt::jsonb END"""
# Only what was tried before can have left an exchange: a snooze leaves the sum as it was, and what
# has failed without spending an attempt has failed before.
_SETTLED = "d.id, d.token, d.attempts + d.snoozes > 1 OR coalesce(d.first_failed_at < $1, false)"
_FAILED_AT = "first_failed_at = coalesce(d.first_failed_at, $1), last_failed_at = $1"

# It takes hold of the lanes, too, and returns one row: what was refused, the lanes that may be
# freed now, and those that somebody is publishing to, as texts that are handed on as they are.
_DELIVER = f"""
WITH given AS MATERIALIZED (
    SELECT id, token FROM unnest((SELECT $2::text::bigint[]), (SELECT $3::text::bigint[]))
        AS given (id, token)
), done AS (
    UPDATE redrive.deliveries d SET status = 2, settled_at = $1, {_DONE} FROM given
    WHERE {_IS_CURRENT}
    RETURNING {_SETTLED} AS was_tried, d.destination, d.lane
), forgotten AS (
    DELETE FROM redrive.exchanges WHERE delivery IN (SELECT id FROM done WHERE was_tried)
), held AS MATERIALIZED (
    SELECT key FROM redrive.keys WHERE key IN (SELECT lane FROM done)
    FOR NO KEY UPDATE SKIP LOCKED
), lanes AS MATERIALIZED (
    SELECT DISTINCT destination, lane, lane IN (SELECT key FROM held) AS is_held
    FROM done WHERE lane IS NOT NULL
)
SELECT (SELECT array_agg(id) FROM given WHERE id NOT IN (SELECT id FROM done)),
       array_agg(destination) FILTER (WHERE is_held)::text,
       array_agg(lane) FILTER (WHERE is_held)::text,
       array_agg(destination) FILTER (WHERE NOT is_held)::text,
       array_agg(lane) FILTER (WHERE NOT is_held)::text
FROM lanes
"""
_RETRY = f"""
UPDATE redrive.deliveries d
SET status = 0, {_DONE}, log = {_LOG}, kind = 1, due = given.due, is_ready = given.due <= $1,
    attempts = attempts - given.back, fault = given.fault::jsonb, {_FAILED_AT}
FROM unnest(
    $3::bigint[], $4::bigint[], $5::text[], $6::timestamptz[], $7::text[], $8::integer[]
) AS given (id, token, attempt, due, fault, back)
WHERE {_IS_CURRENT}
RETURNING {_SETTLED}
"""
_SNOOZE = f"""
UPDATE redrive.deliveries d
SET status = 0, {_DONE}, log = {_LOG}, attempts = attempts - 1, snoozes = snoozes + 1,
    due = given.due, is_ready = given.due <= $1
FROM unnest($3::bigint[], $4::bigint[], $5::text[], $6::timestamptz[])
    AS given (id, token, attempt, due)
WHERE {_IS_CURRENT}
RETURNING {_SETTLED}
"""
_FAIL = f"""
UPDATE redrive.deliveries d
SET status = 3, {_DONE}, log = {_LOG}, reason = given.reason, settled_at = $1,
    fault = given.fault::jsonb, group_id = given.fault::jsonb ->> 'group', {_FAILED_AT}
FROM unnest($3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[])
    AS given (id, token, attempt, reason, fault)
WHERE {_IS_CURRENT}
RETURNING {_SETTLED}
"""
_RELEASE = f"""
UPDATE redrive.deliveries d
SET status = 0, {_DONE}, attempts = attempts - 1, due = least(due, $1), is_ready = true
FROM unnest($2::bigint[], $3::bigint[]) AS given (id, token)
WHERE {_IS_CURRENT}
RETURNING d.id, d.token
"""
_EXTEND = f"""
UPDATE redrive.deliveries d SET lease_until = $1::timestamptz + $2::interval
FROM unnest($3::bigint[], $4::bigint[]) AS given (id, token)
WHERE {_IS_CURRENT}
RETURNING d.id, d.token
"""
_NOTE_LEFT = f"""
UPDATE redrive.deliveries d SET log = {_LOG}
FROM unnest($3::bigint[], $4::bigint[], $5::text[]) AS given (id, token, attempt)
WHERE {_IS_CURRENT}
"""
_IS_OVERDUE = "d.id = given.id AND d.token = given.token AND d.status = 1 AND d.lease_until <= $1"
_REQUEUE = f"""
UPDATE redrive.deliveries d
SET status = 0, {_DONE}, attempts = attempts - 1, due = given.due, is_ready = given.due <= $1,
    crashes = given.crashes, last_crash_at = given.last_crash_at
FROM unnest($2::bigint[], $3::bigint[], $4::timestamptz[], $5::integer[], $6::timestamptz[])
    AS given (id, token, due, crashes, last_crash_at)
WHERE {_IS_OVERDUE}
RETURNING d.id, d.token
"""
_CONDEMN = f"""
UPDATE redrive.deliveries d
SET status = 3, {_DONE}, attempts = attempts - 1, crashes = crashes + 1, last_crash_at = $1,
    reason = given.reason, fault = given.fault::jsonb,
    group_id = given.fault::jsonb ->> 'group', settled_at = $1, {_FAILED_AT}
FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::text[])
    AS given (id, token, reason, fault)
WHERE {_IS_OVERDUE}
RETURNING d.id, d.token
"""
_OVERDUE = """
SELECT d.id, d.token, t.name, e.id::text, d.worker, d.attempts, d.crashes, d.last_crash_at,
       d.is_alone, coalesce(w.seen_at > d.lease_until, true), w.seen_at
FROM redrive.deliveries d
JOIN redrive.destinations t ON t.id = d.destination
JOIN redrive.events e ON e.position = d.position
LEFT JOIN redrive.workers w ON w.id = d.worker
WHERE d.status = 1 AND d.lease_until <= $1
ORDER BY d.lease_until, d.id LIMIT $2
"""
_FORGET_EXCHANGES = "DELETE FROM redrive.exchanges WHERE delivery = ANY ($1::bigint[])"
_KEEP_EXCHANGES = """
INSERT INTO redrive.exchanges (delivery, document)
SELECT * FROM unnest($1::bigint[], $2::text[])
ON CONFLICT (delivery) DO UPDATE SET document = excluded.document
"""
_SEE_WORKER = """
INSERT INTO redrive.workers (id, seen_at) VALUES ($1, $2)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
"""


async def settle(
    link: Link, batch: Sequence[Settled], *, now: datetime, history: int
) -> tuple[Sequence[Lease], bool]:
    """Carry out `DeliveryQueue.settle`; also tell whether the next of a lane was freed."""
    rounds: list[list[Settled]] = []
    seen: Counter[DeliveryId] = Counter()
    for one in batch:  # the same delivery again sees what the first settlement did
        number = one.lease.delivery_id
        if seen[number] == len(rounds):
            rounds.append([])
        rounds[seen[number]].append(one)
        seen[number] += 1
    refused: list[Lease] = []
    frees = False
    for some in rounds:
        done, freed = await _settle_once(link, some, now=now, history=history)
        refused += [one.lease for one in some if one.lease not in done]
        frees = frees or freed
    if refused:
        await grow(link, "refused_settlements", len(refused))
    return refused, frees


class _Sorted:
    """A batch by what is to be done, as rows for the statement that does it."""

    def __init__(self, batch: Sequence[Settled]) -> None:
        self.delivered: list[Lease] = []
        self.retried: list[tuple[object, ...]] = []
        self.snoozed: list[tuple[object, ...]] = []
        self.failed: list[tuple[object, ...]] = []
        for one in batch:
            attempt = one.attempt and jsonb(one.attempt)
            place = (one.lease.delivery_id, one.lease.token, attempt)
            match one.settlement:
                case Delivered():
                    self.delivered.append(one.lease)
                case RetryAt(when=when, fault=fault, spends=spends):
                    self.retried.append((*place, when, jsonb(fault), int(not spends)))
                case Snoozed(until=until):
                    self.snoozed.append((*place, until))
                case Failed(reason=reason, fault=fault):
                    self.failed.append((*place, str(reason), jsonb(fault)))
                case never:
                    assert_never(never)


async def _settle_once(
    link: Link, batch: Sequence[Settled], *, now: datetime, history: int
) -> tuple[set[Lease], bool]:
    todo = _Sorted(batch)
    rows: list[Sequence[Any]] = []
    frees = bool(todo.failed)
    if todo.retried:
        rows += await link.fetch(_RETRY, now, history, *columns(todo.retried, 6))
    if todo.snoozed:
        rows += await link.fetch(_SNOOZE, now, history, *columns(todo.snoozed, 4))
    if rows:
        frees = await line_up(link, [row[0] for row in rows]) or frees
    if todo.failed:
        dead = await link.fetch(_FAIL, now, history, *columns(todo.failed, 5))
        rows += dead
        await pass_by(link, sorted(row[0] for row in dead))
    settled = _leases(rows)
    if todo.delivered:
        refused, *lanes = (await link.fetch(_DELIVER, now, *_texts(todo.delivered)))[0]
        frees = await free_held(link, *lanes) or frees
        settled.update(todo.delivered)
        if refused:
            settled -= {one for one in todo.delivered if one.delivery_id in refused}
    await _renew_exchanges(
        link,
        [one for one in batch if one.lease in settled],
        earlier={row[0] for row in rows if row[2]},
    )
    return settled, frees


async def _renew_exchanges(
    link: Link, accepted: Sequence[Settled], *, earlier: set[DeliveryId]
) -> None:
    """Keep what was exchanged in each last try, and forget what was in the one before."""
    silent = [
        one.lease.delivery_id
        for one in accepted
        if one.exchange is None and one.lease.delivery_id in earlier
    ]
    if silent:
        await link.fetch(_FORGET_EXCHANGES, silent)
    await keep_exchanges(link, [(one.lease.delivery_id, one.exchange) for one in accepted])


async def keep_exchanges(link: Link, told: Sequence[tuple[DeliveryId, Exchange | None]]) -> None:
    """Keep what was exchanged in the last tries of these deliveries, where something was."""
    documents = [(number, json_text(one)) for number, one in told if one is not None]
    if documents:
        await link.fetch(_KEEP_EXCHANGES, *columns(documents, 2))


async def release(link: Link, leases: Sequence[Lease], *, now: datetime) -> Sequence[Lease]:
    """Carry out `DeliveryQueue.release`."""
    done = _leases(await link.fetch(_RELEASE, now, *_columns(leases)))
    await line_up(link, sorted(one.delivery_id for one in done))
    return [one for one in leases if one not in done]


async def extend(
    link: Link, leases: Sequence[Lease], *, now: datetime, lease: timedelta
) -> Sequence[Lease]:
    """Carry out `DeliveryQueue.extend`."""
    done = _leases(await link.fetch(_EXTEND, now, lease, *_columns(leases)))
    return [one for one in leases if one not in done]


async def retire(
    link: Link, worker: str, left: Sequence[Left], *, now: datetime, history: int
) -> None:
    """Carry out `DeliveryQueue.retire`."""
    known = await link.fetch("DELETE FROM redrive.workers WHERE id = $1 RETURNING id", worker)
    if left and known:
        notes = [(one.lease.delivery_id, one.lease.token, jsonb(one.attempt)) for one in left]
        await link.fetch(_NOTE_LEFT, now, history, *columns(notes, 3))
    await link.fetch("DELETE FROM redrive.watches WHERE worker = $1", worker)


async def see_worker(link: Link, worker: str, now: datetime) -> None:
    """Note that a worker was heard of."""
    await link.fetch(_SEE_WORKER, worker, now)


async def overdue(link: Link, *, now: datetime, limit: int) -> Sequence[Overdue]:
    """Carry out `DeliveryQueue.overdue`."""
    return tuple(
        Overdue(
            lease=Lease(number, token),
            destination=destination,
            event_id=event_id,
            worker=worker,
            attempt=attempt,
            crashes=crashes,
            last_crash_at=last_crash_at,
            was_alone=was_alone,
            owner_is_alive=is_alive,
            seen_at=seen_at,
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
        ) in await link.fetch(_OVERDUE, now, limit)
    )


async def rescue(link: Link, batch: Sequence[Rescue], *, now: datetime) -> Sequence[Lease]:
    """Carry out `DeliveryQueue.rescue`."""
    requeued: list[tuple[object, ...]] = []
    condemned: list[tuple[object, ...]] = []
    for one in batch:
        lease = (one.lease.delivery_id, one.lease.token)
        match one.recovery:
            case Requeued(when=when, crashes=crashes, last_crash_at=last_crash_at):
                requeued.append((*lease, when, crashes, last_crash_at))
            case Failed(reason=reason, fault=fault):
                condemned.append((*lease, str(reason), jsonb(fault)))
            case never:
                assert_never(never)
    done: set[Lease] = set()
    if requeued:
        done |= _leases(await link.fetch(_REQUEUE, now, *columns(requeued, 5)))
        await line_up(link, sorted(one.delivery_id for one in done))
    if condemned:
        dead = _leases(await link.fetch(_CONDEMN, now, *columns(condemned, 4)))
        done |= dead
        await pass_by(link, sorted(one.delivery_id for one in dead))
    return [one.lease for one in batch if one.lease not in done]


def _columns(leases: Sequence[Lease]) -> tuple[list[int], list[int]]:
    return [one.delivery_id for one in leases], [one.token for one in leases]


def _texts(leases: Sequence[Lease]) -> tuple[str, str]:
    return numbers(one.delivery_id for one in leases), numbers(one.token for one in leases)


def _leases(rows: Sequence[Sequence[Any]]) -> set[Lease]:
    return {Lease(DeliveryId(row[0]), row[1]) for row in rows}
