"""Planted bugs: each breaks the engine or its store in one way that has bitten real systems.

A simulation that does not find them proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from redrive.maintenance import duties
from redrive.model.delivery import Delivery, DeliveryId, Lease, Leased, Status
from redrive.model.destination import Destination, Routes
from redrive.model.event import Event, Receipt
from redrive.model.gate import Bucket, Gate
from redrive.model.limits import Rate
from redrive.model.outcome import Faulted, Nature, Outcome, Succeeded
from redrive.model.position import LOG_START, LogPosition
from redrive.model.settlement import Delivered, Requeued, RetryAt
from redrive.pipeline import settle as settling
from redrive.pipeline.deliver import Carrier, Load
from redrive.pipeline.publish import Prepared, Publisher
from redrive.policies import settlement
from redrive.policies.fairness import Share
from redrive.policies.gate import Passage
from redrive.policies.turnstile import Turnstile
from redrive.store import (
    Blame,
    LoggedEvent,
    Overdue,
    Report,
    Reported,
    Rescue,
    Serving,
    Settled,
)
from redrive.stores.memory import MemoryStore
from redrive.stores.memory.row import Row
from redrive.stores.memory.tables import Heads, Identity
from redrive.stores.sifting import Kept
from redrive.worker.worker import Worker

__all__ = ["BUGS", "Bug", "planted"]


class Bug(NamedTuple):
    """A bug: a broken store, or something of the engine that is replaced."""

    name: str
    store: type[MemoryStore] = MemoryStore
    patches: tuple[tuple[Any, str, Any], ...] = ()


@contextmanager
def planted(bug: Bug | None) -> Iterator[type[MemoryStore]]:
    """Plant a bug for the duration of a block, and give the store it needs."""
    with ExitStack() as stack:
        for target, attribute, replacement in bug.patches if bug else ():
            stack.enter_context(patch.object(target, attribute, replacement))
        yield bug.store if bug else MemoryStore


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


class HalfOpenNotShared(MemoryStore):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        with patch("redrive.stores.memory.gates.sum", lambda _: 0, create=True):
            return super()._passage(destination, now)


class BreakerIgnoresGeneration(MemoryStore):
    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        return await super().report(
            [
                msgspec.structs.replace(
                    one, generation=self._gate(one.destination).breaker.generation
                )
                for one in batch
            ],
            chance=chance,
        )


class BucketFullAtStart(MemoryStore):
    async def register(self, destinations: Sequence[Destination]) -> Routes:
        for name, gate in self._gates.items():
            self._gates[name] = msgspec.structs.replace(
                gate, first=Bucket(), retry=Bucket(), replay=Bucket()
            )
        return await super().register(destinations)


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


class ReplayWithoutGuard(MemoryStore):
    async def replay(self, ids: Sequence[DeliveryId], **options: Any) -> Sequence[DeliveryId]:  # noqa: ANN401 - as the store has it
        for row in self._found(ids):
            if row.status is not Status.FAILED:
                row.replay(None, now=self._clock.now())
        replayed = await super().replay(ids, **options)
        return [*replayed, *(one for one in ids if one not in replayed)]


class GapBlindLog(MemoryStore):
    """Every fifth event is committed late, and what was stored after it is read before it."""

    async def read_events(
        self, *, after: LogPosition = LOG_START, limit: int = 100
    ) -> Sequence[LoggedEvent]:
        committed = self._clock.now() - timedelta(milliseconds=500)
        return [
            one
            for one in await super().read_events(after=after, limit=limit)
            if one.position.number % 5 or one.event.published_at < committed
        ]


class LogReadTwice(MemoryStore):
    """Who reads on gets the last event again, as one whose checkpoint comes before the event."""

    async def read_events(
        self, *, after: LogPosition = LOG_START, limit: int = 100
    ) -> Sequence[LoggedEvent]:
        before = LogPosition(number=max(0, after.number - 1))
        return await super().read_events(after=before, limit=limit)


class TenantRateIgnored(MemoryStore):
    def _rate_of(self, destination: str, tenant: str) -> Rate | None:
        return None


class FairnessByScanOrder(MemoryStore):
    def _serve(self, rows: Sequence[Row], turnstile: Turnstile, now: datetime) -> Share[Row]:
        chosen = [row for row in rows if turnstile.lets(row.kind, was_held=False)]
        return Share(chosen=chosen, served=(), rotation=turnstile.gate.rotation)


class PublishNotAtomic(MemoryStore):
    def _insert(self, entry: Kept, *, now: datetime) -> None:
        is_cut = len(entry.destinations) > 1 and self._last_position % 7 == 3
        some = Kept(entry.event, entry.destinations[:-1], entry.version)
        super()._insert(some if is_cut else entry, now=now)


class IdempotencyIgnored(MemoryStore):
    def _identities(self, event: Event[msgspec.Raw]) -> list[Identity]:
        return [(event.id,)]


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


class ReleaseSpendsAnAttempt(MemoryStore):
    def _release(self, row: Row, *, now: datetime) -> None:
        attempts = row.attempts
        super()._release(row, now=now)
        row.attempts = attempts


class WakeUpLost(MemoryStore):
    async def wait(self, *, at_most: timedelta) -> None:
        await self._clock.sleep(3_000.0)


class SuspectsInCompany(MemoryStore):
    def _choose(self, request: Any, ready: Iterable[Row]) -> list[Row]:  # noqa: ANN401 - as the store has it
        with patch.object(Row, "is_suspect", property(lambda _: False)):
            return super()._choose(request, ready)


class ConcurrencyNotShared(MemoryStore):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        with patch("redrive.stores.memory.gates.len", lambda _: 0, create=True):
            return super()._passage(destination, now)


class PauseIgnored(MemoryStore):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        gate = self._gate(destination)
        self._gates[destination] = msgspec.structs.replace(gate, pause=None)
        try:
            return super()._passage(destination, now)
        finally:
            self._gates[destination] = gate


class EditLostOnReplay(MemoryStore):
    def _begin_cycle(self, row: Row, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as the store has it
        super()._begin_cycle(row, *args, **options)
        row.payload = None


class CycleForgotten(MemoryStore):
    def _begin_cycle(self, row: Row, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as the store has it
        super()._begin_cycle(row, *args, **options)
        row.cycles = row.cycles[:-1]


class DeletedNotCounted(MemoryStore):
    async def delete(self, ids: Sequence[DeliveryId], **options: Any) -> Sequence[DeliveryId]:  # noqa: ANN401 - as the store has it
        counted = self._deleted
        deleted = await super().delete(ids, **options)
        self._deleted = counted
        return deleted


async def _settle_before_send(self: Carrier, load: Load) -> None:
    load.task, load.started = asyncio.current_task(), self._clock.monotonic()
    self._running.pop(load, None)
    self._end(load, [Succeeded()] * len(load.deliveries))
    await load.endpoint.transport.send(load.deliveries)


async def _acknowledge_before_commit(
    self: Publisher,
    events: Sequence[Prepared],
    *,
    all_or_nothing: bool,
    within: object,
) -> Sequence[Receipt]:
    async def append() -> None:
        with suppress(Exception):  # that is the bug
            await _append(self, events, all_or_nothing=all_or_nothing, within=within)

    routes = (await self._store.routes()) if hasattr(self._store, "routes") else self._routes
    _unwatched.append(asyncio.ensure_future(append()))
    return [
        Receipt(event_id=one.id, destinations=routes.destinations_for(one.type))
        for one, _ in events
    ]


_append = Publisher._append  # noqa: SLF001 - what the bug is in the place of
_unwatched: list[asyncio.Future[None]] = []


async def _release_everything(self: Worker, unfinished: Sequence[Leased]) -> None:
    fresh = self._decide()
    decided = [one.leased for one in [*self._undecided, *fresh]]
    await self._settle([*self._undecided, *fresh])
    await _sign_off(self, [*unfinished, *decided])


_sign_off = Worker._sign_off  # noqa: SLF001 - what the bug is in the place of


def _once_more(outcome: Outcome, leased: Leased, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the policy has it
    return settlement.settle(
        outcome, msgspec.structs.replace(leased, attempt=leased.attempt - 1), *args, **options
    )


def _terminal_is_retried(outcome: Outcome, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the policy has it
    if isinstance(outcome, Faulted) and outcome.nature is Nature.TERMINAL:
        outcome = msgspec.structs.replace(outcome, nature=Nature.TRANSIENT)
    return settlement.settle(outcome, *args, **options)


def _exhausted_is_success(outcome: Outcome, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the policy has it
    decided = settlement.settle(outcome, *args, **options)
    return Delivered() if getattr(decided, "reason", None) == "exhausted" else decided


BUGS: tuple[Bug, ...] = (
    Bug("no fencing", NoFencing),
    Bug("late settlement accepted", LateSettlementAccepted),
    Bug("double settle accepted", DoubleSettleAccepted),
    Bug("lease never expires", LeaseNeverExpires),
    Bug("heartbeat revives a lost lease", HeartbeatRevives),
    Bug("early due", EarlyDue),
    Bug("deadline ignored", DeadlineIgnored),
    Bug("lane head by due time", LaneHeadByDueTime),
    Bug("half-open without the shared count", HalfOpenNotShared),
    Bug("breaker ignores the generation", BreakerIgnoresGeneration),
    Bug("token bucket full at start", BucketFullAtStart),
    Bug("rescue without crash count", RescueWithoutCrashCount),
    Bug("blamed while in doubt", patches=((duties, "is_in_doubt", lambda *_, **__: False),)),
    Bug("the retired are blamed", RetiredIsBlamed),
    Bug("replay without status guard", ReplayWithoutGuard),
    Bug("gap-blind reader", GapBlindLog),
    Bug("the last event is read again", LogReadTwice),
    Bug("rate of a tenant ignored", TenantRateIgnored),
    Bug("fairness by scan order", FairnessByScanOrder),
    Bug("publish not atomic over destinations", PublishNotAtomic),
    Bug("idempotency ignored", IdempotencyIgnored),
    Bug("waiting spends an attempt", WaitingSpendsAnAttempt),
    Bug("retry without counting", RetryWithoutCounting),
    Bug("release spends an attempt", ReleaseSpendsAnAttempt),
    Bug("lost wake-up", WakeUpLost),
    Bug("suspects in company", SuspectsInCompany),
    Bug("concurrency not shared", ConcurrencyNotShared),
    Bug("pause ignored", PauseIgnored),
    Bug("edit lost on replay", EditLostOnReplay),
    Bug("cycle forgotten", CycleForgotten),
    Bug("deleted not counted", DeletedNotCounted),
    Bug("settle before send", patches=((Carrier, "_carry", _settle_before_send),)),
    Bug("acknowledge before commit", patches=((Publisher, "_append", _acknowledge_before_commit),)),
    Bug("shutdown releases settled work", patches=((Worker, "_sign_off", _release_everything),)),
    Bug("one try too many", patches=((settling, "settle", _once_more),)),
    Bug("terminal is retried", patches=((settling, "settle", _terminal_is_retried),)),
    Bug("exhausted counts as delivered", patches=((settling, "settle", _exhausted_is_success),)),
)
