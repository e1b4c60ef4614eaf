"""Operations of somebody who may see a part of the store only: the rest is as if it were not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus

import msgspec

from redrive.model.audit import AuditEntry, AuditQuery
from redrive.model.delivery import DeliveryId
from redrive.model.gate import BreakerChange, GateFigures
from redrive.model.limits import Rate
from redrive.operations import Operations, ReplayPlan
from redrive.operations.context import HEEDING
from redrive.policies.access import NEEDS, Reach
from redrive.store import EventPage, EventQuery, Group, Page, Query, TenantFigures
from redrive.web.caller import Caller
from redrive.web.problem import ProblemError

__all__ = ["Limited"]


class Limited:
    """The operations that can be limited to a caller's part of the store, and no others.

    It is used like `Operations`. What it does not have is refused, so an operation that is still to
    come tells nobody more than they may know.
    """

    def __init__(self, operations: Operations, caller: Caller) -> None:
        self._operations = caller.operations(operations)
        self._caller = caller

    def __getattr__(self, operation: str) -> Callable[..., object]:
        """Return what keeps to their part, or to those who may no more than they; or refuse it."""
        if operation.startswith("__"):
            raise AttributeError(operation)
        self._caller.check(operation)
        if operation in HEEDING:
            act: Callable[..., object] = getattr(self._operations, operation)
            return act
        if NEEDS[operation].reach is Reach.GRANTS:
            grant, of_grants = self._caller.grant, getattr(self._operations, operation)
            return lambda *given, **named: of_grants(*given, **{**named, "caller": grant})
        raise ProblemError(
            HTTPStatus.FORBIDDEN,
            "forbidden",
            "This shows or changes more than the part of the store that is yours; what is yours "
            "is in the API, see /docs.",
        )

    async def deliveries(
        self,
        query: Query | None = None,
        *,
        cursor: str | None = None,
        limit: int = 50,
        most_read: int | None = None,
    ) -> Page:
        """Return their deliveries; at several destinations, those of the first that has any."""
        pages = [
            await self._operations.deliveries(one, cursor=cursor, limit=limit, most_read=most_read)
            for one in self._within("deliveries", query)
        ]
        return next((one for one in pages if one.deliveries), pages[0])

    async def dead_letters(
        self, query: Query | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page:
        """Return their dead letters; at several destinations, those of the first that has any."""
        pages = [
            await self._operations.dead_letters(one, cursor=cursor, limit=limit)
            for one in self._within("dead_letters", query)
        ]
        return next((one for one in pages if one.deliveries), pages[0])

    async def groups(
        self, query: Query | None = None, *, limit: int = 50, most_read: int | None = None
    ) -> list[Group]:
        """Return why their dead letters failed; the counts are of theirs alone."""
        found = [
            group
            for one in self._within("groups", query)
            for group in await self._operations.groups(one, limit=limit, most_read=most_read)
        ]
        return sorted(found, key=lambda one: -one.count)[:limit]

    async def select(
        self, query: Query | None = None, *, resolved: bool = False
    ) -> list[DeliveryId]:
        """Return the numbers of all of their dead letters that fit."""
        return [
            number
            for one in self._within("select", query)
            for number in await self._operations.select(one, resolved=resolved)
        ]

    async def plan_replay(
        self, selection: Query | None = None, *, rate: Rate | str | None = None
    ) -> ReplayPlan:
        """Count what a replay would take."""
        within = self._within("plan_replay", selection)
        plans = [await self._operations.plan_replay(one, rate=rate) for one in within]
        return next((one for one in plans if one.survey.selected), plans[0])

    async def find_events(
        self,
        query: EventQuery | None = None,
        *,
        cursor: str | None = None,
        limit: int = 50,
        most_stretches: int | None = None,
    ) -> EventPage:
        """Return events of their tenant."""
        chosen = query or EventQuery()
        tenant, _ = self._caller.narrow("find_events", tenant=chosen.tenant)
        narrowed = msgspec.structs.replace(chosen, tenant=tenant)
        return await self._operations.find_events(
            narrowed, cursor=cursor, limit=limit, most_stretches=most_stretches
        )

    async def gates(self) -> list[GateFigures]:
        """Return the gates of their destinations."""
        self._caller.check("gates")
        own = self._caller.grant.destinations
        return [one for one in await self._operations.gates() if one.destination in own]

    async def pause(self, destination: str, *, by: str, why: str = "") -> bool:
        """Stop a destination of theirs."""
        self._caller.narrow("pause", destination=destination)
        return await self._operations.pause(destination, by=by, why=why)

    async def resume(self, destination: str, *, by: str, why: str = "") -> bool:
        """Let a destination of theirs go on."""
        self._caller.narrow("resume", destination=destination)
        return await self._operations.resume(destination, by=by, why=why)

    async def reset_breaker(self, destination: str, *, by: str, why: str = "") -> BreakerChange:
        """Close the breaker of a destination of theirs."""
        self._caller.narrow("reset_breaker", destination=destination)
        return await self._operations.reset_breaker(destination, by=by, why=why)

    async def tenants(
        self,
        *,
        destination: str | None = None,
        tenant: str | None = None,
        only_paused: bool = False,
        limit: int = 50,
    ) -> Sequence[TenantFigures]:
        """Return how their tenant stands, at their destinations."""
        tenant, destination = self._caller.narrow("tenants", tenant=tenant, destination=destination)
        return await self._operations.tenants(
            destination=destination, tenant=tenant, only_paused=only_paused, limit=limit
        )

    async def audit(self, query: AuditQuery | None = None, **_: object) -> Sequence[AuditEntry]:
        """Tell nothing of what was done to a delivery: an act may be about others' as well."""
        if query is None or query.deliveries is None:
            self._caller.check("audit")
        return ()

    def _within(self, operation: str, query: Query | None) -> list[Query]:
        """Return what is asked of each destination of theirs."""
        chosen = query or Query()
        places: Sequence[str | None] = (chosen.destination,)
        if chosen.destination is None and self._caller.grant.destinations:
            places = self._caller.grant.destinations
        return [
            msgspec.structs.replace(chosen, tenant=tenant, destination=destination)
            for tenant, destination in (
                self._caller.narrow(operation, tenant=chosen.tenant, destination=one)
                for one in places
            )
        ]
