"""Breakers, buckets and pauses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from redrive.model.audit import Actor
from redrive.model.gate import BreakerChange, GateFigures
from redrive.stores.postgres import gating
from redrive.stores.postgres.core import Core

__all__ = ["GatesRole"]


class GatesRole(Core):
    """`Gates`, but for reports."""

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
