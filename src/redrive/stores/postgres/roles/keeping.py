"""What is kept, for how long, and where it goes; each call is a transaction of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.letter import Letter
from redrive.store import (
    Backfilled,
    LetterPage,
    LogSlice,
    Moved,
    Query,
    Restored,
)
from redrive.stores.postgres import rerouting
from redrive.stores.postgres.core import Core
from redrive.stores.postgres.letters import letters as find_letters
from redrive.stores.postgres.letters import letters_of, restore

__all__ = ["KeepingRole"]

_OLDEST = """
WHERE d.destination = (SELECT id FROM redrive.destinations WHERE name = $1)
  AND d.status = 3 AND d.resolution IS NULL ORDER BY d.settled_at, d.id LIMIT $2
"""


class KeepingRole(Core):
    """`Letters` and `Rerouting`."""

    async def oldest_letters(self, destination: str, *, limit: int = 500) -> Sequence[Letter]:
        return await self._read(lambda link, _: letters_of(link, _OLDEST, (destination, limit)))

    async def letters(
        self, query: Query, *, cursor: str | None = None, limit: int = 500
    ) -> LetterPage:
        return await self._read(
            lambda link, _: find_letters(link, query, cursor=cursor, limit=limit)
        )

    async def restore(self, letters: Sequence[Letter], *, actor: Actor) -> Restored:
        return await self._write(lambda link, now: restore(link, letters, actor=actor, now=now))

    async def unregister(self, destination: str, *, actor: Actor) -> bool:
        return await self._write(
            lambda link, now: rerouting.unregister(link, destination, actor=actor, now=now)
        )

    async def reregister(self, destination: str, *, actor: Actor) -> bool:
        return await self._write(
            lambda link, now: rerouting.reregister(link, destination, actor=actor, now=now),
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
        return await self._read(
            lambda link, _: rerouting.waiting_for(
                link, destination, after=after, limit=limit, with_dead_letters=with_dead_letters
            )
        )

    async def move(self, ids: Sequence[DeliveryId], *, target: str, actor: Actor) -> Moved:
        return await self._write(
            lambda link, now: rerouting.move(link, ids, target=target, actor=actor, now=now),
            rings=True,
        )

    async def drop(self, ids: Sequence[DeliveryId], *, actor: Actor) -> Sequence[DeliveryId]:
        return await self._write(
            lambda link, now: rerouting.drop(link, ids, actor=actor, now=now), rings=True
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
        return await self._read(
            lambda link, now: rerouting.read_log(
                link,
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
        return await self._write(
            lambda link, now: rerouting.backfill(
                link, destination, positions, actor=actor, generation=generation, now=now
            ),
            rings=True,
        )
