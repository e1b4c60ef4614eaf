"""The queue of the SQLite store: claims, settlements and leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from redrive.model.delivery import Delivery, Lease
from redrive.store import (
    FORGOTTEN_AFTER,
    Blame,
    Claim,
    ClaimRequest,
    Overdue,
    Serving,
    Settled,
    ShedBlame,
)
from redrive.stores.sql.intervention import expire, has_expired
from redrive.stores.sql.leases import LeasesRole, leases_from, overdue, see_worker, settle
from redrive.stores.sql.session import Session
from redrive.stores.sql.shedding import has_to_shed, shed
from redrive.stores.sql.store import writing
from redrive.stores.sqlite.claiming import claim
from redrive.stores.sqlite.core import Core

__all__ = ["QueueRole", "extend", "heartbeat"]

_EXTEND = """
UPDATE redrive.deliveries AS d SET lease_until = $2
FROM json_to_recordset($3::json) AS given (id bigint, token bigint)
WHERE d.id = given.id AND d.token = given.token AND d.status = 1 AND d.lease_until > $1
RETURNING d.id, d.token
"""
_SERVES = "UPDATE redrive.workers SET destinations = $2, generations = $3 WHERE id = $1"


class QueueRole(LeasesRole, Core):
    """`DeliveryQueue`."""

    async def claim(self, request: ClaimRequest) -> Claim:
        self._look_anew()
        claimed = await self._write(lambda session, _: claim(session, request))
        if claimed.deliveries:
            self._look_soon()
        return claimed

    @writing()
    async def settle(self, session: Session, batch: Sequence[Settled]) -> Sequence[Lease]:
        refused, _ = await settle(session, batch, history=self._history)
        return refused

    async def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        lease: timedelta,
        serving: Serving | None = None,
    ) -> Sequence[Lease]:
        return await self._write(
            lambda session, _: heartbeat(session, worker, leases, lease=lease, serving=serving)
        )

    async def extend(self, leases: Sequence[Lease], *, lease: timedelta) -> Sequence[Lease]:
        return await self._write(lambda session, _: extend(session, leases, lease=lease))

    async def overdue(self, *, limit: int = 100) -> Sequence[Overdue]:
        return await self._read(lambda session, _: overdue(session, limit=limit))

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        if not await self._read(lambda session, _: has_expired(session)):
            return ()  # without having taken the write lock
        return await self._write(lambda session, _: expire(session, blame=blame, limit=limit))

    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        if await self._idle("may_shed") is not None:
            return ()
        if not await self._read(lambda session, _: has_to_shed(session)):
            return ()  # without having taken the write lock
        return await self._write(
            lambda session, _: shed(session, blame=blame, limit=limit), notifies=True
        )


async def heartbeat(
    session: Session,
    worker: str,
    leases: Sequence[Lease],
    *,
    lease: timedelta,
    serving: Serving | None,
) -> Sequence[Lease]:
    """Note that a worker was heard of, and what it serves; extend its leases."""
    await see_worker(session, worker)
    if serving is not None:
        await session.fetch(_SERVES, worker, list(serving.destinations), list(serving.generations))
    await session.fetch(
        "DELETE FROM redrive.workers WHERE seen_at < $1", session.now - FORGOTTEN_AFTER
    )
    return await extend(session, leases, lease=lease)


async def extend(session: Session, leases: Sequence[Lease], *, lease: timedelta) -> Sequence[Lease]:
    """Extend the leases that are current; returns the others."""
    if not leases:
        return ()
    rows = [{"id": one.delivery_id, "token": one.token} for one in leases]
    until = session.now + lease
    found = await session.fetch(_EXTEND, session.now, until, session.records(rows))
    kept = leases_from(found)
    return [one for one in leases if one not in kept]
