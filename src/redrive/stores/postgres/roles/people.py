"""What people look at and change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.audit import Actor, AuditEntry
from redrive.model.delivery import Delivery, DeliveryId
from redrive.store import Blame, Figures, Group, LaneFigures, Page, Query, Workload
from redrive.stores.postgres import auditing, counting, inspection, intervention
from redrive.stores.postgres.core import Core

__all__ = ["PeopleRole"]


class PeopleRole(Core):
    """`Inspection`, `Intervention` and `Audit`."""

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page:
        return await self._read(
            lambda link, _: inspection.find(link, query, cursor=cursor, limit=limit)
        )

    async def find_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        return await self._read(lambda link, _: inspection.find_delivery(link, delivery_id))

    async def lanes(self, *, limit: int = 50) -> Sequence[LaneFigures]:
        return await self._read(lambda link, _: inspection.lanes(link, limit=limit))

    async def groups(self, query: Query, *, limit: int = 50) -> Sequence[Group]:
        return await self._read(lambda link, _: inspection.groups(link, query, limit=limit))

    async def figures(self) -> Figures:
        return await self._read(lambda link, now: counting.figures(link, now=now))

    async def workload(self) -> Workload:
        return counting.workload(await self._query(counting.WORKLOAD))

    async def replay(
        self, ids: Sequence[DeliveryId], *, actor: Actor, generation: str | None = None
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda link, now: intervention.replay(
                link, ids, actor=actor, generation=generation, now=now, history=self._history
            ),
            rings=True,
        )

    async def delete(self, ids: Sequence[DeliveryId], *, actor: Actor) -> Sequence[DeliveryId]:
        return await self._write(
            lambda link, now: intervention.delete(link, ids, actor=actor, now=now), rings=True
        )

    async def resolve(self, ids: Sequence[DeliveryId], *, actor: Actor) -> Sequence[DeliveryId]:
        return await self._write(
            lambda link, now: intervention.resolve(link, ids, actor=actor, now=now), rings=True
        )

    async def cancel(
        self, ids: Sequence[DeliveryId], *, blame: Blame, actor: Actor
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda link, now: intervention.cancel(link, ids, blame=blame, actor=actor, now=now)
        )

    async def reschedule(
        self, ids: Sequence[DeliveryId], *, due: datetime, actor: Actor
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda link, now: intervention.reschedule(link, ids, due=due, actor=actor, now=now),
            rings=True,
        )

    async def prioritise(
        self, ids: Sequence[DeliveryId], *, priority: int, actor: Actor
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda link, now: intervention.prioritise(
                link, ids, priority=priority, actor=actor, now=now
            )
        )

    async def audit(self, *, before: int | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        return await self._read(
            lambda link, _: auditing.read_audit(link, before=before, limit=limit)
        )

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
            lambda link, now: auditing.record(
                link, action, ids, actor, now=now, count=count, detail=detail
            )
        )
