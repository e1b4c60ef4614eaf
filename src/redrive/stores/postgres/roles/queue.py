"""Claims, leases and settlements; those of one turn of a worker share a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from redrive.model.delivery import Delivery, Lease
from redrive.store import (
    Blame,
    Claim,
    ClaimRequest,
    Overdue,
    Rescue,
    Serving,
    Settled,
    ShedBlame,
)
from redrive.stores.postgres import claiming, intervention, settling, shedding
from redrive.stores.postgres.core import Core

__all__ = ["QueueRole"]


class QueueRole(Core):
    """`DeliveryQueue`."""

    async def claim(self, request: ClaimRequest) -> Claim:
        self._bell.heard()
        self._expect_turns_within(request.lease)
        self._served = frozenset(one.destination for one in request.allowances)
        return await self._share(
            lambda link, now: claiming.claim(link, request, floors=self.floors, now=now)
        )

    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        refused, frees = await self._share(
            lambda link, now: settling.settle(link, batch, now=now, history=self._history)
        )
        if frees:
            self._bell.ring()
        return refused

    async def release(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        return await self._write(
            lambda link, now: settling.release(link, leases, now=now), rings=True
        )

    async def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        lease: timedelta,
        serving: Serving | None = None,
    ) -> Sequence[Lease]:
        return await self._write(
            lambda link, now: settling.heartbeat(
                link, worker, leases, now=now, lease=lease, serving=serving
            ),
            # So that there is time for another, on a connection that answers.
            within=lease.total_seconds() / 3,
        )

    async def retire(self, worker: str) -> None:
        await self._write(lambda link, _: settling.retire(link, worker))

    async def overdue(self, *, limit: int = 100) -> Sequence[Overdue]:
        return await self._read(lambda link, now: settling.overdue(link, now=now, limit=limit))

    async def rescue(self, batch: Sequence[Rescue]) -> Sequence[Lease]:
        return await self._write(
            lambda link, now: settling.rescue(link, batch, now=now), rings=True
        )

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        return await self._write(
            lambda link, now: intervention.expire(link, blame=blame, now=now, limit=limit)
        )

    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        shed = await self._write(
            lambda link, now: shedding.shed(link, blame=blame, now=now, limit=limit)
        )
        if shed:
            self._bell.ring()
        return shed
