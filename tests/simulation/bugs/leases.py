"""Planted bugs of who holds what, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import msgspec

from redrive.model.delivery import Lease, Status
from redrive.model.settlement import Requeued
from redrive.store import (
    Overdue,
    Rescue,
    Serving,
)
from redrive.stores.memory import MemoryStore
from redrive.stores.memory.row import Row
from redrive.worker.maintenance import duties
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]


class NoFencing(MemoryStore):
    def _current(self, lease: Lease, now: datetime) -> Row | None:
        row = self._rows.get(lease.delivery_id)
        return row if row is not None and row.is_leased(now) else None


class LateSettlementAccepted(MemoryStore):
    def _current(self, lease: Lease, now: datetime) -> Row | None:
        row = self._rows.get(lease.delivery_id)
        return row if row is not None and row.token == lease.token and row.worker else None


class DoubleSettleAccepted(MemoryStore):
    def _current(self, lease: Lease, now: datetime) -> Row | None:
        row = self._rows.get(lease.delivery_id)
        is_settled = row is not None and row.token == lease.token and row.lease_until is None
        return row if is_settled else super()._current(lease, now)


class LeaseNeverExpires(MemoryStore):
    async def overdue(self, *, limit: int = 100) -> Sequence[Overdue]:
        return ()


class HeartbeatRevives(MemoryStore):
    async def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        lease: timedelta,
        serving: Serving | None = None,
    ) -> Sequence[Lease]:
        for row in self._found(one.delivery_id for one in leases):
            if row.status is Status.IN_FLIGHT:
                row.lease_until = self._clock.now() + lease
        return await super().heartbeat(worker, leases, lease=lease, serving=serving)


class RescueWithoutCrashCount(MemoryStore):
    async def rescue(self, batch: Sequence[Rescue]) -> Sequence[Lease]:
        for one in batch:
            row = self._rows.get(one.lease.delivery_id)
            if row is not None and isinstance(one.recovery, Requeued):
                msgspec.structs.force_setattr(one.recovery, "crashes", row.crashes)
        return await super().rescue(batch)


class RetiredIsBlamed(MemoryStore):
    def _overdue(self, row: Row, lease_until: datetime, *, now: datetime) -> Overdue:
        overdue = super()._overdue(row, lease_until, now=now)
        is_gone = overdue.seen_at is None
        return msgspec.structs.replace(overdue, owner_is_alive=False) if is_gone else overdue


class SuspectsInCompany(MemoryStore):
    def _choose(self, request: Any, ready: Iterable[Row]) -> list[Row]:  # noqa: ANN401 - as the store has it
        with patch.object(Row, "is_suspect", property(lambda _: False)):
            return super()._choose(request, ready)


class ReleaseSpendsAnAttempt(MemoryStore):
    def _release(self, row: Row, *, now: datetime) -> None:
        attempts = row.attempts
        super()._release(row, now=now)
        row.attempts = attempts


BUGS: tuple[Bug, ...] = (
    Bug("no fencing", NoFencing),
    Bug("late settlement accepted", LateSettlementAccepted),
    Bug("double settle accepted", DoubleSettleAccepted),
    Bug("lease never expires", LeaseNeverExpires),
    Bug("heartbeat revives a lost lease", HeartbeatRevives),
    Bug("rescue without crash count", RescueWithoutCrashCount),
    Bug("blamed while in doubt", patches=((duties, "is_in_doubt", lambda *_, **__: False),)),
    Bug("the retired are blamed", RetiredIsBlamed),
    Bug("release spends an attempt", ReleaseSpendsAnAttempt),
    Bug("suspects in company", SuspectsInCompany),
)
