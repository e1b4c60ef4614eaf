"""What happens to a lease after its claim: it is settled, extended, given back or rescued."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, assert_never

from redrive.model.delivery import Attempt, DeliveryId, Lease
from redrive.model.outcome import Addressees, Exchange
from redrive.model.settlement import Delivered, Failed, Requeued, RetryAt, Snoozed
from redrive.store import Left, Overdue, Rescue, Settled
from redrive.stores.codec import json_text
from redrive.stores.sql.lanes import pass_by
from redrive.stores.sql.removal import grow
from redrive.stores.sql.session import Session, instant
from redrive.stores.sql.store import SqlStore, writing

__all__ = [
    "LeasesRole",
    "forget_exchanges",
    "keep_addressees",
    "keep_exchanges",
    "leases_from",
    "note",
    "overdue",
    "see_worker",
    "settle",
]

# The fence: whoever holds another token, or a lease that has run out, changes nothing.
# Not `status = 1`: PostgreSQL would go through all leases for each of them, by their own index.
_IS_CURRENT = """d.id = given.id AND d.token = given.token AND d.status + 0 = 1
  AND d.lease_until > $1"""
_IS_OVERDUE = "d.id = given.id AND d.token = given.token AND d.status = 1 AND d.lease_until <= $1"
_DONE = "worker = NULL, lease_until = NULL, is_alone = false"
_FAILED_AT = "first_failed_at = coalesce(d.first_failed_at, $1), last_failed_at = $1"
# Only what was tried before can have left an exchange: a snooze leaves the sum as it was, and what
# has failed without spending an attempt has failed before.
_SETTLED = "d.id, d.token, d.attempts + d.snoozes > 1 OR coalesce(d.first_failed_at < $1, false)"
_RETRY = f"""
UPDATE redrive.deliveries AS d
SET status = 0, {_DONE}, log = {{log}}, kind = 1, due = given.due, is_ready = given.due <= $1,
    attempts = attempts - given.back, fault = given.fault::jsonb, {_FAILED_AT}
FROM json_to_recordset($3::json) AS given (
    id bigint, token bigint, attempt text, due timestamptz, fault text, back integer
)
WHERE {_IS_CURRENT}
RETURNING {_SETTLED}
"""
_SNOOZE = f"""
UPDATE redrive.deliveries AS d
SET status = 0, {_DONE}, log = {{log}}, attempts = attempts - 1, snoozes = snoozes + 1,
    due = given.due, is_ready = given.due <= $1
FROM json_to_recordset($3::json) AS given (
    id bigint, token bigint, attempt text, due timestamptz
)
WHERE {_IS_CURRENT}
RETURNING {_SETTLED}
"""
_FAIL = f"""
UPDATE redrive.deliveries AS d
SET status = 3, {_DONE}, log = {{log}}, reason = given.reason, settled_at = $1,
    fault = given.fault::jsonb, group_id = given.fault::jsonb ->> 'group', {_FAILED_AT}
FROM json_to_recordset($3::json) AS given (
    id bigint, token bigint, attempt text, reason text, fault text
)
WHERE {_IS_CURRENT}
RETURNING {_SETTLED}
"""
_NOTE = f"""
UPDATE redrive.deliveries AS d SET log = {{log}}
FROM json_to_recordset($3::json) AS given (id bigint, token bigint, attempt text)
WHERE {_IS_CURRENT}
"""
_RELEASE = f"""
UPDATE redrive.deliveries AS d
SET status = 0, {_DONE}, attempts = attempts - 1, due = least(due, $1), is_ready = true
FROM json_to_recordset($2::json) AS given (id bigint, token bigint)
WHERE {_IS_CURRENT}
RETURNING d.id, d.token
"""
_REQUEUE = f"""
UPDATE redrive.deliveries AS d
SET status = 0, {_DONE}, attempts = attempts - 1, due = given.due, is_ready = given.due <= $1,
    crashes = given.crashes, last_crash_at = given.last_crash_at
FROM json_to_recordset($2::json) AS given (
    id bigint, token bigint, due timestamptz, crashes integer, last_crash_at timestamptz
)
WHERE {_IS_OVERDUE}
RETURNING d.id, d.token
"""
_CONDEMN = f"""
UPDATE redrive.deliveries AS d
SET status = 3, {_DONE}, attempts = attempts - 1, crashes = crashes + 1, last_crash_at = $1,
    reason = given.reason, fault = given.fault::jsonb,
    group_id = given.fault::jsonb ->> 'group', settled_at = $1, {_FAILED_AT}
