"""What a person, or a deadline, may change; each change leaves its audit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor
from redrive.model.delivery import Delivery, DeliveryId, Resolution
from redrive.model.settlement import FailureReason
from redrive.store import Blame
from redrive.stores.sql.audit import record
from redrive.stores.sql.inspection import find_deliveries, within
from redrive.stores.sql.lanes import lanes_of, pass_by
from redrive.stores.sql.removal import grow, remove
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import SqlStore, writing

__all__ = ["InterventionRole", "expire", "fail_pending", "has_expired", "in_status"]

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
_RESOLVE = f"""
UPDATE redrive.deliveries SET resolution = $2::jsonb, resolved_at = $3 WHERE {_OF}
"""
# Others of its lane may have gone since it was resolved.
_REOPEN = f"""
UPDATE redrive.deliveries
SET resolution = NULL, resolved_at = NULL, lane = NULL, is_behind = false WHERE {_OF}
"""
# A kind of 3 is a first try that goes in publish order alone, in PostgreSQL: one that is changed
# no longer does.
_RESCHEDULE = f"""
UPDATE redrive.deliveries SET due = $2, is_ready = $2::timestamptz <= $3, kind = kind % 3
WHERE {_OF}
"""
_PRIORITISE = f"UPDATE redrive.deliveries SET priority = $2, kind = kind % 3 WHERE {_OF}"


class InterventionRole(SqlStore):
    """`Intervention`."""

    @writing(notifies=True)
    async def replay(
        self,
        session: Session,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        generation: str | None = None,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        if scope.is_limited:
            ids = await in_status(session, ids, "status = 3", scope)
        return await session.replay(ids, actor=actor, generation=generation, history=self._history)

    @writing(notifies=True)
    async def delete(
        self,
        session: Session,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        changed = await in_status(session, ids, "status = 3", scope)
        if changed:
            lanes = await lanes_of(session, changed)
            await remove(session, changed)
            await grow(session, "deleted", len(changed))
            await session.free_lanes(lanes)
            await record(session, "delete", changed, actor)
        return changed

    @writing(notifies=True)
    async def resolve(
        self,
        session: Session,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        changed = await in_status(session, ids, "status = 3 AND resolution IS NULL", scope)
        if changed:
            resolution = Resolution(by=actor.by, at=session.now, why=actor.why)
            await session.fetch(_RESOLVE, changed, session.json(resolution), session.now)
            await session.free_lanes(await lanes_of(session, changed))
            await record(session, "resolve", changed, actor)
        return changed

    @writing()
    async def reopen(
        self,
        session: Session,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        changed = await in_status(session, ids, "status = 3 AND resolution IS NOT NULL", scope)
        if changed:
            await session.fetch(_REOPEN, changed)
            await record(session, "reopen", changed, actor)
        return changed

    @writing()
    async def cancel(
        self,
        session: Session,
        ids: Sequence[DeliveryId],
        *,
        blame: Blame,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        changed = await in_status(session, ids, "status = 0", scope)
        if changed:
            await fail_pending(session, changed, FailureReason.CANCELLED, blame)
            await record(session, "cancel", changed, actor)
        return changed

    @writing(notifies=True)
    async def reschedule(
        self,
        session: Session,
        ids: Sequence[DeliveryId],
        *,
        due: datetime,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        changed = await in_status(session, ids, "status = 0", scope)
        if changed:
            await session.fetch(_RESCHEDULE, changed, due, session.now)
            await record(session, "reschedule", changed, actor, detail=due.isoformat())
        return changed

    @writing()
    async def prioritise(
        self,
        session: Session,
        ids: Sequence[DeliveryId],
        *,
        priority: int,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        changed = await in_status(session, ids, "status = 0", scope)
        if changed:
            await session.fetch(_PRIORITISE, changed, priority)
            await record(session, "prioritise", changed, actor, detail=str(priority))
        return changed


async def has_expired(session: Session) -> bool:
    """Tell whether anything is past its deadline; takes no lock, unlike `expire`."""
    found = await session.fetch(
        "SELECT 1 FROM redrive.deliveries WHERE status = 0 AND deadline <= $1 LIMIT 1", session.now
    )
    return bool(found)


async def expire(session: Session, *, blame: Blame, limit: int) -> Sequence[Delivery]:
    """Fail what is past its deadline; returns it."""
    changed = [DeliveryId(one) for (one,) in await session.fetch(_EXPIRED, session.now, limit)]
    if not changed:
        return ()
    await fail_pending(session, changed, FailureReason.EXPIRED, blame)
    return await find_deliveries(session, f"WHERE d.{_OF} ORDER BY d.id", changed, is_strict=False)


async def fail_pending(
    session: Session, ids: Sequence[DeliveryId], reason: FailureReason, blame: Blame
) -> None:
    """Fail pending deliveries, each for what its destination is blamed for."""
    for destination, name in await session.fetch(_DESTINATIONS, list(ids)):
        fault = session.json(blame(name))
        await session.fetch(_FAIL_PENDING, list(ids), str(reason), fault, session.now, destination)
    await pass_by(session, ids)


async def in_status(
    session: Session, ids: Sequence[DeliveryId], condition: str, scope: Scope
) -> list[DeliveryId]:
    """Return those in the status and the scope, and keep them there until the transaction ends."""
    theirs, values = within(scope, 2)
    found = await session.fetch(
        f"SELECT id FROM redrive.deliveries d WHERE {_OF} AND {condition}{theirs} ORDER BY id "
        "FOR NO KEY UPDATE",
        list(ids),
        *values,
    )
    return [DeliveryId(number) for (number,) in found]
