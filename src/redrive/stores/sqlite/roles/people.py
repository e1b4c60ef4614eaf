"""What people look at and change, each call handed to the thread that carries it out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.audit import Actor, AuditEntry
from redrive.model.delivery import Delivery, DeliveryId
from redrive.store import Blame, Figures, Group, LaneFigures, Page, Query, Workload
from redrive.stores.sqlite import auditing, counting, inspection, intervention
from redrive.stores.sqlite.core import Core

__all__ = ["PeopleRole"]


class PeopleRole(Core):
    """`Inspection`, `Intervention` and `Audit`."""

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page:
        return await self._reader.call(
            lambda c: inspection.find(c, query, cursor=cursor, limit=limit)
        )

    async def find_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        return await self._reader.call(lambda c: inspection.find_delivery(c, delivery_id))

    async def lanes(self, *, limit: int = 50) -> Sequence[LaneFigures]:
        return await self._reader.call(lambda c: inspection.lanes(c, limit=limit))

    async def groups(self, query: Query, *, limit: int = 50) -> Sequence[Group]:
        return await self._reader.call(lambda c: inspection.groups(c, query, limit=limit))

    async def figures(self) -> Figures:
        now = self._clock.now()
        return await self._reader.call(lambda c: counting.figures(c, now=now))

    async def workload(self) -> Workload:
        now = self._clock.now()
        return await self._reader.call(lambda c: counting.workload(c, now=now))

    async def replay(
        self, ids: Sequence[DeliveryId], *, actor: Actor, generation: str | None = None
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.replay(
                c, ids, actor=actor, generation=generation, now=now, history=self._history
            ),
            rings=True,
        )

    async def delete(self, ids: Sequence[DeliveryId], *, actor: Actor) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.delete(c, ids, actor=actor, now=now), rings=True
        )

    async def resolve(self, ids: Sequence[DeliveryId], *, actor: Actor) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.resolve(c, ids, actor=actor, now=now), rings=True
        )

    async def cancel(
        self, ids: Sequence[DeliveryId], *, blame: Blame, actor: Actor
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.cancel(c, ids, blame=blame, actor=actor, now=now)
        )

    async def reschedule(
        self, ids: Sequence[DeliveryId], *, due: datetime, actor: Actor
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.reschedule(c, ids, due=due, actor=actor, now=now),
            rings=True,
        )

    async def prioritise(
        self, ids: Sequence[DeliveryId], *, priority: int, actor: Actor
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.prioritise(c, ids, priority=priority, actor=actor, now=now)
        )

    async def audit(self, *, before: int | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        return await self._reader.call(lambda c: auditing.read_audit(c, before=before, limit=limit))

    async def note(
        self,
        action: str,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        count: int | None = None,
        detail: str = "",
    ) -> None:
        await self._write(
            lambda c, now: auditing.record(
                c, action, ids, actor, now=now, count=count, detail=detail
            )
        )
