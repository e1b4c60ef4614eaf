"""Claim: lease what may start now, and learn when to look again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from redrive.observer import BreakerChanged, Claimed, Observer
from redrive.store import Allowance, Claim, ClaimRequest, DeliveryQueue

__all__ = ["Claimer"]


class Claimer(msgspec.Struct, frozen=True, kw_only=True):
    """Claims in the name of one worker."""

    store: DeliveryQueue
    worker: str
    generations: tuple[str, ...]
    lease: timedelta
    observer: Observer

    async def claim(self, allowances: Sequence[Allowance], *, limit: int) -> Claim:
        """Lease up to `limit` deliveries within the allowances."""
        return await self._claim(allowances, limit=limit, alone=False)

    async def claim_suspect(self, allowances: Sequence[Allowance]) -> Claim:
        """Lease one delivery that is suspected of crashing workers, to be run alone.

        While somebody else has a hold of it, it keeps nobody waiting, and is as good as none.
        """
        claim = await self._claim(allowances, limit=1, alone=True)
        is_in_vain = claim.is_held and not claim.deliveries
        return msgspec.structs.replace(claim, suspects=0) if is_in_vain else claim

    async def _claim(self, allowances: Sequence[Allowance], *, limit: int, alone: bool) -> Claim:
        claim = await self.store.claim(
            ClaimRequest(
                worker=self.worker,
                allowances=tuple(allowances),
                generations=self.generations,
                lease=self.lease,
                limit=limit,
                alone=alone,
            )
        )
        for change in claim.changes:
            self.observer.notice(BreakerChanged(change=change))
        if claim.deliveries:
            self.observer.notice(Claimed(worker=self.worker, deliveries=claim.deliveries))
        return claim
