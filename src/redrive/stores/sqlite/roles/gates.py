"""Breakers, buckets and pauses, each call handed to the thread that carries it out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from redrive.model.audit import Actor
from redrive.model.gate import BreakerChange, GateFigures
from redrive.store import Report, Reported
from redrive.stores.sqlite import gating
from redrive.stores.sqlite.core import Core

__all__ = ["GatesRole"]


class GatesRole(Core):
    """`Gates`."""

    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        reported = await self._commit(
            lambda c, now: gating.report(c, batch, chance=chance, now=now)
        )
        if reported.changes:
            self._ring()
        return reported

    async def begin_check(
        self, destination: str, *, every: timedelta, lease: timedelta
    ) -> int | None:
        return await self._commit(
            lambda c, now: gating.begin_check(c, destination, every=every, lease=lease, now=now)
        )

    async def gates(self) -> Sequence[GateFigures]:
        now = self._clock.now()
        return await self._reader.call(lambda c: gating.figures(c, now=now))

    async def pause(self, destination: str, *, actor: Actor) -> bool:
        return await self._commit(lambda c, now: gating.pause(c, destination, actor=actor, now=now))

    async def resume(self, destination: str, *, actor: Actor) -> bool:
        return await self._commit(
            lambda c, now: gating.resume(c, destination, actor=actor, now=now), rings=True
        )

    async def open_breaker(
        self, destination: str, *, until: datetime | None, actor: Actor
    ) -> BreakerChange:
        return await self._commit(
            lambda c, now: gating.open_breaker(c, destination, until=until, actor=actor, now=now)
        )

    async def reset_breaker(self, destination: str, *, actor: Actor) -> BreakerChange:
        return await self._commit(
            lambda c, now: gating.reset_breaker(c, destination, actor=actor, now=now), rings=True
        )
