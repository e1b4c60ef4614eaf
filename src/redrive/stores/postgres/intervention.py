"""What a person, or a deadline, may change in the PostgreSQL store; each leaves its audit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.audit import Actor
from redrive.model.delivery import Delivery, DeliveryId, Resolution
from redrive.model.settlement import FailureReason
from redrive.store import Blame
from redrive.stores.postgres.auditing import record
from redrive.stores.postgres.codec import jsonb
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.inspection import find_deliveries
from redrive.stores.postgres.lanes import free_lanes, lanes_of, pass_by
from redrive.stores.postgres.log import grow
from redrive.stores.postgres.removing import remove

__all__ = [
    "cancel",
    "delete",
    "expire",
    "fail_pending",
    "prioritise",
    "replay",
    "reschedule",
    "resolve",
]

_OF = "id = ANY ($1::bigint[])"
_DESTINATIONS = f"""
SELECT id, name FROM redrive.destinations
WHERE id IN (SELECT destination FROM redrive.deliveries WHERE {_OF})
"""
_FAIL_PENDING = f"""
UPDATE redrive.deliveries
SET status = 3, reason = $2, fault = $3::jsonb, group_id = $3::jsonb ->> 'group', settled_at = $4,
    first_failed_at = coalesce(first_failed_at, $4), last_failed_at = $4
WHERE destination = $5 AND {_OF}
"""
_EXPIRED = """
SELECT id FROM redrive.deliveries WHERE status = 0 AND deadline <= $1
ORDER BY deadline LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
"""


async def replay(
    link: Link,
    ids: Sequence[DeliveryId],
    *,
    actor: Actor,
    generation: str | None,
    now: datetime,
    history: int,
    of_replay: int | None = None,
    is_automatic: bool = False,
) -> list[DeliveryId]:
    """Carry out `Intervention.replay`, or a part of the replay of many that gives its number."""
    return [
        DeliveryId(row[0])
        for row in await link.fetch(
            "SELECT redrive.replay_all($1::bigint[], $2, $3, $4, $5, $6, $7, $8)",
            list(ids),
            generation,
            actor.by,
            actor.why,
            history,
            now,
            of_replay,
            is_automatic,
        )
    ]


async def delete(
    link: Link, ids: Sequence[DeliveryId], *, actor: Actor, now: datetime
) -> Sequence[DeliveryId]:
    """Carry out `Intervention.delete`."""
    changed = await _in_status(link, ids, "status = 3")
    if changed:
        lanes = await lanes_of(link, changed)
        await remove(link, changed, now=now)
        await grow(link, "deleted", len(changed))
        await free_lanes(link, lanes)
        await record(link, "delete", changed, actor, now=now)
    return changed


async def resolve(
    link: Link, ids: Sequence[DeliveryId], *, actor: Actor, now: datetime
) -> Sequence[DeliveryId]:
    """Carry out `Intervention.resolve`."""
    changed = await _in_status(link, ids, "status = 3 AND resolution IS NULL")
    if changed:
        await link.fetch(
            f"UPDATE redrive.deliveries SET resolution = $2::jsonb, resolved_at = $3 WHERE {_OF}",
            changed,
            jsonb(Resolution(by=actor.by, at=now, why=actor.why)),
            now,
        )
        await free_lanes(link, await lanes_of(link, changed))
        await record(link, "resolve", changed, actor, now=now)
    return changed


async def cancel(
    link: Link, ids: Sequence[DeliveryId], *, blame: Blame, actor: Actor, now: datetime
) -> Sequence[DeliveryId]:
    """Carry out `Intervention.cancel`."""
    changed = await _in_status(link, ids, "status = 0")
    if changed:
        await fail_pending(link, changed, FailureReason.CANCELLED, blame, now=now)
        await record(link, "cancel", changed, actor, now=now)
    return changed


async def expire(link: Link, *, blame: Blame, now: datetime, limit: int) -> Sequence[Delivery]:
    """Carry out `DeliveryQueue.expire`."""
    changed = [DeliveryId(row[0]) for row in await link.fetch(_EXPIRED, now, limit)]
    if not changed:
        return ()
    await fail_pending(link, changed, FailureReason.EXPIRED, blame, now=now)
    return await find_deliveries(link, f"WHERE d.{_OF} ORDER BY d.id", (changed,))


async def reschedule(
    link: Link, ids: Sequence[DeliveryId], *, due: datetime, actor: Actor, now: datetime
) -> Sequence[DeliveryId]:
    """Carry out `Intervention.reschedule`."""
    changed = await _in_status(link, ids, "status = 0")
    if changed:
        await link.fetch(
            "UPDATE redrive.deliveries SET due = $2, is_ready = $2::timestamptz <= $3, "
            f"kind = kind % 3 WHERE {_OF}",
            changed,
            due,
            now,
        )
        await record(link, "reschedule", changed, actor, now=now, detail=due.isoformat())
    return changed


async def prioritise(
    link: Link, ids: Sequence[DeliveryId], *, priority: int, actor: Actor, now: datetime
) -> Sequence[DeliveryId]:
    """Carry out `Intervention.prioritise`."""
    changed = await _in_status(link, ids, "status = 0")
    if changed:
        await link.fetch(
            f"UPDATE redrive.deliveries SET priority = $2, kind = kind % 3 WHERE {_OF}",
            changed,
            priority,
        )
        await record(link, "prioritise", changed, actor, now=now, detail=str(priority))
    return changed


async def _in_status(link: Link, ids: Sequence[DeliveryId], condition: str) -> list[DeliveryId]:
    """Return those in the status, and keep them in it until the transaction ends."""
    return [
        DeliveryId(row[0])
        for row in await link.fetch(
            f"SELECT id FROM redrive.deliveries WHERE {_OF} AND {condition} ORDER BY id "
            "FOR NO KEY UPDATE",
            list(ids),
        )
    ]


async def fail_pending(
    link: Link,
    ids: Sequence[DeliveryId],
    reason: FailureReason,
    blame: Blame,
    *,
    now: datetime,
) -> None:
    """Fail pending deliveries, each for what its destination is blamed for."""
    for destination, name in await link.fetch(_DESTINATIONS, list(ids)):
        await link.fetch(
            _FAIL_PENDING, list(ids), str(reason), jsonb(blame(name)), now, destination
        )
    await pass_by(link, ids)
