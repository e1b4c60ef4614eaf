"""Claims, leases and settlements, each call handed to the thread that carries it out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from redrive.model.delivery import Delivery, Lease
from redrive.store import (
    Blame,
    Claim,
    ClaimRequest,
    Left,
    Overdue,
    Rescue,
    Serving,
    Settled,
    ShedBlame,
)
from redrive.stores.sqlite import claiming, intervention, settling, shedding
from redrive.stores.sqlite.core import Core

__all__ = ["QueueRole"]


class QueueRole(Core):
    """`DeliveryQueue`."""

    async def claim(self, request: ClaimRequest) -> Claim:
        self._seen = self._changes()
        claimed = await self._commit(lambda c, now: claiming.claim(c, request, now=now))
        if claimed.deliveries:
            self._look_soon()
        return claimed

    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        return await self._commit(
            lambda c, now: settling.settle(c, batch, now=now, history=self._history)
        )

    async def release(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        return await self._commit(lambda c, now: settling.release(c, leases, now=now), rings=True)

    async def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        lease: timedelta,
        serving: Serving | None = None,
    ) -> Sequence[Lease]:
        return await self._commit(
            lambda c, now: settling.heartbeat(
                c, worker, leases, now=now, lease=lease, serving=serving
            )
        )

    async def extend(self, leases: Sequence[Lease], *, lease: timedelta) -> Sequence[Lease]:
        return await self._commit(lambda c, now: settling.extend(c, leases, now=now, lease=lease))

    async def retire(self, worker: str, *, left: Sequence[Left] = ()) -> None:
        await self._commit(
            lambda c, now: settling.retire(c, worker, left, now=now, history=self._history)
        )

    async def overdue(self, *, limit: int = 100) -> Sequence[Overdue]:
        now = self._clock.now()
        return await self._reader.call(lambda c: settling.overdue(c, now=now, limit=limit))

    async def rescue(self, batch: Sequence[Rescue]) -> Sequence[Lease]:
        return await self._commit(lambda c, now: settling.rescue(c, batch, now=now), rings=True)

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        now = self._clock.now()
        if not await self._reader.call(lambda c: intervention.has_expired(c, now=now)):
            return ()
        return await self._commit(
            lambda c, now: intervention.expire(c, blame=blame, now=now, limit=limit)
        )

    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        now = self._clock.now()
        if not await self._reader.call(lambda c: shedding.has_to_shed(c, now=now)):
            return ()
        return await self._commit(
            lambda c, now: shedding.shed(c, blame=blame, now=now, limit=limit), rings=True
        )
