"""What a store promises to people who change deliveries, and keeps of what they did."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor, AuditEntry, AuditQuery
from redrive.model.delivery import DeliveryId
from redrive.store.queue import Blame

__all__ = ["EVERYTHING", "Audit", "Intervention"]

EVERYTHING = AuditQuery()


class Intervention(Protocol):
    """What a person may change.

    Each call returns the ids it changed and leaves one audit entry with them, written together
    with the change. Ids in another status, or outside the scope as they stand at that moment, are
    left alone; no change leaves no entry.
    """

    async def replay(
        self,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        generation: str | None = None,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        """Make unresolved dead letters pending again, in place, due now.

        The cycle joins the history, attempts, crashes, errors and a passed deadline are cleared;
        event id, key and payload stay. `generation` is set if given. Of two concurrent replays
        one wins.
        """

    async def delete(
        self, ids: Sequence[DeliveryId], *, actor: Actor, scope: Scope = WHOLE_STORE
    ) -> Sequence[DeliveryId]:
        """Remove dead letters, resolved or not; the next of their lanes is freed."""

    async def resolve(
        self, ids: Sequence[DeliveryId], *, actor: Actor, scope: Scope = WHOLE_STORE
    ) -> Sequence[DeliveryId]:
        """Mark unresolved dead letters as handled elsewhere; the next of their lanes is freed."""

    async def reopen(
        self, ids: Sequence[DeliveryId], *, actor: Actor, scope: Scope = WHOLE_STORE
    ) -> Sequence[DeliveryId]:
        """Make dead letters of resolved ones again.

        Where order is kept, others may have gone meanwhile: it holds nobody up, and takes its place
        in its lane when it is replayed, like one that was passed by.
        """

    async def cancel(
        self,
        ids: Sequence[DeliveryId],
        *,
        blame: Blame,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        """Fail pending deliveries as `cancelled`."""

    async def reschedule(
        self,
        ids: Sequence[DeliveryId],
        *,
        due: datetime,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        """Move the due time of pending deliveries."""

    async def prioritise(
        self,
        ids: Sequence[DeliveryId],
        *,
        priority: int,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        """Change the priority of pending deliveries."""


class Audit(Protocol):
    """The operations of the past."""

    async def audit(
        self, query: AuditQuery = EVERYTHING, *, before: int | None = None, limit: int = 50
    ) -> Sequence[AuditEntry]:
        """Return matching entries, the latest first; `before` is the id to go on from."""

    async def note(
        self,
        action: str,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        count: int | None = None,
        detail: str = "",
    ) -> None:
        """Write down an act that leaves no entry by itself; else `count` is that of the ids."""
