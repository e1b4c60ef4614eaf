"""What is kept, for how long, and where it goes, each call handed to the thread that does it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.store import (
    Backfilled,
    LogSlice,
    Moved,
)
from redrive.stores.sqlite import rerouting
from redrive.stores.sqlite.core import Core

__all__ = ["KeepingRole"]


class KeepingRole(Core):
    """`Rerouting`."""

    async def unregister(self, destination: str, *, actor: Actor) -> bool:
        return await self._commit(
            lambda c, now: rerouting.unregister(c, destination, actor=actor, now=now)
        )

    async def reregister(self, destination: str, *, actor: Actor) -> bool:
        return await self._commit(
            lambda c, now: rerouting.reregister(c, destination, actor=actor, now=now),
            rings=True,
        )

    async def waiting_for(
        self,
        destination: str,
        *,
        after: int = 0,
        limit: int = 500,
        with_dead_letters: bool = False,
    ) -> Sequence[DeliveryId]:
        return await self._reader.call(
            lambda c: rerouting.waiting_for(
                c, destination, after=after, limit=limit, with_dead_letters=with_dead_letters
            )
        )

    async def move(self, ids: Sequence[DeliveryId], *, target: str, actor: Actor) -> Moved:
        return await self._commit(
            lambda c, now: rerouting.move(c, ids, target=target, actor=actor, now=now), rings=True
        )

    async def drop(self, ids: Sequence[DeliveryId], *, actor: Actor) -> Sequence[DeliveryId]:
        return await self._commit(
            lambda c, now: rerouting.drop(c, ids, actor=actor, now=now), rings=True
        )

    async def read_log(
        self,
        destination: str,
        *,
        after: int = 0,
        limit: int = 1_000,
        since: datetime | None = None,
        until: datetime | None = None,
        event_type: str | None = None,
    ) -> LogSlice:
        now = self._clock.now()
        return await self._reader.call(
            lambda c: rerouting.read_log(
                c,
                destination,
                after=after,
                limit=limit,
                since=since,
                until=until,
                event_type=event_type,
                now=now,
            )
        )

    async def backfill(
        self,
        destination: str,
        positions: Sequence[int],
        *,
        actor: Actor,
        generation: str | None = None,
    ) -> Backfilled:
        return await self._commit(
            lambda c, now: rerouting.backfill(
                c, destination, positions, actor=actor, generation=generation, now=now
            ),
            rings=True,
        )
