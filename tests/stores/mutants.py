"""Stores with one fault each, small enough to slip through a review."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from redrive.clock import Clock
from redrive.model.audit import Actor, AuditEntry
from redrive.model.delivery import Delivery, DeliveryId, Kind, Lease, Status
from redrive.model.destination import Routes
from redrive.model.event import Event, Receipt
from redrive.model.gate import BreakerChange, Gate, Open
from redrive.model.limits import Limits
from redrive.model.settlement import FailureReason, Snoozed
from redrive.policies.gate import Passage, Turnstile, passage
from redrive.store import (
    Allowance,
    Append,
    Blame,
    Claim,
    ClaimRequest,
    Conflict,
    Entry,
    Group,
    Overdue,
    Page,
    Query,
    Report,
    Rescue,
    RoutesChanged,
    Settled,
)
from redrive.stores.memory import MemoryStore
from redrive.stores.memory.row import Row
from redrive.stores.memory.tables import Heads, Identity, Lane
from redrive.testing.conformance.world import a_fault

__all__ = ["MUTANTS"]


class Mutant(MemoryStore):
    """A store that breaks one promise; its name says which."""


class AcceptsStaleTokens(Mutant):
    def _current(self, lease: Lease, now: datetime) -> Row | None:
        row = self._rows.get(lease.delivery_id)
        return row if row is not None and row.is_leased(now) else None


class AcceptsLateSettlements(Mutant):
    def _current(self, lease: Lease, now: datetime) -> Row | None:
        row = self._rows.get(lease.delivery_id)
        return row if row is not None and row.token == lease.token and row.worker else None


class SettlesTwice(Mutant):
    def _current(self, lease: Lease, now: datetime) -> Row | None:
        row = self._rows.get(lease.delivery_id)
        is_settled = row is not None and row.token == lease.token and row.lease_until is None
        return row if is_settled else super()._current(lease, now)


class RevivesLostLeases(Mutant):
    async def heartbeat(
        self, worker: str, leases: Sequence[Lease], *, lease: timedelta
    ) -> Sequence[Lease]:
        for row in self._found(one.delivery_id for one in leases):
            if row.status is Status.IN_FLIGHT:
                row.lease_until = self._clock.now() + lease
        return await super().heartbeat(worker, leases, lease=lease)


class DoesNotExtendLeases(Mutant):
    async def heartbeat(
        self, worker: str, leases: Sequence[Lease], *, lease: timedelta
    ) -> Sequence[Lease]:
        return await super().heartbeat(worker, [], lease=lease)


class RescuesCurrentLeases(Mutant):
    def _lost(self, lease: Lease, now: datetime) -> Row | None:
        row = self._rows.get(lease.delivery_id)
        return row if row is not None and row.token == lease.token and row.worker else None


class DoesNotCountRefusals(Mutant):
    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        refused = await super().settle(batch)
        self._refused_settlements = 0
        return refused


class IgnoresTheDueTime(Mutant):
    def _may_start(self, row: Row, now: datetime) -> bool:
        return not row.is_past_deadline(now)


class RoundsTheDueTimeDown(Mutant):
    def _may_start(self, row: Row, now: datetime) -> bool:
        due = row.due.replace(microsecond=row.due.microsecond // 1000 * 1000)
        return due <= now and not row.is_past_deadline(now)


class IgnoresTheDeadline(Mutant):
    def _may_start(self, row: Row, now: datetime) -> bool:
        return row.is_due(now)


class ExpiresWhatIsInFlight(Mutant):
    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        for row in self._rows.values():
            if row.status is Status.IN_FLIGHT and row.is_past_deadline(self._clock.now()):
                row.release(now=self._clock.now())
        return await super().expire(blame=blame, limit=limit)


class ClaimsTwice(Mutant):
    def _reachable(self, request: ClaimRequest) -> list[Row]:
        again = [row for row in self._rows.values() if row.worker not in (None, request.worker)]
        return super()._reachable(request) + again


class ClaimsInTwoSteps(Mutant):
    async def claim(self, request: ClaimRequest) -> Claim:
        now = self._clock.now()
        ready = [row for row in self._reachable(request) if self._may_start(row, now)]
        chosen = self._choose(request, ready)
        await self._clock.sleep(0)
        for row in chosen:
            row.status = Status.PENDING
        return await super().claim(request)


class IgnoresTheGeneration(Mutant):
    def _reachable(self, request: ClaimRequest) -> list[Row]:
        generations = tuple(row.generation for row in self._rows.values())
        return super()._reachable(msgspec.structs.replace(request, generations=generations))


class IgnoresThePriority(Mutant):
    def _take(self, allowance: Allowance, rows: Iterable[Row]) -> list[Row]:
        return sorted(super()._take(allowance, rows), key=lambda row: row.id)


class OrdersByEventId(Mutant):
    def _take(self, allowance: Allowance, rows: Iterable[Row]) -> list[Row]:
        return sorted(super()._take(allowance, rows), key=lambda row: row.event.id)


class IgnoresTheAllowance(Mutant):
    def _take(self, allowance: Allowance, rows: Iterable[Row]) -> list[Row]:
        return super()._take(msgspec.structs.replace(allowance, total=1000), rows)


class IgnoresTheLimitsOfKinds(Mutant):
    def _take(self, allowance: Allowance, rows: Iterable[Row]) -> list[Row]:
        unlimited = Allowance(destination=allowance.destination, total=allowance.total)
        return super()._take(unlimited, rows)


class IgnoresTheLimitOfAClaim(Mutant):
    async def claim(self, request: ClaimRequest) -> Claim:
        return await super().claim(msgspec.structs.replace(request, limit=None))


class ClaimsSuspectsInCompany(Mutant):
    def _choose(self, request: ClaimRequest, ready: Iterable[Row]) -> list[Row]:
        rows = list(ready)
        return [row for allowance in request.allowances for row in self._take(allowance, rows)]


class IgnoresLanes(Mutant):
    def _behind(self, row: Row, heads: Heads) -> DeliveryId | None:
        return None


class MakesLanesEverywhere(Mutant):
    def _lane(self, row: Row) -> Lane | None:
        return Lane(row.destination, row.event.key or "")


class LetsLanesPassDeadLetters(Mutant):
    def _behind(self, row: Row, heads: Heads) -> DeliveryId | None:
        head = super()._behind(row, heads)
        return None if head is None or self._rows[head].status is Status.FAILED else head


class OrdersLanesByDueTime(Mutant):
    def _heads(self) -> Heads:
        self._rows = dict(sorted(self._rows.items(), key=lambda item: (item[1].due, item[0])))
        return super()._heads()


class ForgetsIdempotencyKeys(Mutant):
    def _identities(self, event: Event[msgspec.Raw]) -> list[Identity]:
        return [(event.id,)]


class IgnoresTheSourceOfAKey(Mutant):
    def _identities(self, event: Event[msgspec.Raw]) -> list[Identity]:
        return super()._identities(msgspec.structs.replace(event, source=""))


class AcceptsConflicts(Mutant):
    def _result(self, entry: Entry, first: Entry) -> Receipt | Conflict:
        return Receipt(
            event_id=first.event.id,
            destinations=first.destinations,
            is_duplicate=entry is not first,
        )


class StoresDuplicates(Mutant):
    def _sift(
        self, entries: Sequence[Entry]
    ) -> tuple[tuple[Receipt | Conflict, ...], Sequence[Entry]]:
        results, _ = super()._sift(entries)
        return results, entries


class StoresHalfABatch(Mutant):
    async def append(
        self,
        entries: Sequence[Entry],
        *,
        routes_version: int,
        all_or_nothing: bool,
        within: object = None,
    ) -> Append:
        return await super().append(
            entries, routes_version=routes_version, all_or_nothing=False, within=within
        )


class AcceptsStaleRoutes(Mutant):
    def _is_current_version(self, version: int) -> bool:
        return True


class KeepsNewRoutesToItself(Mutant):
    async def append(
        self,
        entries: Sequence[Entry],
        *,
        routes_version: int,
        all_or_nothing: bool,
        within: object = None,
    ) -> Append:
        appended = await super().append(
            entries, routes_version=routes_version, all_or_nothing=all_or_nothing, within=within
        )
        if isinstance(appended, RoutesChanged):
            return RoutesChanged(Routes(appended.routes.version, ()))
        return appended


class CountsRoutesFromOne(Mutant):
    def __init__(self, clock: Clock, history: int = 20) -> None:
        super().__init__(clock, history)
        self._routes_version = 1


class ReencodesPayloads(Mutant):
    def _insert(self, entry: Entry, *, now: datetime) -> None:
        payload = msgspec.json.encode(msgspec.json.decode(entry.event.payload))
        event = msgspec.structs.replace(entry.event, payload=msgspec.Raw(payload))
        super()._insert(Entry(event, entry.destinations), now=now)


class SnoozesSpendAttempts(Mutant):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        super()._carry_out(settled, row, now=now)
        row.attempts += isinstance(settled.settlement, Snoozed)


class RetriesLookFresh(Mutant):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        kind = row.kind
        super()._carry_out(settled, row, now=now)
        row.kind = kind


class SnoozesLookLikeRetries(Mutant):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        super()._carry_out(settled, row, now=now)
        row.kind = Kind.RETRY


class ForgetsTheFirstFailure(Mutant):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        super()._carry_out(settled, row, now=now)
        row.first_failed_at = row.last_failed_at


class KeepsEveryAttempt(Mutant):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, history=1_000_000)


class ReleasesSpendAttempts(Mutant):
    def _release(self, row: Row, *, now: datetime) -> None:
        super()._release(row, now=now)
        row.attempts += 1


class CrashesSpendAttempts(Mutant):
    def _recover(self, rescue: Rescue, row: Row, *, now: datetime) -> None:
        super()._recover(rescue, row, now=now)
        row.attempts += 1


class ForgetsCrashes(Mutant):
    def _recover(self, rescue: Rescue, row: Row, *, now: datetime) -> None:
        crashes = row.crashes
        super()._recover(rescue, row, now=now)
        row.crashes = crashes


class TakesEveryOwnerForDead(Mutant):
    def _overdue(self, row: Row, lease_until: datetime, *, now: datetime) -> Overdue:
        overdue = super()._overdue(row, lease_until, now=now)
        return msgspec.structs.replace(overdue, owner_is_alive=False)


class ReplaysWhatHasNotFailed(Mutant):
    def _replayable(self, ids: Sequence[DeliveryId]) -> list[Row]:
        for row in self._found(ids):
            if row.status is not Status.FAILED:
                row.fail(FailureReason.CANCELLED, a_fault(), now=self._clock.now())
        return super()._replayable(ids)


class ReplaysWhatIsResolved(Mutant):
    def _replayable(self, ids: Sequence[DeliveryId]) -> list[Row]:
        return [row for row in self._found(ids) if row.status is Status.FAILED]


class LosesHistoryOnReplay(Mutant):
    def _replayable(self, ids: Sequence[DeliveryId]) -> list[Row]:
        rows = super()._replayable(ids)
        for row in rows:
            row.cycles = ()
        return rows


class KeepsDeadlinesOnReplay(Mutant):
    async def replay(
        self, ids: Sequence[DeliveryId], *, actor: Actor, generation: str | None = None
    ) -> Sequence[DeliveryId]:
        replayed = await super().replay(ids, actor=actor, generation=generation)
        for row in self._found(replayed):
            row.deadline = row.event.deadline
        return replayed


class LetsEveryReplayWin(Mutant):
    async def replay(
        self, ids: Sequence[DeliveryId], *, actor: Actor, generation: str | None = None
    ) -> Sequence[DeliveryId]:
        failed = [row.id for row in self._replayable(ids)]
        await self._clock.sleep(0)
        await super().replay(ids, actor=actor, generation=generation)
        return failed


class ReusesDeliveryIds(Mutant):
    async def delete(self, ids: Sequence[DeliveryId], *, actor: Actor) -> Sequence[DeliveryId]:
        deleted = await super().delete(ids, actor=actor)
        self._last_delivery_id = max(self._rows, default=0)
        return deleted


class LeavesNoAudit(Mutant):
    def _record(self, entry: AuditEntry) -> None:
        pass


class PagesByOffset(Mutant):
    def _cut(
        self, found: Sequence[Row], cursor: str | None, limit: int
    ) -> tuple[Sequence[Row], str | None]:
        start = int(cursor or 0)
        end = start + limit
        return found[start:end], str(end) if end < len(found) else None


class PagesBeforeItFilters(Mutant):
    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page:
        page = await super().find(Query(status=query.status), cursor=cursor, limit=limit)
        wanted = await super().find(query, limit=1000)
        deliveries = tuple(one for one in page.deliveries if one in wanted.deliveries)
        return Page(deliveries=deliveries, next_cursor=page.next_cursor)


class NeverPassesBy(Mutant):
    def _pass_by(self) -> None:
        pass


class BlocksByUnkeyedEvents(Mutant):
    def _lane(self, row: Row) -> Lane | None:
        if row.is_dead_letter and row.event.key is None:
            return Lane(row.destination, "")
        return super()._lane(row)


class IgnoresTheBreaker(Mutant):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        gate, found = super()._passage(destination, now)
        if isinstance(gate.breaker, Open):
            _, found = passage(Gate(), Limits(), in_flight=0, probing=0, now=now)
        return gate, found


class ProbesWithoutCounting(Mutant):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        limits = self._destinations[destination].limits
        return passage(self._gate(destination), limits, in_flight=0, probing=0, now=now)


class NeverFreesTheProbeOfACrashedWorker(Mutant):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        gate = self._gate(destination)
        running = [row for row in self._rows.values() if row.status is Status.IN_FLIGHT]
        generation = gate.breaker.generation
        return passage(
            gate,
            self._destinations[destination].limits,
            in_flight=len(running),
            probing=sum(row.breaker_generation == generation for row in running),
            now=now,
        )


class CountsResultsOfOldGenerations(Mutant):
    async def report(self, batch: Sequence[Report], *, chance: float) -> Sequence[BreakerChange]:
        current = [
            msgspec.structs.replace(one, generation=self._gate(one.destination).breaker.generation)
            for one in batch
        ]
        return await super().report(current, chance=chance)


class TakesNoTokens(Mutant):
    def _leave(self, destination: str, turnstile: Turnstile, now: datetime) -> None:
        pass


class StartsWithAFullSecondOfTokens(Mutant):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        gate, found = super()._passage(destination, now)
        if gate.first.at is None:
            found = msgspec.structs.replace(found, first=found.first + 10)
        return gate, found


class ForgetsWhatWaited(Mutant):
    async def resume(self, destination: str, *, actor: Actor) -> bool:
        is_new = await super().resume(destination, actor=actor)
        gate = self._gate(destination)
        self._gates[destination] = msgspec.structs.replace(gate, reopened_at=None)
        return is_new


class SharesOneGate(Mutant):
    def _gate(self, destination: str) -> Gate:
        super()._gate(destination)
        return next(iter(self._gates.values()), Gate())


class OffersSuspectsBehindAClosedGate(Mutant):
    def _would_pass(self, row: Row, allowance: Allowance) -> bool:
        return True


class GroupsIgnoreFilters(Mutant):
    async def groups(self, query: Query, *, limit: int = 50) -> Sequence[Group]:
        return await super().groups(Query(with_resolved=query.with_resolved), limit=limit)


class GroupsCutBeforeTheySort(Mutant):
    async def groups(self, query: Query, *, limit: int = 50) -> Sequence[Group]:
        groups = await super().groups(query, limit=1000)
        earliest = sorted(groups, key=lambda one: one.first_seen)[:limit]
        return [one for one in groups if one in earliest]


class GroupsCountEveryTenant(Mutant):
    async def groups(self, query: Query, *, limit: int = 50) -> Sequence[Group]:
        groups = await super().groups(query, limit=limit)
        everywhere = tuple(tenant for one in groups for tenant in one.top_tenants)
        return [msgspec.structs.replace(one, top_tenants=everywhere) for one in groups]


class BlamesOneDestinationForAll(Mutant):
    async def cancel(
        self, ids: Sequence[DeliveryId], *, blame: Blame, actor: Actor
    ) -> Sequence[DeliveryId]:
        return await super().cancel(ids, blame=lambda _: blame("billing"), actor=actor)


class NeverWaits(Mutant):
    async def wait(self, *, at_most: timedelta) -> None:
        pass


class NeverWakes(Mutant):
    def _tell(self) -> None:
        pass


class SleepsThroughNews(Mutant):
    def _tell(self) -> None:
        super()._tell()
        self._has_news = False


def _ignoring(filter_name: str, default: object = None) -> type[Mutant]:
    class IgnoresAFilter(Mutant):
        async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page:
            query = msgspec.structs.replace(query, **{filter_name: default})
            return await super().find(query, cursor=cursor, limit=limit)

    IgnoresAFilter.__name__ = f"IgnoresTheFilter_{filter_name}"
    return IgnoresAFilter


for _name in Query.__struct_fields__:
    _ignoring(_name, {"status": Status.FAILED, "with_resolved": True}.get(_name))

MUTANTS = Mutant.__subclasses__()
