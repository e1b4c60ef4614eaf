"""What is kept, for how long, and where it goes, each call handed to the thread that does it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.letter import Letter
from redrive.model.retention import Retention
from redrive.store import (
    Backfilled,
    Grouping,
    LetterPage,
    LetterQuota,
    LogSlice,
    Moved,
    Pruned,
    Query,
    Restored,
)
from redrive.stores.sqlite import keeping, regrouping, rerouting
from redrive.stores.sqlite.core import Core
from redrive.stores.sqlite.letters import letters as find_letters
from redrive.stores.sqlite.letters import restore

__all__ = ["KeepingRole"]


class KeepingRole(Core):
    """`Housekeeping`, `Letters` and `Rerouting`."""

    async def prune(self, retention: Retention, *, limit: int = 500) -> Pruned:
        now = self._clock.now()
        if not await self._reader.call(lambda c: keeping.has_prunable(c, retention, now=now)):
            return Pruned()
        return await self._commit(lambda c, now: keeping.prune(c, retention, limit=limit, now=now))

    async def prunable(self, retention: Retention) -> Pruned:
        now = self._clock.now()
        return await self._reader.call(lambda c: keeping.prunable(c, retention, now=now))

    async def letter_quotas(self) -> Sequence[LetterQuota]:
        now = self._clock.now()
        return await self._reader.call(lambda c: keeping.letter_quotas(c, now=now))

    async def oldest_letters(self, destination: str, *, limit: int = 500) -> Sequence[Letter]:
        return await self._reader.call(
            lambda c: keeping.oldest_letters(c, destination, limit=limit)
        )

    async def discard(
        self, letters: Sequence[Letter], *, actor: Actor, detail: str
    ) -> Sequence[DeliveryId]:
        return await self._commit(
            lambda c, now: keeping.discard(c, letters, actor=actor, detail=detail, now=now),
            rings=True,
        )

    async def regroup(self, grouped: Grouping, *, before: str, limit: int = 200) -> int:
        if not await self._reader.call(lambda c: regrouping.has_outdated(c, before=before)):
            return 0
        return await self._commit(
            lambda c, now: regrouping.regroup(c, grouped, before=before, limit=limit, now=now)
        )

    async def outdated(self, *, before: str) -> int:
        return await self._reader.call(lambda c: regrouping.outdated(c, before=before))

    async def take_watch(self, duty: str, worker: str, *, span: timedelta) -> bool:
        now = self._clock.now()
        settled = await self._reader.call(
            lambda c: keeping.has_watch(c, duty, worker, span=span, now=now)
        )
        if settled is not None:
            return settled
        return await self._commit(
            lambda c, now: keeping.take_watch(c, duty, worker, span=span, now=now)
        )

    async def letters(
        self, query: Query, *, cursor: str | None = None, limit: int = 500
    ) -> LetterPage:
        return await self._reader.call(lambda c: find_letters(c, query, cursor=cursor, limit=limit))

    async def restore(self, letters: Sequence[Letter], *, actor: Actor) -> Restored:
        return await self._commit(lambda c, now: restore(c, letters, actor=actor, now=now))

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
