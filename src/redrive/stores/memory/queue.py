"""The delivery queue in memory: claim, settle, and what keeps leases honest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import assert_never

import msgspec

from redrive.claiming.fair_selection import place_among
from redrive.claiming.ready import SOON
from redrive.claiming.round_robin import Share, in_turn, serve
from redrive.claiming.turnstile import Turnstile
from redrive.clock import wait_at_most
from redrive.model.delivery import Attempt, Delivery, Kind, Lease, Leased, Status
from redrive.model.gate import Gate
from redrive.model.settlement import (
    Delivered,
    Failed,
    FailureReason,
    Requeued,
    RetryAt,
    Snoozed,
)
from redrive.policies.breaker import last_probed
from redrive.policies.gate import marked, passed
from redrive.store import (
    FORGOTTEN_AFTER,
    Allowance,
    Blame,
    Claim,
    ClaimRequest,
    Left,
    Overdue,
    Rescue,
    Serving,
    Settled,
    ShedBlame,
    Work,
)
from redrive.stores.memory.row import Row
from redrive.stores.memory.tables import Waiter
from redrive.stores.memory.tenants import MemoryTenants

__all__ = ["MemoryQueue"]


class MemoryQueue(MemoryTenants):
    """`DeliveryQueue` over the tables."""

    _bytes_left = 0
    _has_taken = False
    _is_full = False

    async def claim(self, request: ClaimRequest) -> Claim:
        with self._lock:
            now = self._clock.now()
            self._has_news = False
            self._bytes_left, self._has_taken, self._is_full = request.most_bytes, False, False
            self._pass_by()
            reachable = self._reachable(request)
            ready = [row for row in reachable if self._may_start(row, now)]
            asked = [one.destination for one in request.allowances]
            self._sharing = self._begin_sharing(asked, now)
            suspects = self._suspects(request, ready)
            chosen = (
                self._choose_suspect(request, suspects)
                if request.alone
                else self._choose(request, ready)
            )
            if chosen:
                self._workers[request.worker] = now
            taken = {row.id for row in chosen}
            unserved = {
                row.destination for row in ready if row.id not in taken and not row.is_suspect
            }
            self._gates_open_at += self._end_sharing(unserved)
            changes, self._breaker_changes = tuple(self._breaker_changes), []
            gates_open_at, self._gates_open_at = self._gates_open_at, []
            shut, self._shut = tuple(self._shut.items()), {}
            later = [row.due for row in reachable if not row.is_due(now)]
            if self._is_full:
                later.append(now + SOON)
            return Claim(
                now=now,
                deliveries=tuple(self._lease(row, request, now) for row in chosen),
                next_due=min(later + gates_open_at, default=None),
                suspects=len(suspects) - (len(chosen) if request.alone else 0),
                changes=changes,
                routes_version=self._routes_version,
                shut=shut,
            )

    async def find_work(self, generations: Sequence[str], *, after: int, limit: int) -> Work:
        with self._lock:
            now, heads = self._clock.now(), self._heads()
            self._has_news = False
            pending = [
                row
                for row in self._rows.values()
                if row.status is Status.PENDING and self._behind(row, heads) is None
            ]
            filled = {
                row.destination
                for row in pending
                if row.generation in generations and self._may_start(row, now)
            }
            found = [
                (place, name)
                for place, name in enumerate(sorted(self._destinations), start=1)
                if place > after and name in filled
            ][:limit]
            later = [row.due for row in pending if not row.is_due(now)]
            return Work(
                now=now,
                destinations=tuple((name, str(self._gate(name))) for _, name in found),
                after=found[-1][0] if len(found) == limit else None,
                next_due=min(later, default=None),
                routes_version=self._routes_version,
            )

    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        with self._lock:
            now = self._clock.now()
            refused = []
            for settled in batch:
                row = self._current(settled.lease, now)
                if row is None:
                    refused.append(settled.lease)
                else:
                    self._carry_out(settled, row, now=now)
            self._refused_settlements += len(refused)
            if len(refused) < len(batch):
                self._tell()
            return refused

    async def release(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        with self._lock:
            now = self._clock.now()
            refused = []
            for lease in leases:
                row = self._current(lease, now)
                if row is None:
                    refused.append(lease)
                else:
                    self._release(row, now=now)
            if len(refused) < len(leases):
                self._tell()
            return refused

    async def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        lease: timedelta,
        serving: Serving | None = None,
    ) -> Sequence[Lease]:
        with self._lock:
            now = self._clock.now()
            self._workers[worker] = now
            if serving is not None:
                self._serving[worker] = serving
            for silent in [
                one for one, seen_at in self._workers.items() if seen_at < now - FORGOTTEN_AFTER
            ]:
                self._forget(silent)
            return self._extend(leases, now=now, lease=lease)

    async def extend(self, leases: Sequence[Lease], *, lease: timedelta) -> Sequence[Lease]:
        with self._lock:
            return self._extend(leases, now=self._clock.now(), lease=lease)

    def _extend(
        self, leases: Sequence[Lease], *, now: datetime, lease: timedelta
    ) -> Sequence[Lease]:
        refused = []
        for one in leases:
            row = self._current(one, now)
            if row is None:
                refused.append(one)
            else:
                row.lease_until = now + lease
        return refused

    async def retire(self, worker: str, *, left: Sequence[Left] = ()) -> None:
        with self._lock:
            now = self._clock.now()
            for one in left if worker in self._workers else ():
                row = self._current(one.lease, now)
                if row is not None:
                    self._tell_story(row, one.attempt)
            self._forget(worker)

    def _forget(self, worker: str) -> None:
        self._workers.pop(worker, None)
        self._serving.pop(worker, None)
        self._releases.pop(worker, None)
        self._watches = {duty: turn for duty, turn in self._watches.items() if turn[0] != worker}

    async def overdue(self, *, limit: int = 100) -> Sequence[Overdue]:
        with self._lock:
            now = self._clock.now()
            lost = [
                (row.lease_until, row.id, self._overdue(row, row.lease_until, now=now))
                for row in self._rows.values()
                if row.lease_until is not None and not row.is_leased(now)
            ]
            return tuple(overdue for _, _, overdue in sorted(lost, key=lambda one: one[:2])[:limit])

    async def rescue(self, batch: Sequence[Rescue]) -> Sequence[Lease]:
        with self._lock:
            now = self._clock.now()
            refused = []
            for rescue in batch:
                row = self._lost(rescue.lease, now)
                if row is None:
                    refused.append(rescue.lease)
                else:
                    self._recover(rescue, row, now=now)
            if len(refused) < len(batch):
                self._tell()
            return refused

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        with self._lock:
            now = self._clock.now()
            expired = [
                row
                for row in self._rows.values()
                if row.status is Status.PENDING and row.is_past_deadline(now)
            ]
            del expired[limit:]
            for row in expired:
                row.fail(FailureReason.EXPIRED, blame(row.destination), now=now)
            return tuple(row.delivery(behind=None) for row in expired)

    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        with self._lock:
            now = self._clock.now()
            heads = self._heads()
            shed: list[Row] = []
            for name in sorted(self._destinations):
                why = self._shedding(name, now)
                if why is None:
                    continue
                for row in self._rows.values():
                    if (
                        row.destination == name
                        and row.status is Status.PENDING
                        and row.is_due(now)
                        and why.kind in (None, row.kind)
                        and self._behind(row, heads) is None
                        and len(shed) < limit
                    ):
                        row.fail(why.reason, blame(name, why.reason), now=now)
                        shed.append(row)
            if shed:
                self._tell()
            return tuple(row.delivery(behind=None) for row in shed)

    async def wait(self, *, at_most: timedelta, since: object = None) -> None:
        with self._lock:
            if since is not None and since != self._told:
                return
            if since is None and self._has_news:
                self._has_news = False
                return
            waiter = Waiter(asyncio.get_running_loop(), asyncio.Event())
            self._waiters.append(waiter)
        try:
            await wait_at_most(waiter.news, at_most.total_seconds(), self._clock)
        finally:
            with self._lock:
                self._waiters.remove(waiter)

    def mark(self) -> object:
        return self._told

    def wake(self) -> None:
        with self._lock:
            self._tell()

    def _lease(self, row: Row, request: ClaimRequest, now: datetime) -> Leased:
        gate = self._gate(row.destination)
        self._gates[row.destination] = passed(gate, [row.id], now=now)
        leased = row.lease(
            request.worker,
            request.lease,
            alone=request.alone,
            now=now,
            breaker_generation=gate.breaker.generation,
        )
        return marked(leased, gate)

    def _reachable(self, request: ClaimRequest) -> list[Row]:
        """Return what the request may get, now or when its time has come."""
        asked = [allowance.destination for allowance in request.allowances]
        heads = self._heads()
        return [
            row
            for row in self._rows.values()
            if row.status is Status.PENDING
            and row.destination in asked
            and row.generation in request.generations
            and self._behind(row, heads) is None
        ]

    def _may_start(self, row: Row, now: datetime) -> bool:
        return row.is_due(now) and not row.is_past_deadline(now)

    def _choose(self, request: ClaimRequest, ready: Iterable[Row]) -> list[Row]:
        in_company = [row for row in ready if not row.is_suspect]
        chosen: list[Row] = []
        for allowance in request.allowances:
            total = min(allowance.total, request.limit - len(chosen))
            chosen += self._take(msgspec.structs.replace(allowance, total=total), in_company)
        return chosen

    def _choose_suspect(self, request: ClaimRequest, suspects: Sequence[Row]) -> list[Row]:
        allowances = {one.destination: one for one in request.allowances}
        for row in sorted(suspects, key=self._last_probed)[:1]:
            allowance = msgspec.structs.replace(allowances[row.destination], total=1)
            return self._take(allowance, [row])
        return []

    def _suspects(self, request: ClaimRequest, ready: Iterable[Row]) -> list[Row]:
        allowed = {one.destination for one in request.allowances if one.total > 0}
        return sorted(
            (
                row
                for row in ready
                if row.is_suspect and row.destination in allowed and self._would_pass(row)
            ),
            key=_precedence,
        )

    def _would_pass(self, row: Row) -> bool:
        now = self._clock.now()
        gate, passage = self._passage(row.destination, now)
        if not self._tokens(row.destination, _tenant(row), now):
            return False
        room = self._sharing.bound(row.destination, min(1, passage.total))
        turnstile = Turnstile(gate, passage, total=room)
        return turnstile.admit(row.kind, was_held=_was_held(row, gate))

    def _take(self, allowance: Allowance, rows: Iterable[Row]) -> list[Row]:
        if allowance.destination not in self._destinations:
            return []
        now = self._clock.now()
        turnstile = self._enter(allowance, now)
        own = [row for row in rows if row.destination == allowance.destination]
        serving = self._serve(own, turnstile, now)
        if turnstile.again_at is not None and len(serving.chosen) < len(own):
            self._gates_open_at.append(turnstile.again_at)
        self._sharing.charge(allowance.destination, len(serving.chosen))
        self._leave(allowance.destination, turnstile, now)
        self._keep_account(allowance.destination, serving, now)
        return list(serving.chosen)

    def _serve(self, rows: Sequence[Row], turnstile: Turnstile, now: datetime) -> Share[Row]:
        """Deal out what the turnstile lets through among the tenants of one destination."""
        avoided = last_probed(turnstile.gate.breaker)
        while True:
            fitting = [row for row in rows if row.id not in avoided]
            share = self._share(fitting, turnstile, now)
            if share.chosen or not avoided:
                return share
            avoided = avoided[1:]

    def _last_probed(self, row: Row) -> int:
        return place_among(last_probed(self._gate(row.destination).breaker), row.id)

    def _share(self, rows: Sequence[Row], turnstile: Turnstile, now: datetime) -> Share[Row]:
        work: dict[str, list[Row]] = {}
        closed = {kind for kind in Kind if turnstile.is_shut_for(kind)}
        for row in sorted(rows, key=_precedence):
            if row.kind not in closed:  # who has only such work does not count
                work.setdefault(_tenant(row), []).append(row)
        rotation = turnstile.gate.rotation
        lines = [
            self._line(row.destination, tenant, work[tenant], now)
            for tenant in in_turn(work, rotation)
            for row in work[tenant][:1]
        ]
        return serve(
            lines,
            rotation,
            room=turnstile.left,
            admit=lambda row: self._lets(row, turnstile),
            is_exhausted=lambda row: turnstile.is_exhausted(
                row.kind, was_held=_was_held(row, turnstile.gate)
            ),
        )

    def _lets(self, row: Row, turnstile: Turnstile) -> bool:
        """Let one pass if the gate does, and if there is room for what it carries."""
        size = len(row.carried.payload)
        if self._is_full or (self._has_taken and size > self._bytes_left):
            self._is_full = True
            return False
        is_let = turnstile.admit(row.kind, was_held=_was_held(row, turnstile.gate))
        if is_let:
            self._bytes_left -= size
            self._has_taken = True
        return is_let

    def _current(self, lease: Lease, now: datetime) -> Row | None:
        row = self._rows.get(lease.delivery_id)
        if row is None or row.token != lease.token or not row.is_leased(now):
            return None
        return row

    def _lost(self, lease: Lease, now: datetime) -> Row | None:
        row = self._rows.get(lease.delivery_id)
        if row is None or row.token != lease.token or row.status is not Status.IN_FLIGHT:
            return None
        return None if row.is_leased(now) else row

    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        row.exchange = settled.exchange
        row.addressees = settled.addressees or row.addressees
        match settled.settlement:
            case Delivered():
                row.deliver(now=now)
                return
            case RetryAt(when=when, fault=fault, spends=spends):
                row.retry(when, fault, spends=spends, now=now)
            case Snoozed(until=until):
                row.snooze(until)
            case Failed(reason=reason, fault=fault):
                row.fail(reason, fault, now=now)
            case never:
                assert_never(never)
        if settled.attempt is not None:
            self._tell_story(row, settled.attempt)

    def _tell_story(self, row: Row, attempt: Attempt) -> None:
        row.log = (*row.log, attempt)[-self._history :]

    def _release(self, row: Row, *, now: datetime) -> None:
        row.release(now=now)

    def _recover(self, rescue: Rescue, row: Row, *, now: datetime) -> None:
        match rescue.recovery:
            case Requeued() as requeued:
                row.requeue(requeued)
            case Failed(reason=reason, fault=fault):
                row.condemn(reason, fault, now=now)
            case never:
                assert_never(never)

    def _overdue(self, row: Row, lease_until: datetime, *, now: datetime) -> Overdue:
        worker = row.worker or ""
        seen_at = self._workers.get(worker)
        return Overdue(
            lease=Lease(row.id, row.token),
            destination=row.destination,
            event_id=row.event.id,
            worker=worker,
            attempt=row.attempts,
            crashes=row.crashes,
            last_crash_at=row.last_crash_at,
            was_alone=row.is_alone,
            owner_is_alive=seen_at is None or seen_at > lease_until,
            seen_at=seen_at,
            now=now,
        )


def _was_held(row: Row, gate: Gate) -> bool:
    return gate.reopened_at is not None and row.due <= gate.reopened_at


def _tenant(row: Row) -> str:
    return row.event.tenant or ""


def _precedence(row: Row) -> tuple[int, int]:
    return -row.priority, row.id