FROM json_to_recordset($2::json) AS given (id bigint, token bigint, reason text, fault text)
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
_KEEP_EXCHANGES = """
INSERT INTO redrive.exchanges (delivery, document)
SELECT delivery, document
FROM json_to_recordset($1::json) AS given (delivery bigint, document text) WHERE true
ON CONFLICT (delivery) DO UPDATE SET document = excluded.document
"""
_KEEP_ADDRESSEES = """
INSERT INTO redrive.addressees (delivery, document)
SELECT delivery, document
FROM json_to_recordset($1::json) AS given (delivery bigint, document text) WHERE true
ON CONFLICT (delivery) DO UPDATE SET document = excluded.document
"""
_SEE_WORKER = """
INSERT INTO redrive.workers (id, seen_at) VALUES ($1, $2)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
"""


class LeasesRole(SqlStore):
    """What `DeliveryQueue` does with leases now and then."""

    @writing(notifies=True)
    async def release(self, session: Session, leases: Sequence[Lease]) -> Sequence[Lease]:
        rows = [{"id": one.delivery_id, "token": one.token} for one in leases]
        done = leases_from(await session.fetch(_RELEASE, session.now, session.records(rows)))
        await session.line_up(sorted(one.delivery_id for one in done))
        return [one for one in leases if one not in done]

    @writing()
    async def retire(self, session: Session, worker: str, *, left: Sequence[Left] = ()) -> None:
        known = await session.fetch(
            "DELETE FROM redrive.workers WHERE id = $1 RETURNING id", worker
        )
        if known:
            await note(session, [(one.lease, one.attempt) for one in left], history=self._history)
        await session.fetch("DELETE FROM redrive.watches WHERE worker = $1", worker)

    @writing(notifies=True, is_prompt=True)
    async def rescue(self, session: Session, batch: Sequence[Rescue]) -> Sequence[Lease]:
        requeued: list[dict[str, object]] = []
        condemned: list[dict[str, object]] = []
        for one in batch:
            row: dict[str, object] = {"id": one.lease.delivery_id, "token": one.lease.token}
            match one.recovery:
                case Requeued(when=when, crashes=crashes, last_crash_at=last_crash_at):
                    row |= {"due": when, "crashes": crashes, "last_crash_at": last_crash_at}
                    requeued.append(row)
                case Failed(reason=reason, fault=fault):
                    row |= {"reason": str(reason), "fault": session.json(fault)}
                    condemned.append(row)
                case never:
                    assert_never(never)
        done: set[Lease] = set()
        if requeued:
            done |= leases_from(
                await session.fetch(_REQUEUE, session.now, session.records(requeued))
            )
            await session.line_up(sorted(one.delivery_id for one in done))
        if condemned:
            rows = await session.fetch(_CONDEMN, session.now, session.records(condemned))
            done |= (dead := leases_from(rows))
            await pass_by(session, sorted(one.delivery_id for one in dead))
        return [one.lease for one in batch if one.lease not in done]


async def see_worker(session: Session, worker: str) -> None:
    """Note that a worker was heard of."""
    await session.fetch(_SEE_WORKER, worker, session.now)


async def overdue(session: Session, *, limit: int) -> Sequence[Overdue]:
    """Return leases that have run out."""
    return tuple(
        Overdue(
            lease=Lease(number, token),
            destination=destination,
            event_id=event_id,
            worker=worker,
            attempt=attempt,
            crashes=crashes,
            last_crash_at=instant(last_crash_at),
            was_alone=bool(was_alone),
            owner_is_alive=bool(is_alive),
            seen_at=instant(seen_at),
            now=session.now,
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
        ) in await session.fetch(_OVERDUE, session.now, limit)
    )


async def settle(
    session: Session, batch: Sequence[Settled], *, history: int
) -> tuple[Sequence[Lease], bool]:
    """Settle what has a current lease; tell what was refused, and whether a lane was freed."""
    refused: list[Lease] = []
    frees = False
    for some in _rounds(batch):
        done, freed = await _settle_once(session, some, history=history)
        refused += [one.lease for one in some if one.lease not in done]
        frees = frees or freed
    if refused:
        await grow(session, "refused_settlements", len(refused))
    return refused, frees


