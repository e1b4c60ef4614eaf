"""Claims, leases and settlements; those of one turn of a worker share a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from redrive.model.delivery import Delivery, Lease
from redrive.store import (
    FORGOTTEN_AFTER,
    Blame,
    Claim,
    ClaimRequest,
    Overdue,
    Rescue,
    Serving,
    Settled,
    ShedBlame,
)
from redrive.stores.codec import json_text
from redrive.stores.postgres import claiming, intervention, settling, shedding
from redrive.stores.postgres.at_once import claim as claim_at_once
from redrive.stores.postgres.at_once import settle as settle_at_once
from redrive.stores.postgres.at_once.heartbeat import BEAT
from redrive.stores.postgres.codec import numbers
from redrive.stores.postgres.core import Core

__all__ = ["QueueRole"]


class QueueRole(Core):
    """`DeliveryQueue`; what is common in a turn takes a single statement each."""

    _looked_at: datetime | None = None

    async def claim(self, request: ClaimRequest) -> Claim:
        self._bell.heard()
        self._expect_turns_within(request.lease)
        self._served = frozenset(one.destination for one in request.allowances)
        claimed = await self._claim_at_once(request)
        if claimed is not None:
            return claimed
        claimed = await self._share(
            lambda link, now: claiming.claim(
                link, request, floors=self.floors, plain=self._plain, now=now
            )
        )
        self._looked_at = claimed.now
        return claimed

    async def _claim_at_once(self, request: ClaimRequest) -> Claim | None:
        """Claim in one trip to the server; `None` if there is more to decide."""
        if self._looked_at is None or self.floors.are_stale(self._looked_at):
            return None
        if self._is_shared or not self._plain.may_serve(request):
            return None
        values = self._plain.values(request, floors=self.floors, now=self._given_now)
        rows = await self._try_at_once(claim_at_once.CLAIM, *values, within=self._patience)
        if rows is None:
            return None
        self._looked_at = rows[0][0]
        return self._plain.read(request, rows, floors=self.floors)

    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        if not (batch := await self._settle_at_once(batch)):
            return ()
        refused, frees = await self._share(
            lambda link, now: settling.settle(link, batch, now=now, history=self._history)
        )
        if frees:
            self._bell.ring()
        return refused

    async def _settle_at_once(self, batch: Sequence[Settled]) -> Sequence[Settled]:
        """Settle in one trip to the server what can be; returns the rest.

        Only beside a claim that does not depend on how much is in flight, nor on who was first.
        """
        is_apart = not self._is_shared and self._plain.covers(self._served)
        if not is_apart or not settle_at_once.is_simple(batch):
            return batch
        leases = _in_order(one.lease for one in batch)
        rows = await self._try_at_once(
            settle_at_once.SETTLE,
            self._given_now,
            numbers(one.delivery_id for one in leases),
            numbers(one.token for one in leases),
            within=self._patience,
        )
        if rows is None:
            return batch
        left = {number for (number,) in rows}
        return [one for one in batch if one.lease.delivery_id in left] if left else ()

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
        told = None if serving is None else json_text(serving)
        held = _in_order(leases)
        rows = await self._insist_at_once(
            BEAT,
            self._given_now,
            worker,
            told,
            FORGOTTEN_AFTER,
            lease,
            [one.delivery_id for one in held],
            [one.token for one in held],
            # So that there is time for another, on a connection that answers.
            within=lease.total_seconds() / 3,
        )
        kept = {Lease(number, token) for number, token in rows}
        return [one for one in leases if one not in kept]

    async def retire(self, worker: str) -> None:
        await self._write(lambda link, _: settling.retire(link, worker))

    async def overdue(self, *, limit: int = 100) -> Sequence[Overdue]:
        if not (await self._look_around()).has_overdue:
            return ()
        return await self._read(
            lambda link, now: settling.overdue(link, now=now, limit=limit), within=self._patience
        )

    async def rescue(self, batch: Sequence[Rescue]) -> Sequence[Lease]:
        return await self._write(
            lambda link, now: settling.rescue(link, batch, now=now),
            rings=True,
            within=self._patience,
        )

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        if not (await self._look_around()).has_expired:
            return ()
        return await self._write(
            lambda link, now: intervention.expire(link, blame=blame, now=now, limit=limit),
            within=self._patience,
        )

    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        if not (await self._look_around()).may_shed:
            return ()
        shed = await self._write(
            lambda link, now: shedding.shed(link, blame=blame, now=now, limit=limit),
            within=self._patience,
        )
        if shed:
            self._bell.ring()
        return shed


def _in_order(leases: Iterable[Lease]) -> list[Lease]:
    """Who changes several at once takes them in the same order as all others do."""
    return sorted(leases, key=lambda one: one.delivery_id)
