"""Claims, leases and settlements; those of one turn of a worker share a transaction."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from redrive.model.delivery import Delivery, Lease
from redrive.store import (
    FORGOTTEN_AFTER,
    Allowance,
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
from redrive.stores.codec import json_text
from redrive.stores.postgres import claiming, intervention, settling, shedding
from redrive.stores.postgres.codec import numbers
from redrive.stores.postgres.core import Core
from redrive.stores.postgres.single_statement import claim as claim_statement
from redrive.stores.postgres.single_statement import idle as idle_statement
from redrive.stores.postgres.single_statement import settle as settle_statement
from redrive.stores.postgres.single_statement.heartbeat import BEAT

__all__ = ["QueueRole"]

_BETWEEN_POLLS_SECONDS = 1.25
"""An idle worker polls every second: what one poll has seen serves the duties until the next.

With room for a poll that is a little late, or duties would ask the same beside it.
"""


class QueueRole(Core):
    """`DeliveryQueue`; what is common in a turn takes a single statement each."""

    _is_idle = False
    _is_busy = False
    _settling: asyncio.Future[bool] | None = None

    async def claim(self, request: ClaimRequest) -> Claim:
        self._notifications.clear()
        self._expect_turns_within(request.lease)
        self._served = frozenset(one.destination for one in request.allowances)
        beside = self._settling
        claimed = await self._claim_at_once(request) or await self._poll(request)
        if claimed is None:
            claimed = await self._claim_in_steps(request)
            left = _left(request, claimed)
            if beside is not None and left is not None and await asyncio.shield(beside):
                # The turn's own settlements have freed lanes, and there is room for them.
                claimed = _joined(claimed, await self._claim_in_steps(left))
        self._is_idle = not claimed.deliveries
        self._is_busy = bool(claimed.deliveries) and _left(request, claimed) is None
        return claimed

    async def _poll(self, request: ClaimRequest) -> Claim | None:
        """Ask in one trip whether there is still nothing to claim; `None` if there may be."""
        if not self._is_idle or self._is_shared or request.alone:
            return None
        asked = self._plain.breakers.closed([one.destination for one in request.allowances])
        if asked is None or not self._plain.has_heard_of(request.worker):
            return None
        began = self._clock.monotonic()
        values = (self._given_now, *idle_statement.values(request, asked))
        rows = await self._try_at_once(
            idle_statement.POLL, *values, within=self._patience, changes=False
        )
        if rows is None:
            return None
        claimed, duties = idle_statement.read(rows)
        self._keep_duties(duties, since=began, lasts=_BETWEEN_POLLS_SECONDS)
        return claimed

    async def _claim_in_steps(self, request: ClaimRequest) -> Claim:
        claimed = await self._share(
            lambda link, now: claiming.claim(
                link, request, bounds=self.bounds, plain=self._plain, now=now
            )
        )
        self._plain.looked_at = claimed.now
        return claimed

    async def _claim_at_once(self, request: ClaimRequest) -> Claim | None:
        """Claim in one trip to the server; `None` if there is more to decide."""
        if self._plain.looked_at is None or self._is_shared or not self._plain.may_serve(request):
            return None
        await self.bounds.follow(self._look)
        bounds = self.bounds.reading()
        values = self._plain.values(request, bounds=bounds, now=self._given_now)
        statement = claim_statement.CLAIM_AND_LOOK if self._is_idle else claim_statement.CLAIM
        began = self._clock.monotonic()
        rows = await self._try_at_once(
            statement, *values, within=self._patience, changes=not self._is_idle
        )
        if rows is None:
            return None
        self._plain.looked_at = rows[0][0]
        claimed = self._plain.read(request, rows, bounds=bounds)
        if claimed is not None and claimed.deliveries:
            self._forget_duties()
        elif (duties := claim_statement.duties(rows)) is not None:
            self._keep_duties(duties, since=began, lasts=_BETWEEN_POLLS_SECONDS)
        return claimed

    async def _look(self, statement: str) -> list[Any]:
        return await self._insist_at_once(statement, within=self._patience, changes=False)

    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        if self._goes_apart(batch):
            return await self._settle_apart(batch)
        if not (batch := await self._settle_at_once(batch)):
            return ()
        refused, frees = await self._share(
            lambda link, now: settling.settle(link, batch, now=now, history=self._history)
        )
        if frees:
            self._notifications.notify_seldom()
        return refused

    def _goes_apart(self, batch: Sequence[Settled]) -> bool:
        """Tell whether to settle beside the claim of the same turn, and not before it.

        That halves the time of a turn where there is more to claim than can be started. A claim
        that depends on what is in flight, or on what has failed, comes after it.
        """
        return (
            self._is_busy
            and not self._is_shared
            and self._settling is None
            and self._plain.keeps_order
            and not self._plain.counts_leases
            and settle_statement.is_simple(batch)
        )

    async def _settle_apart(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        settling_now = self._settling = asyncio.get_running_loop().create_future()
        frees = False
        try:
            refused, frees = await self._write(
                lambda link, now: settling.settle(link, batch, now=now, history=self._history),
                within=self._patience,
            )
        finally:
            self._settling = None
            settling_now.set_result(frees)
        if frees:
            self._notifications.notify_seldom()
        return refused

    async def _settle_at_once(self, batch: Sequence[Settled]) -> Sequence[Settled]:
        """Settle in one trip to the server what can be; returns the rest.

        Only beside a claim that does not depend on how much is in flight, nor on who was first.
        """
        is_apart = not self._is_shared and (
            self._plain.covers(self._served) or self._may_settle_beside()
        )
        if not is_apart or not settle_statement.is_simple(batch):
            return batch
        leases = _in_order(one.lease for one in batch)
        rows = await self._try_at_once(
            settle_statement.SETTLE,
            self._given_now,
            numbers(one.delivery_id for one in leases),
            numbers(one.token for one in leases),
            within=self._patience,
        )
        if rows is None:
            return batch
        left = {number for (number,) in rows}
        return [one for one in batch if one.lease.delivery_id in left] if left else ()

    def _may_settle_beside(self) -> bool:
        return self._is_busy and not self._plain.keeps_order and not self._plain.counts_leases

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

    async def extend(self, leases: Sequence[Lease], *, lease: timedelta) -> Sequence[Lease]:
        return await self._write(
            lambda link, now: settling.extend(link, _in_order(leases), now=now, lease=lease),
            within=lease.total_seconds() / 3,
        )

    async def retire(self, worker: str, *, left: Sequence[Left] = ()) -> None:
        await self._write(
            lambda link, now: settling.retire(link, worker, left, now=now, history=self._history)
        )

    async def overdue(self, *, limit: int = 100) -> Sequence[Overdue]:
        if not (await self._due_duties()).has_overdue:
            return ()
        return await self._read(
            lambda link, now: settling.overdue(link, now=now, limit=limit), is_prompt=True
        )

    async def rescue(self, batch: Sequence[Rescue]) -> Sequence[Lease]:
        return await self._write(
            lambda link, now: settling.rescue(link, batch, now=now),
            rings=True,
            within=self._patience,
        )

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        if not (await self._due_duties()).has_expired:
            return ()
        return await self._write(
            lambda link, now: intervention.expire(link, blame=blame, now=now, limit=limit),
            within=self._patience,
        )

    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        if not (await self._due_duties()).may_shed:
            return ()
        shed = await self._write(
            lambda link, now: shedding.shed(link, blame=blame, now=now, limit=limit),
            within=self._patience,
        )
        if shed:
            self._notifications.notify()
        return shed


def _left(request: ClaimRequest, claimed: Claim) -> ClaimRequest | None:
    """Return what is left to ask for after a claim, if anything is."""
    got = Counter(one.destination for one in claimed.deliveries)
    limit = request.limit - got.total()
    allowances = [
        Allowance(destination=one.destination, total=one.total - got[one.destination])
        for one in request.allowances
        if one.total > got[one.destination]
    ]
    if not allowances or limit == 0 or request.alone:
        return None
    return msgspec.structs.replace(request, allowances=tuple(allowances), limit=limit)


def _joined(first: Claim, second: Claim) -> Claim:
    return msgspec.structs.replace(
        second,
        deliveries=first.deliveries + second.deliveries,
        changes=first.changes + second.changes,
    )


def _in_order(leases: Iterable[Lease]) -> list[Lease]:
    """Who changes several at once takes them in the same order as all others do."""
    return sorted(leases, key=lambda one: one.delivery_id)