def _rounds(batch: Sequence[Settled]) -> Sequence[Sequence[Settled]]:
    """Divide a batch so that the same delivery again sees what the first settlement did."""
    if len({one.lease.delivery_id for one in batch}) == len(batch):
        return [batch]
    rounds: list[list[Settled]] = []
    seen: Counter[DeliveryId] = Counter()
    for one in batch:
        number = one.lease.delivery_id
        if seen[number] == len(rounds):
            rounds.append([])
        rounds[seen[number]].append(one)
        seen[number] += 1
    return rounds


async def _settle_once(
    session: Session, batch: Sequence[Settled], *, history: int
) -> tuple[set[Lease], bool]:
    delivered: list[Lease] = []
    retried: list[dict[str, object]] = []
    snoozed: list[dict[str, object]] = []
    failed: list[dict[str, object]] = []
    for one in batch:
        if isinstance(one.settlement, Delivered):
            delivered.append(one.lease)
            continue
        attempt = one.attempt and session.json(one.attempt)
        row: dict[str, object] = {
            "id": one.lease.delivery_id,
            "token": one.lease.token,
            "attempt": attempt,
        }
        match one.settlement:
            case RetryAt(when=when, fault=fault, spends=spends):
                row |= {"due": when, "fault": session.json(fault), "back": int(not spends)}
                retried.append(row)
            case Snoozed(until=until):
                row["due"] = until
                snoozed.append(row)
            case Failed(reason=reason, fault=fault):
                row |= {"reason": str(reason), "fault": session.json(fault)}
                failed.append(row)
            case never:
                assert_never(never)
    frees = bool(failed)
    rows = await _put_back(session, _RETRY, retried, history=history)
    rows += await _put_back(session, _SNOOZE, snoozed, history=history)
    if rows:
        frees = await session.line_up([row[0] for row in rows]) or frees
    if failed:
        dead = await _put_back(session, _FAIL, failed, history=history)
        rows += dead
        await pass_by(session, sorted(row[0] for row in dead))
    settled = leases_from(rows)
    if delivered:
        done, freed = await session.deliver(delivered)
        settled |= done
        frees = frees or freed
    told = {
        one.lease.delivery_id: one.exchange
        for one in batch
        if one.exchange is not None and one.lease in settled
    }
    await forget_exchanges(session, [row[0] for row in rows if row[2] and row[0] not in told])
    await keep_exchanges(session, list(told.items()))
    await keep_addressees(
        session, [(one.lease.delivery_id, one.addressees) for one in batch if one.lease in settled]
    )
    return settled, frees


async def _put_back(
    session: Session, statement: str, rows: Sequence[dict[str, object]], *, history: int
) -> list[Any]:
    """Settle these leases otherwise than as delivered, each with its try on its story."""
    if not rows:
        return []
    text = statement.replace("{log}", session.log_with_attempt)
    return await session.fetch(text, session.now, history, session.records(rows))


async def note(session: Session, tries: Sequence[tuple[Lease, Attempt]], *, history: int) -> None:
    """Add tries to the stories of deliveries whose leases are current."""
    rows: list[dict[str, object]] = [
        {"id": lease.delivery_id, "token": lease.token, "attempt": session.json(attempt)}
        for lease, attempt in tries
    ]
    await _put_back(session, _NOTE, rows, history=history)


async def keep_exchanges(
    session: Session, told: Sequence[tuple[DeliveryId, Exchange | None]]
) -> None:
    """Keep what was exchanged in the last tries of these deliveries, where something was."""
    documents = [
        {"delivery": number, "document": json_text(session.codec.closed(one))}
        for number, one in told
        if one is not None
    ]
    if documents:
        await session.fetch(_KEEP_EXCHANGES, session.records(documents))


async def keep_addressees(
    session: Session, told: Sequence[tuple[DeliveryId, Addressees | None]]
) -> None:
    """Keep who of several has answered for good, where somebody has."""
    documents = [
        {"delivery": number, "document": json_text(session.codec.closed(one))}
        for number, one in told
        if one is not None
    ]
    if documents:
        await session.fetch(_KEEP_ADDRESSEES, session.records(documents))


async def forget_exchanges(session: Session, ids: Sequence[DeliveryId]) -> None:
    """Forget what was exchanged in the last tries of these deliveries."""
    if ids:
        await session.fetch(
            "DELETE FROM redrive.exchanges WHERE delivery = ANY ($1::bigint[])", list(ids)
        )


def leases_from(rows: Sequence[Sequence[Any]]) -> set[Lease]:
    """Read leases from rows of a delivery and a token."""
    return {Lease(DeliveryId(row[0]), row[1]) for row in rows}
