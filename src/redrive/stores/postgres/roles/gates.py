"""Breakers, buckets and pauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from redrive.model.audit import Actor
from redrive.model.gate import BreakerChange, BreakerState, GateFigures
from redrive.store import Report, Reported
from redrive.stores.postgres import gating
from redrive.stores.postgres.connection import translated
from redrive.stores.postgres.core import Core
from redrive.stores.postgres.single_statement.report import UNCHANGED, values

__all__ = ["GatesRole"]


class GatesRole(Core):
    """`Gates`."""

    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        if (unchanged := await self._unchanged(batch)) is not None:
            return Reported(breakers=unchanged)
        served = self._served
        reported = await self._share(
            lambda link, now: gating.report(link, batch, chance=chance, now=now, also=served)
        )
        if reported.changes:
            self._notifications.notify()
        return reported

    async def _unchanged(self, batch: Sequence[Report]) -> Mapping[str, BreakerState] | None:
        """Return the breakers, after one trip to the server, if this is no news to them."""
        looked_at = self._plain.looked_at
        if looked_at is None or self._is_shared:
            return None
        breakers = self._plain.breakers.untouched(batch, now=looked_at)
        if not breakers:
            return None
        with translated(self.address):
            rows = await self._at_once(
                UNCHANGED, *values(list(breakers.values())), within=self._patience, changes=False
            )
        if rows[0][0] == len(breakers):
            return {name: one.state for name, one in breakers.items()}
        self._plain.breakers.forget()
        return None

    async def begin_check(
        self, destination: str, *, every: timedelta, lease: timedelta
    ) -> int | None:
        return await self._write(
            lambda link, now: gating.begin_check(
                link, destination, every=every, lease=lease, now=now
            )
        )

    async def gates(self) -> Sequence[GateFigures]:
        return await self._read(lambda link, now: gating.figures(link, now=now))

    async def pause(self, destination: str, *, actor: Actor) -> bool:
        return await self._write(
            lambda link, now: gating.pause(link, destination, actor=actor, now=now)
        )

    async def resume(self, destination: str, *, actor: Actor) -> bool:
        return await self._write(
            lambda link, now: gating.resume(link, destination, actor=actor, now=now), rings=True
        )

    async def open_breaker(
        self, destination: str, *, until: datetime | None, actor: Actor
    ) -> BreakerChange:
        return await self._write(
            lambda link, now: gating.open_breaker(
                link, destination, until=until, actor=actor, now=now
            )
        )

    async def reset_breaker(self, destination: str, *, actor: Actor) -> BreakerChange:
        return await self._write(
            lambda link, now: gating.reset_breaker(link, destination, actor=actor, now=now),
            rings=True,
        )
