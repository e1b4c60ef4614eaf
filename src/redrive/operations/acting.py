"""Acting on deliveries: replay, delete, resolve, reopen, cancel, reschedule, prioritise."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.audit import Actor
from redrive.model.checks import check_generation, check_instant
from redrive.model.delivery import DeliveryId
from redrive.model.event import check_priority
from redrive.model.outcome import Fault
from redrive.operations.context import (
    OperationContext,
    known_ids,
    projections_of,
    refuse_out_of_order,
    with_reason,
)
from redrive.policies.capture import bounded_message
from redrive.policies.fingerprint import grouped

__all__ = ["Acting"]


class Acting(OperationContext):
    """Act on deliveries; each call returns the ids that changed."""

    async def replay(
        self, ids: Sequence[int], *, by: str, why: str = "", generation: str | None = None
    ) -> list[DeliveryId]:
        """Send dead letters again, in place: same event id, history kept, attempts from zero."""
        actor = Actor(by, why)
        check_generation(generation)
        store, known = await self._to_change(), known_ids(ids)
        await self._refuse_erased(store, known)
        changed = await store.replay(known, actor=actor, generation=generation, scope=self._scope)
        return self._done("replay", changed, actor)

    async def render_again(self, ids: Sequence[int], *, by: str, why: str = "") -> list[DeliveryId]:
        """Have dead letters rendered by their rules as they are now, when they are sent again.

        Without it a replay sends them as they were rendered: by the version that gave them.
        Returns those whose rule has another version by now.
        """
        actor = Actor(by, why)
        changed = await (await self._to_change()).render_again(
            known_ids(ids), actor=actor, scope=self._scope
        )
        return self._done("render_again", list(changed), actor)

    async def delete(self, ids: Sequence[int], *, by: str, why: str) -> list[DeliveryId]:
        """Remove dead letters for good; the reason is kept in the audit log."""
        actor = with_reason(by, why, "delete dead letters")
        changed = await (await self._to_change()).delete(
            known_ids(ids), actor=actor, scope=self._scope
        )
        return self._done("delete", changed, actor)

    async def resolve(self, ids: Sequence[int], *, by: str, why: str) -> list[DeliveryId]:
        """Mark dead letters as handled elsewhere; they stay, out of the way, with the reason."""
        actor = with_reason(by, why, "resolve dead letters")
        changed = await (await self._to_change()).resolve(
            known_ids(ids), actor=actor, scope=self._scope
        )
        return self._done("resolve", changed, actor)

    async def reopen(
        self, ids: Sequence[int], *, by: str, why: str, out_of_order: bool = False
    ) -> list[DeliveryId]:
        """Make dead letters of resolved ones again, to be replayed, edited or deleted.

        Where order is kept they hold nobody up, because others may have gone meanwhile; replayed,
        each takes its place before what waits of its key. A projection must be content with that:
        its dead letters are reopened only with `out_of_order`.
        """
        actor = with_reason(by, why, "reopen dead letters")
        store, known = await self._to_change(), known_ids(ids)
        await self._refuse_erased(store, known)
        if not out_of_order and (projections := await projections_of(store)):
            for one in known:
                found = await store.find_delivery(one)
                if found is not None and self._is_within(found):
                    refuse_out_of_order(projections, found.destination, act="reopen")
        changed = await store.reopen(known, actor=actor, scope=self._scope)
        return self._done("reopen", changed, actor)

    async def cancel(self, ids: Sequence[int], *, by: str, why: str = "") -> list[DeliveryId]:
        """Fail pending deliveries as cancelled."""
        actor = Actor(by, why)

        def blame(destination: str) -> Fault:
            message = bounded_message(why or "cancelled by an operator")
            fault = Fault(error_class="Cancelled", message=message, rule="operator")
            return grouped(fault, destination)

        store = await self._to_change()
        changed = await store.cancel(known_ids(ids), blame=blame, actor=actor, scope=self._scope)
        return await self._failed(store, changed, actor)

    async def reschedule(
        self, ids: Sequence[int], *, due: datetime, by: str, why: str = ""
    ) -> list[DeliveryId]:
        """Move the due time of pending deliveries."""
        actor, moment = Actor(by, why), check_instant("due", due)
        changed = await (await self._to_change()).reschedule(
            known_ids(ids), due=moment, actor=actor, scope=self._scope
        )
        return self._done("reschedule", changed, actor)

    async def prioritise(
        self, ids: Sequence[int], *, priority: int, by: str, why: str = ""
    ) -> list[DeliveryId]:
        """Change the priority of pending deliveries; the higher one goes first."""
        check_priority(priority)
        actor = Actor(by, why)
        changed = await (await self._to_change()).prioritise(
            known_ids(ids), priority=priority, actor=actor, scope=self._scope
        )
        return self._done("prioritise", changed, actor)
