"""Planted bugs of what starts when, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from redrive.claiming.round_robin import Share
from redrive.claiming.turnstile import Turnstile
from redrive.model.delivery import Delivery
from redrive.model.settlement import RetryAt
from redrive.store import (
    Blame,
    Settled,
)
from redrive.stores.memory import MemoryStore
from redrive.stores.memory.row import Row
from redrive.stores.memory.tables import Heads
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]


class EarlyDue(MemoryStore):
    def _may_start(self, row: Row, now: datetime) -> bool:
        return super()._may_start(row, now + timedelta(seconds=1))


class DeadlineIgnored(MemoryStore):
    def _may_start(self, row: Row, now: datetime) -> bool:
        return row.is_due(now)

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        return ()


class LaneHeadByDueTime(MemoryStore):
    def _heads(self) -> Heads:
        heads: Heads = {}
        for row in sorted(self._rows.values(), key=lambda one: (one.due, one.id)):
            lane = self._lane(row)
            if lane is not None and row.blocks_its_lane:
                heads.setdefault(lane, row.id)
        return heads


class FairnessByScanOrder(MemoryStore):
    def _serve(self, rows: Sequence[Row], turnstile: Turnstile, now: datetime) -> Share[Row]:
        chosen = [row for row in rows if turnstile.admit(row.kind, was_held=False)]
        return Share(chosen=chosen, served=(), rotation=turnstile.gate.rotation)


class WaitingSpendsAnAttempt(MemoryStore):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        attempts = row.attempts
        super()._carry_out(settled, row, now=now)
        row.attempts = attempts


class RetryWithoutCounting(MemoryStore):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        super()._carry_out(settled, row, now=now)
        if isinstance(settled.settlement, RetryAt):
            row.attempts -= 1


class ProbeSpendsAnAttempt(MemoryStore):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        super()._carry_out(settled, row, now=now)
        if isinstance(settled.settlement, RetryAt) and not settled.settlement.spends:
            row.attempts += 1


class WakeUpLost(MemoryStore):
    async def wait(self, *, at_most: timedelta, since: object = None) -> None:
        await self._clock.sleep(3_000.0)


BUGS: tuple[Bug, ...] = (
    Bug("early due", EarlyDue),
    Bug("deadline ignored", DeadlineIgnored),
    Bug("lane head by due time", LaneHeadByDueTime),
    Bug("fairness by scan order", FairnessByScanOrder),
    Bug("waiting spends an attempt", WaitingSpendsAnAttempt),
    Bug("retry without counting", RetryWithoutCounting),
    Bug("failed probe spends an attempt", ProbeSpendsAnAttempt),
    Bug("lost wake-up", WakeUpLost),
)
