"""What a person may change in the memory store; each change leaves its audit entry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.access import WHOLE_STORE, Scope
from redrive.model.audit import Actor, AuditEntry, AuditQuery
from redrive.model.delivery import DeliveryId, Resolution, Status
from redrive.model.settlement import FailureReason
from redrive.store import EVERYTHING, Blame
from redrive.stores.memory.row import Record, Row
from redrive.stores.memory.tables import Tables

__all__ = ["MemoryIntervention"]


class MemoryIntervention(Tables):
    """`Intervention` and `Audit` over the tables."""

    async def replay(
        self,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        generation: str | None = None,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        with self._lock:
            now = self._clock.now()
            rows = self._replayable([row.id for row in self._found(ids, scope)])
            for row in rows:
                self._begin_cycle(row, actor.by, generation, now=now)
            return self._conclude("replay", rows, actor, now=now, detail=generation or "")

    async def delete(
        self, ids: Sequence[DeliveryId], *, actor: Actor, scope: Scope = WHOLE_STORE
    ) -> Sequence[DeliveryId]:
        with self._lock:
            now = self._clock.now()
            rows = [row for row in self._found(ids, scope) if row.status is Status.FAILED]
            self._remove(rows, at=now)
            self._deleted += len(rows)
            return self._conclude("delete", rows, actor, now=now)

    async def resolve(
        self, ids: Sequence[DeliveryId], *, actor: Actor, scope: Scope = WHOLE_STORE
    ) -> Sequence[DeliveryId]:
        with self._lock:
            now = self._clock.now()
            rows = [row for row in self._found(ids, scope) if row.is_dead_letter]
            for row in rows:
                row.resolution = Resolution(by=actor.by, at=now, why=actor.why)
            return self._conclude("resolve", rows, actor, now=now)

    async def reopen(
        self, ids: Sequence[DeliveryId], *, actor: Actor, scope: Scope = WHOLE_STORE
    ) -> Sequence[DeliveryId]:
        with self._lock:
            rows = [row for row in self._found(ids, scope) if row.resolution is not None]
            for row in rows:
                row.resolution = None
                row.was_passed_by = True
            return self._conclude("reopen", rows, actor, now=self._clock.now())

    async def cancel(
        self,
        ids: Sequence[DeliveryId],
        *,
        blame: Blame,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        with self._lock:
            now = self._clock.now()
            rows = self._pending(ids, scope)
            for row in rows:
                row.fail(FailureReason.CANCELLED, blame(row.destination), now=now)
            return self._conclude("cancel", rows, actor, now=now)

    async def reschedule(
        self,
        ids: Sequence[DeliveryId],
        *,
        due: datetime,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        with self._lock:
            rows = self._pending(ids, scope)
            for row in rows:
                row.due = due
            detail = due.isoformat()
            return self._conclude("reschedule", rows, actor, now=self._clock.now(), detail=detail)

    async def prioritise(
        self,
        ids: Sequence[DeliveryId],
        *,
        priority: int,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        with self._lock:
            rows = self._pending(ids, scope)
            for row in rows:
                row.priority = priority
            detail = str(priority)
            return self._conclude("prioritise", rows, actor, now=self._clock.now(), detail=detail)

    async def audit(
        self, query: AuditQuery = EVERYTHING, *, before: int | None = None, limit: int = 50
    ) -> Sequence[AuditEntry]:
        with self._lock:
            earlier = [
                entry
                for entry in self._audit
                if (before is None or entry.id < before) and query.fits(entry)
            ]
            return tuple(reversed(earlier))[:limit]

    async def note(
        self,
        action: str,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        count: int | None = None,
        detail: str = "",
    ) -> None:
        with self._lock:
            now = self._clock.now()
            self._note(action, actor, now=now, ids=ids, count=count, detail=detail)

    def _begin_cycle(
        self,
        row: Row,
        by: str,
        generation: str | None,
        *,
        now: datetime,
        sender: Record | None = None,
    ) -> None:
        row.cycles = (*row.cycles, row.cycle(by, now=now))[-self._history :]
        row.replay(generation, now=now, sender=sender)

    def _replayable(self, ids: Sequence[DeliveryId]) -> list[Row]:
        return [row for row in self._found(ids) if row.is_dead_letter]

    def _pending(self, ids: Sequence[DeliveryId], scope: Scope) -> list[Row]:
        return [row for row in self._found(ids, scope) if row.status is Status.PENDING]

    def _conclude(
        self, action: str, rows: Sequence[Row], actor: Actor, *, now: datetime, detail: str = ""
    ) -> Sequence[DeliveryId]:
        """Write the audit entry, wake who waits, and return the ids that changed."""
        changed = tuple(sorted(row.id for row in rows))
        if changed:
            self._note(action, actor, now=now, ids=changed, detail=detail)
        return changed
