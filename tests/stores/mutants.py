"""Stores with one fault each, small enough to slip through a review."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from redrive.claiming.passage import Passage, passage
from redrive.claiming.round_robin import Line, Share
from redrive.claiming.sharing import SharedBucket, Sharing
from redrive.claiming.turnstile import Turnstile
from redrive.clock import Clock
from redrive.model.access import WHOLE_STORE, Grant, LoginSession, Scope, Token, User
from redrive.model.audit import Actor, AuditEntry, AuditQuery
from redrive.model.delivery import Delivery, DeliveryId, Kind, Lease, Leased, Status
from redrive.model.destination import Destination, Order, Routes
from redrive.model.edit import Edit
from redrive.model.erasure import ErasurePart, ErasureTerms
from redrive.model.event import Event, EventId, Receipt
from redrive.model.gate import Bucket, Closed, Gate, Open, Override, Pause, Rotation
from redrive.model.letter import Letter
from redrive.model.limits import Limits, Rate
from redrive.model.position import LOG_START, LogPosition
from redrive.model.replay import AutoReplay, ReplayState
from redrive.model.request_log import LoggedRequest
from redrive.model.retention import Retention
from redrive.model.rule import Stored
from redrive.model.schedule import Schedule
from redrive.model.secret import Secret
from redrive.model.settlement import Delivered, FailureReason, RetryAt, Snoozed
from redrive.model.trend import Measure
from redrive.policies.buckets import awaited
from redrive.policies.outage import Shedding
from redrive.policies.replay import Decision
from redrive.store import (
    EVERYTHING,
    PUBLISHER,
    Admission,
    Admissions,
    Advance,
    Allowance,
    Append,
    Appended,
    AppendResult,
    AppliedLane,
    Applying,
    Blame,
    CaughtUp,
    Checkpoint,
    Claim,
    ClaimRequest,
    Conflict,
    Declarer,
    Due,
    DueWork,
    Effect,
    Ending,
    Entrance,
    Entry,
    ErasedBatch,
    EventPage,
    EventQuery,
    Figures,
    Following,
    Gateway,
    GatewayChange,
    Group,
    Grouping,
    KeptSecret,
    KeptToken,
    KeptUser,
    LaneFigures,
    Left,
    LetterPage,
    LoggedEvent,
    LogNews,
    LogPage,
    Moved,
    NewReplay,
    Overdue,
    Page,
    Projected,
    Pruned,
    Query,
    ReaderTurn,
    Rebuild,
    Registered,
    Replay,
    Report,
    Reported,
    RequestBatch,
    Rescue,
    Rest,
    Restored,
    RoutesChanged,
    Selection,
    Serving,
    Settled,
    ShedBlame,
    Swapping,
    TenantFigures,
    Ticked,
    TokenTerms,
    Tried,
    Truncating,
    Work,
)
from redrive.stores.declaring import Release, Ruling
from redrive.stores.deduplicate import Kept
from redrive.stores.erasing import Traces
from redrive.stores.memory import MemoryStore
from redrive.stores.memory.row import Record, Row
from redrive.stores.memory.tables import Heads, Identity, Lane
from redrive.stores.scheduling import is_still, ticked_on
from redrive.stores.trending import floor
from tests.conformance.world import a_fault
from tests.waiting import spend

__all__ = ["MUTANTS"]


class Mutant(MemoryStore):
    """A store that breaks one promise; its name says which."""


class AcceptsStaleTokens(Mutant):
    def _current(self, lease: Lease, now: datetime) -> Row | None:
        row = self._rows.get(lease.delivery_id)
        return row if row is not None and row.is_leased(now) else None


class RunsEffectsWithoutADatabase(Mutant):
    async def apply(self, leased: Leased, effect: Effect, *, at_most: timedelta) -> Ending:
        await effect(None)
        await self.settle([Settled(lease=leased.lease, settlement=Delivered())])
        return Ending.APPLIED


class RunsLanesWithoutADatabase(Mutant):
    async def apply_lane(
        self,
        leased: Leased,
        effect: Effect,
        follow: Following,
        *,
        at_most: timedelta,
    ) -> AppliedLane:
        await effect(None)
        await self.settle([Settled(lease=leased.lease, settlement=Delivered())])
        return AppliedLane(Ending.APPLIED)


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


class DoesNotExtendLeases(Mutant):
    async def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        lease: timedelta,
        serving: Serving | None = None,
    ) -> Sequence[Lease]:
        return await super().heartbeat(worker, [], lease=lease, serving=serving)


class HearsOfWhoHasRetired(Mutant):
    async def extend(self, leases: Sequence[Lease], *, lease: timedelta) -> Sequence[Lease]:
        for row in self._found(one.delivery_id for one in leases):
            self._workers[row.worker or ""] = self._clock.now()
        return await super().extend(leases, lease=lease)


class HoldsOnToNothing(Mutant):
    async def extend(self, leases: Sequence[Lease], *, lease: timedelta) -> Sequence[Lease]:
        return ()


class TellsNothingOfWhatIsLeft(Mutant):
    async def retire(self, worker: str, *, left: Sequence[Left] = ()) -> None:
        await super().retire(worker)


class TellsTwiceOfWhatIsLeft(Mutant):
    async def retire(self, worker: str, *, left: Sequence[Left] = ()) -> None:
        self._workers.setdefault(worker, self._clock.now())
        await super().retire(worker, left=left)


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


class IgnoresTheRatesOfKinds(Mutant):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        gate, found = super()._passage(destination, now)
        return gate, msgspec.structs.replace(found, retries=1000, replays=1000)


class IgnoresTheLimitOfAClaim(Mutant):
    async def claim(self, request: ClaimRequest) -> Claim:
        return await super().claim(msgspec.structs.replace(request, limit=1000))


class ClaimsSuspectsInCompany(Mutant):
    def _choose(self, request: ClaimRequest, ready: Iterable[Row]) -> list[Row]:
        rows = list(ready)
        return [row for allowance in request.allowances for row in self._take(allowance, rows)]


class FindsNothing(Mutant):
    async def find_work(self, generations: Sequence[str], *, after: int, limit: int) -> Work:
        work = await super().find_work(generations, after=after, limit=limit)
        return msgspec.structs.replace(work, destinations=())


class FindsEverybodyWithWork(Mutant):
    async def find_work(self, generations: Sequence[str], *, after: int, limit: int) -> Work:
        every = [row.generation for row in self._rows.values()]
        return await super().find_work([*generations, *every], after=after, limit=limit)


class FindsNobodyOnTheSecondPage(Mutant):
    async def find_work(self, generations: Sequence[str], *, after: int, limit: int) -> Work:
        work = await super().find_work(generations, after=after, limit=limit)
        return msgspec.structs.replace(work, after=None)


class MarksNoChangeOfAGate(Mutant):
    async def find_work(self, generations: Sequence[str], *, after: int, limit: int) -> Work:
        work = await super().find_work(generations, after=after, limit=limit)
        marked = tuple((name, "") for name, _ in work.destinations)
        return msgspec.structs.replace(work, destinations=marked)


class TellsOfNoShutGate(Mutant):
    async def claim(self, request: ClaimRequest) -> Claim:
        return msgspec.structs.replace(await super().claim(request), shut=())


class TellsOfNoWorkToCome(Mutant):
    async def find_work(self, generations: Sequence[str], *, after: int, limit: int) -> Work:
        work = await super().find_work(generations, after=after, limit=limit)
        return msgspec.structs.replace(work, next_due=None)


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
    def _result(self, entry: Entry, first: Kept) -> Receipt | Conflict:
        return Receipt(
            event_id=first.event.id,
            destinations=first.destinations,
            is_duplicate=entry.event is not first.event,
            version=first.version,
        )


class StoresDuplicates(Mutant):
    def _sift(
        self, entries: Sequence[Entry], *, now: datetime
    ) -> tuple[tuple[AppendResult, ...], Sequence[Kept]]:
        results, _ = super()._sift(entries, now=now)
        return results, [Kept(entry.event, entry.destinations) for entry in entries]


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
    def _insert(self, kept: Kept, *, now: datetime) -> None:
        payload = msgspec.json.encode(msgspec.json.decode(kept.event.payload))
        event = msgspec.structs.replace(kept.event, payload=msgspec.Raw(payload))
        super()._insert(msgspec.structs.replace(kept, event=event), now=now)


class SnoozesSpendAttempts(Mutant):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        super()._carry_out(settled, row, now=now)
        row.attempts += isinstance(settled.settlement, Snoozed)


class ProbesSpendAttempts(Mutant):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        super()._carry_out(settled, row, now=now)
        if isinstance(settled.settlement, RetryAt) and not settled.settlement.spends:
            row.attempts += 1


class ProbesWithTheSameDelivery(Mutant):
    def _serve(self, rows: Sequence[Row], turnstile: Turnstile, now: datetime) -> Share[Row]:
        return self._share(rows, turnstile, now)


class ForgetsItsProbes(Mutant):
    def _lease(self, row: Row, request: ClaimRequest, now: datetime) -> Leased:
        gate = self._gate(row.destination)
        leased = super()._lease(row, request, now)
        self._gates[row.destination] = gate
        return leased


class TellsNobodyThatItProbes(Mutant):
    def _lease(self, row: Row, request: ClaimRequest, now: datetime) -> Leased:
        return msgspec.structs.replace(super()._lease(row, request, now), is_probe=False)


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


class LosesTheFirstFailureOnReplay(Mutant):
    def _replayable(self, ids: Sequence[DeliveryId]) -> list[Row]:
        rows = super()._replayable(ids)
        for row in rows:
            row.first_failed_at = row.log[0].ended_at if row.log else row.settled_at
        return rows


class KeepsDeadlinesOnReplay(Mutant):
    async def replay(
        self,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        generation: str | None = None,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        replayed = await super().replay(ids, actor=actor, generation=generation, scope=scope)
        for row in self._found(replayed):
            row.deadline = row.event.deadline
        return replayed


class LetsEveryReplayWin(Mutant):
    async def replay(
        self,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        generation: str | None = None,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        failed = [row.id for row in self._replayable(ids)]
        await self._clock.sleep(0)
        await super().replay(ids, actor=actor, generation=generation, scope=scope)
        return failed


class ReusesDeliveryIds(Mutant):
    async def delete(
        self, ids: Sequence[DeliveryId], *, actor: Actor, scope: Scope = WHOLE_STORE
    ) -> Sequence[DeliveryId]:
        deleted = await super().delete(ids, actor=actor, scope=scope)
        self._last_delivery_id = max(self._rows, default=0)
        return deleted


class LeavesNoAudit(Mutant):
    def _record(self, entry: AuditEntry) -> None:
        pass


class PagesByOffset(Mutant):
    def _cut(
        self, found: Sequence[tuple[tuple[int, int], Row]], cursor: str | None, limit: int
    ) -> tuple[Sequence[tuple[tuple[int, int], Row]], str | None]:
        start = int(cursor or 0)
        end = start + limit
        return found[start:end], str(end) if end < len(found) else None


class PagesBeforeItFilters(Mutant):
    async def find(
        self,
        query: Query,
        *,
        cursor: str | None = None,
        limit: int = 50,
        most_read: int | None = None,
    ) -> Page:
        page = await super().find(Query(status=query.status), cursor=cursor, limit=limit)
        wanted = await super().find(query, limit=1000)
        deliveries = tuple(one for one in page.deliveries if one in wanted.deliveries)
        return Page(deliveries=deliveries, next_cursor=page.next_cursor)


class ReadsAllForAText(Mutant):
    async def find(
        self,
        query: Query,
        *,
        cursor: str | None = None,
        limit: int = 50,
        most_read: int | None = None,
    ) -> Page:
        return await super().find(query, cursor=cursor, limit=limit)


class RepeatsTheLastEventOfAPage(Mutant):
    async def find_events(
        self, query: EventQuery, *, cursor: str | None = None, limit: int = 50
    ) -> EventPage:
        page = await super().find_events(query, cursor=cursor, limit=limit)
        if page.next_cursor is None:
            return page
        return msgspec.structs.replace(page, next_cursor=str(int(page.next_cursor) + 1))


class TakesEventsWithoutDeliveriesForUnrouted(Mutant):
    async def find_events(
        self, query: EventQuery, *, cursor: str | None = None, limit: int = 50
    ) -> EventPage:
        wanted = msgspec.structs.replace(query, unrouted=False)
        page = await super().find_events(wanted, cursor=cursor, limit=limit)
        events = tuple(one for one in page.events if not (query.unrouted and one.deliveries))
        return msgspec.structs.replace(page, events=events)


class PagesTheAuditBeforeItFilters(Mutant):
    async def audit(
        self, query: AuditQuery = EVERYTHING, *, before: int | None = None, limit: int = 50
    ) -> Sequence[AuditEntry]:
        page = await super().audit(before=before, limit=limit)
        return [one for one in page if query.fits(one)]


class ReopensIntoTheLane(Mutant):
    async def reopen(
        self, ids: Sequence[DeliveryId], *, actor: Actor, scope: Scope = WHOLE_STORE
    ) -> Sequence[DeliveryId]:
        changed = await super().reopen(ids, actor=actor, scope=scope)
        for one in changed:
            self._rows[one].was_passed_by = False
        return changed


class NeverPassesBy(Mutant):
    def _pass_by(self) -> None:
        pass


class PassesByWhateverItsType(Mutant):
    def _pass_by(self) -> None:
        for row in self._rows.values():
            if row.is_dead_letter and self._destinations[row.destination].order is Order.SKIP:
                row.was_passed_by = True


class NamesTheEarliestAsTheHead(Mutant):
    async def find_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        found = await super().find_delivery(delivery_id)
        if found is None or found.behind is None:
            return found
        lane = [
            row.id
            for row in self._rows.values()
            if row.event.key == found.key and row.blocks_its_lane
        ]
        return msgspec.structs.replace(found, behind=min(lane))


class PassesByOnlyWhenClaiming(Mutant):
    def _pass_by(self) -> None:
        pass

    async def claim(self, request: ClaimRequest) -> Claim:
        super()._pass_by()
        return await super().claim(request)


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
    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
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


class HasNoRamp(Mutant):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        gate, found = super()._passage(destination, now)
        return gate, msgspec.structs.replace(found, paced=1_000)


class TakesNoTokensFromTheRamp(Mutant):
    def _leave(self, destination: str, turnstile: Turnstile, now: datetime) -> None:
        super()._leave(destination, turnstile, now)
        gate = self._gates[destination]
        self._gates[destination] = msgspec.structs.replace(gate, ramp=Bucket())


class ChecksWithoutALease(Mutant):
    async def begin_check(
        self, destination: str, *, every: timedelta, lease: timedelta
    ) -> int | None:
        begun = await super().begin_check(destination, every=every, lease=timedelta(0))
        gate = self._gate(destination)
        self._gates[destination] = msgspec.structs.replace(gate, next_check=self._clock.now())
        return begun


class ChecksAgainAtOnce(Mutant):
    async def begin_check(
        self, destination: str, *, every: timedelta, lease: timedelta
    ) -> int | None:
        return await super().begin_check(destination, every=timedelta(0), lease=lease)


class NeverFreesACheckThatHangs(Mutant):
    async def begin_check(
        self, destination: str, *, every: timedelta, lease: timedelta
    ) -> int | None:
        return await super().begin_check(destination, every=every, lease=timedelta(days=1))


class ChecksWhatAPersonOpened(Mutant):
    async def begin_check(
        self, destination: str, *, every: timedelta, lease: timedelta
    ) -> int | None:
        state = self._gate(destination).breaker
        begun = await super().begin_check(destination, every=every, lease=lease)
        is_forced = isinstance(state, Open) and state.until is None
        return state.generation if is_forced else begun


class IgnoresTheHealthOfADestination(Mutant):
    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        return await super().report([one for one in batch if not one.is_check], chance=chance)


class BelievesAnUnhealthyDestination(Mutant):
    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        well = [
            msgspec.structs.replace(one, is_success=True) if one.is_check else one for one in batch
        ]
        return await super().report(well, chance=chance)


class PausesAgainAndAgain(Mutant):
    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        reported = await super().report(batch, chance=chance)
        paused = tuple(one.destination for one in batch if one.pause)
        return msgspec.structs.replace(reported, paused=paused)


class PausesWithoutAudit(Mutant):
    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        entries = list(self._audit)
        reported = await super().report(batch, chance=chance)
        self._audit = entries
        return reported


class GivesUpWhatIsHeld(Mutant):
    def _shedding(self, destination: str, now: datetime) -> Shedding | None:
        is_open = isinstance(self._gate(destination).breaker, Open)
        found = super()._shedding(destination, now)
        return found or (Shedding(reason=FailureReason.CIRCUIT_OPEN) if is_open else None)


class GivesUpWhilePaused(Mutant):
    def _shedding(self, destination: str, now: datetime) -> Shedding | None:
        gate = self._gate(destination)
        self._gates[destination] = msgspec.structs.replace(gate, pause=None)
        found = super()._shedding(destination, now)
        self._gates[destination] = gate
        return found


class GivesUpEveryKind(Mutant):
    def _shedding(self, destination: str, now: datetime) -> Shedding | None:
        found = super()._shedding(destination, now)
        return found and msgspec.structs.replace(found, kind=None)


class GivesUpNothing(Mutant):
    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        return ()


class GivesUpWithoutALimit(Mutant):
    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        return await super().shed(blame=blame, limit=1_000)


class GivesUpBeforeTheDueTime(Mutant):
    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        for row in self._rows.values():
            row.due = min(row.due, self._clock.now())
        return await super().shed(blame=blame, limit=limit)


class KeepsOlderExchanges(Mutant):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        before = row.exchange
        super()._carry_out(settled, row, now=now)
        row.exchange = row.exchange or before


class LosesExchanges(Mutant):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        super()._carry_out(settled, row, now=now)
        row.exchange = None


class ForgetsAddresseesWithTheNextTry(Mutant):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        super()._carry_out(settled, row, now=now)
        row.addressees = settled.addressees


class RestoresWithoutAddressees(Mutant):
    def _restore(self, letter: Letter, *, now: datetime) -> Row | None:
        row = super()._restore(letter, now=now)
        if row is not None:
            row.addressees = None
        return row


class RemembersWhatRetiredWorkersServed(Mutant):
    def _forget(self, worker: str) -> None:
        serving = dict(self._serving)
        super()._forget(worker)
        self._serving = serving


class SharesOneGate(Mutant):
    def _gate(self, destination: str) -> Gate:
        super()._gate(destination)
        return next(iter(self._gates.values()), Gate())


class OffersSuspectsBehindAClosedGate(Mutant):
    def _would_pass(self, row: Row) -> bool:
        return True


class ServesTheOldestFirst(Mutant):
    def _serve(self, rows: Sequence[Row], turnstile: Turnstile, now: datetime) -> Share[Row]:
        serving = super()._serve(rows, turnstile.rewound(), now)
        oldest = sorted(rows, key=lambda row: (-row.priority, row.id))
        chosen = [row for row in oldest if turnstile.admit(row.kind, was_held=False)]
        return replace(serving, chosen=chosen)


class BeginsEveryClaimFromTheFront(Mutant):
    def _turn_on(self, destination: str, rotation: Rotation) -> None:
        kept = msgspec.structs.replace(rotation, tenant=None, left=0, behind=None)
        super()._turn_on(destination, kept)


class EndsATurnWithTheClaim(Mutant):
    def _turn_on(self, destination: str, rotation: Rotation) -> None:
        super()._turn_on(destination, msgspec.structs.replace(rotation, left=0))


class ServesEachTenantOnce(Mutant):
    def _serve(self, rows: Sequence[Row], turnstile: Turnstile, now: datetime) -> Share[Row]:
        serving = super()._serve(rows, turnstile, now)
        had: Counter[str | None] = Counter()
        for row in serving.chosen:
            had[row.event.tenant] += 1
        return replace(serving, chosen=[row for row in serving.chosen if had[row.event.tenant] < 4])


class CapsEveryTenant(Mutant):
    def _line(self, destination: str, tenant: str, work: Sequence[Row], now: datetime) -> Line[Row]:
        return replace(super()._line(destination, tenant, work, now), tokens=3)


class IgnoresWeights(Mutant):
    def _line(self, destination: str, tenant: str, work: Sequence[Row], now: datetime) -> Line[Row]:
        turn = self._destinations[destination].fairness.turn
        return replace(super()._line(destination, tenant, work, now), turn=turn)


class LeavesOutEventsWithoutATenant(Mutant):
    def _line(self, destination: str, tenant: str, work: Sequence[Row], now: datetime) -> Line[Row]:
        return super()._line(destination, tenant, work if tenant else (), now)


class LetsTheFirstHaveAllTokens(Mutant):
    def _turn_on(self, destination: str, rotation: Rotation) -> None:
        super()._turn_on(destination, msgspec.structs.replace(rotation, behind=None))


class IgnoresTheRateOfATenant(Mutant):
    def _rate_of(self, destination: str, tenant: str) -> Rate | None:
        return None


class SharesOneBucketBetweenTenants(Mutant):
    def _bucket(self, destination: str, tenant: str) -> Bucket:
        return min((one.bucket for one in self._tenants.values()), default=Bucket(), key=_tokens)


class SleepsThroughTheTokensOfATenant(Mutant):
    def _keep_account(self, destination: str, serving: Share[Row], now: datetime) -> None:
        super()._keep_account(destination, replace(serving, spent=()), now)


class StopsAllForAPausedTenant(Mutant):
    def _take(self, allowance: Allowance, rows: Iterable[Row]) -> list[Row]:
        return [] if self._tenant_pauses else super()._take(allowance, rows)


class PausesATenantEverywhere(Mutant):
    def _pause_of(self, destination: str, tenant: str) -> Pause | None:
        return next((one for key, one in self._tenant_pauses.items() if key[0] == tenant), None)


class ResumesATenantAnywhere(Mutant):
    async def resume_tenant(self, tenant: str, *, destination: str | None, actor: Actor) -> bool:
        where = None if (tenant, None) in self._tenant_pauses else destination
        return await super().resume_tenant(tenant, destination=where, actor=actor)


class ForgetsWhoPausedATenant(Mutant):
    def _record(self, entry: AuditEntry) -> None:
        if not entry.action.endswith("tenant"):
            super()._record(entry)


class NeverCountsRounds(Mutant):
    def _turn_on(self, destination: str, rotation: Rotation) -> None:
        super()._turn_on(destination, msgspec.structs.replace(rotation, round=0))


class ListsTenantsByName(Mutant):
    async def tenants(
        self,
        *,
        destination: str | None = None,
        tenant: str | None = None,
        only_paused: bool = False,
        limit: int = 50,
    ) -> Sequence[TenantFigures]:
        found = await super().tenants(
            destination=destination, tenant=tenant, only_paused=only_paused, limit=1000
        )
        return sorted(found, key=lambda one: (one.tenant or "", one.destination or ""))[:limit]


class KeepsAccountOfNobody(Mutant):
    def _keep_account(self, destination: str, serving: Share[Row], now: datetime) -> None:
        self._turn_on(destination, serving.rotation)


class GroupsReadAll(Mutant):
    async def groups(
        self, query: Query, *, limit: int = 50, most_read: int | None = None
    ) -> Sequence[Group]:
        return await super().groups(query, limit=limit)


class ListsLanesOfAll(Mutant):
    async def lanes(
        self, *, destination: str | None = None, limit: int = 50
    ) -> Sequence[LaneFigures]:
        return await super().lanes(limit=limit)


class GroupsIgnoreFilters(Mutant):
    async def groups(
        self, query: Query, *, limit: int = 50, most_read: int | None = None
    ) -> Sequence[Group]:
        return await super().groups(
            Query(with_resolved=query.with_resolved), limit=limit, most_read=most_read
        )


class GroupsCutBeforeTheySort(Mutant):
    async def groups(
        self, query: Query, *, limit: int = 50, most_read: int | None = None
    ) -> Sequence[Group]:
        groups = await super().groups(query, limit=1000, most_read=most_read)
        earliest = sorted(groups, key=lambda one: one.first_seen)[:limit]
        return [one for one in groups if one in earliest]


class GroupsCountEveryTenant(Mutant):
    async def groups(
        self, query: Query, *, limit: int = 50, most_read: int | None = None
    ) -> Sequence[Group]:
        groups = await super().groups(query, limit=limit, most_read=most_read)
        everywhere = tuple(tenant for one in groups for tenant in one.top_tenants)
        return [msgspec.structs.replace(one, top_tenants=everywhere) for one in groups]


class BlamesOneDestinationForAll(Mutant):
    async def cancel(
        self,
        ids: Sequence[DeliveryId],
        *,
        blame: Blame,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        return await super().cancel(ids, blame=lambda _: blame("billing"), actor=actor, scope=scope)


class SendsWhatFailsLater(Mutant):
    def _take_letters(self, record: Record, count: int) -> tuple[list[Row], int, int]:
        selection = Selection(query=record.replay.query)
        record.items |= {row.id: row.token for row in self._selected(selection)}
        return super()._take_letters(record, count)


class CountsNoNewcomers(Mutant):
    def _newcomers(self, record: Record) -> int:
        return 0


class CountsWhatFailsAgainAsNew(Mutant):
    def _newcomers(self, record: Record) -> int:
        return super()._newcomers(record) + record.replay.failed


class SendsEverythingAtOnce(Mutant):
    def _take_letters(self, record: Record, count: int) -> tuple[list[Row], int, int]:
        return super()._take_letters(record, len(record.items))


class DecidesAndSendsInTwoSteps(Mutant):
    async def advance_replays(self) -> Advance:
        before = {number: one.replay for number, one in self._replays.items()}
        await self._clock.sleep(0)
        for number, one in self._replays.items():
            if number in before:
                counts = {"delivered": one.replay.delivered, "failed": one.replay.failed}
                one.replay = msgspec.structs.replace(before[number], **counts)
        return await super().advance_replays()


class NeverStopsReplays(Mutant):
    def _decide(self, record: Record, *, now: datetime) -> Decision:
        failed_before = record.replay.failed
        wave = msgspec.structs.replace(record.replay.wave, failed_before=failed_before)
        record.replay = msgspec.structs.replace(record.replay, wave=wave)
        return super()._decide(record, now=now)


class StopsReplaysAtEveryFailure(Mutant):
    def _decide(self, record: Record, *, now: datetime) -> Decision:
        wave = msgspec.structs.replace(record.replay.wave, is_canary=True)
        record.replay = msgspec.structs.replace(record.replay, wave=wave)
        return super()._decide(record, now=now)


class ReplaysIgnoreTheirRate(Mutant):
    def _decide(self, record: Record, *, now: datetime) -> Decision:
        record.replay = msgspec.structs.replace(record.replay, bucket=Bucket())
        return super()._decide(record, now=now)


class ResendsWhatFailedAgain(Mutant):
    def _is_untouched(self, row: Row, token: int) -> bool:
        return row.is_dead_letter


class ReplaysResolvedLetters(Mutant):
    def _is_untouched(self, row: Row, token: int) -> bool:
        return row.status is Status.FAILED and row.token == token


class SendsWhatWaitsBehindADeadLetter(Mutant):
    def _sendable(self, rows: Sequence[Row]) -> list[Row]:
        return list(rows)


class SendsLettersOfABlockedDestination(Mutant):
    def _sendable(self, rows: Sequence[Row]) -> list[Row]:
        together = {row.id for row in rows}
        heads = self._heads()
        return [
            row
            for row in rows
            if (lane := self._lane(row)) is None
            or not self._rows[heads[lane]].is_dead_letter
            or heads[lane] in together
        ]


class SaysNothingOfWhatItSkips(Mutant):
    def _take_letters(self, record: Record, count: int) -> tuple[list[Row], int, int]:
        rows, skipped, _ = super()._take_letters(record, count)
        return rows, skipped, 0


class WaitsForLettersThatCannotRun(Mutant):
    def _held(self, record: Record) -> int:
        return 0


class WaitsForNothing(Mutant):
    def _held(self, record: Record) -> int:
        return record.replay.under_way


class SendsBlockingLettersOneByOne(Mutant):
    def _blocks_as_a_whole(self, row: Row) -> bool:
        return False


class CountsOnlyWhileReplaysRun(Mutant):
    def _carry_out(self, settled: Settled, row: Row, *, now: datetime) -> None:
        if row.sender is not None and row.sender.replay.state is not ReplayState.RUNNING:
            row.sender = None
        super()._carry_out(settled, row, now=now)


class CountsOnlyWhatIsSettled(Mutant):
    def _recover(self, rescue: Rescue, row: Row, *, now: datetime) -> None:
        row.sender = None
        super()._recover(rescue, row, now=now)


class CountsReplaysByHandForOthers(Mutant):
    async def replay(
        self,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        generation: str | None = None,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        senders = {row.id: row.sender for row in self._found(ids)}
        replayed = await super().replay(ids, actor=actor, generation=generation, scope=scope)
        for row in self._found(replayed):
            row.sender = senders[row.id]
        return replayed


class WaitsForLettersThatWereDropped(Mutant):
    def _remove(self, rows: Iterable[Row], *, at: datetime | None = None) -> None:
        gone = list(rows)
        for row in gone:
            row.sender = None
        super()._remove(gone, at=at)


class ResumesWithoutACanary(Mutant):
    async def steer_replay(self, replay_id: int, state: ReplayState, *, actor: Actor) -> bool:
        if state is not ReplayState.RUNNING:
            return await super().steer_replay(replay_id, state, actor=actor)
        wave = self._replays[replay_id].replay.wave
        is_new = await super().steer_replay(replay_id, state, actor=actor)
        record = self._replays[replay_id]
        record.replay = msgspec.structs.replace(record.replay, wave=wave)
        return is_new


class GoesOnAfterACancel(Mutant):
    async def steer_replay(self, replay_id: int, state: ReplayState, *, actor: Actor) -> bool:
        is_new = await super().steer_replay(replay_id, state, actor=actor)
        if is_new and state is ReplayState.CANCELLED:
            await super().start_replay(NewReplay(selection=Selection(query=Query())), actor=actor)
        return is_new


class AutoReplaysRunTwice(Mutant):
    async def start_auto_replays(self, *, due: Due) -> Sequence[Replay]:
        before = dict(self._auto_replays_since)
        started = await super().start_auto_replays(due=due)
        self._auto_replays_since |= before
        return started


class PublishesATickTwice(Mutant):
    """Nobody looks whether the schedule is still where it was."""

    async def publish_ticks(
        self, ticked: Ticked, entries: Sequence[Entry], *, routes_version: int
    ) -> Append | None:
        standing = self._schedules.get(ticked.schedule)
        if standing is not None and standing.pause is None:
            ticked = msgspec.structs.replace(ticked, since=standing.since)
        return await super().publish_ticks(ticked, entries, routes_version=routes_version)


class LosesATickBetweenItsAdvanceAndItsEvent(Mutant):
    """The schedule goes on first, and then the event cannot be stored."""

    async def publish_ticks(
        self, ticked: Ticked, entries: Sequence[Entry], *, routes_version: int
    ) -> Append | None:
        done = await super().publish_ticks(ticked, (), routes_version=routes_version)
        if done is None or not entries:
            return done
        return await self.append(entries, routes_version=routes_version, all_or_nothing=False)


class PublishesFirstAndGoesOnAfterwards(Mutant):
    """Two who publish the same tick both do, before one of them has the schedule go on."""

    async def publish_ticks(
        self, ticked: Ticked, entries: Sequence[Entry], *, routes_version: int
    ) -> Append | None:
        standing = self._schedules.get(ticked.schedule)
        if standing is None or not is_still(standing, ticked):
            return None
        fresh = [_without_key(one) for one in entries]
        done = await self.append(fresh, routes_version=routes_version, all_or_nothing=False)
        if isinstance(done, Appended):
            await spend(0)
            after = ticked_on(standing, ticked, done.results)
            self._schedules[ticked.schedule] = after
        return done


def _without_key(entry: Entry) -> Entry:
    event = msgspec.structs.replace(entry.event, idempotency_key=None)
    return msgspec.structs.replace(entry, event=event)


class TicksByAPastVersion(Mutant):
    """Nobody looks which version of a stored schedule a tick was decided by."""

    async def publish_ticks(
        self, ticked: Ticked, entries: Sequence[Entry], *, routes_version: int
    ) -> Append | None:
        standing = self._schedules.get(ticked.schedule)
        if standing is not None:
            ticked = msgspec.structs.replace(ticked, stored=standing.in_force.stored)
        return await super().publish_ticks(ticked, entries, routes_version=routes_version)


class TakesNamesOfSchedulesOfCode(Mutant):
    async def change_gateway(
        self, change: GatewayChange, *, revision: int, actor: Actor
    ) -> int | None:
        for one in change.schedules:
            self._schedules.pop(one.name, None)
        return await super().change_gateway(change, revision=revision, actor=actor)


class KeepsTickingWhatIsDeleted(Mutant):
    async def change_gateway(
        self, change: GatewayChange, *, revision: int, actor: Actor
    ) -> int | None:
        standing = dict(self._schedules)
        done = await super().change_gateway(change, revision=revision, actor=actor)
        gone = {one.name for one in change.gone if one.kind == "schedule"}
        self._schedules |= {name: one for name, one in standing.items() if name in gone and done}
        return done


class ForgetsSchedulesOfTheStore(Mutant):
    async def forget_schedule(self, name: str, *, actor: Actor) -> bool:
        known = self._schedules.pop(name, None)
        self._note("forget_schedule", actor, now=self._clock.now(), count=1, detail=name)
        return known is not None


class TicksWhilePaused(Mutant):
    async def publish_ticks(
        self, ticked: Ticked, entries: Sequence[Entry], *, routes_version: int
    ) -> Append | None:
        standing = self._schedules.get(ticked.schedule)
        if standing is not None and standing.pause is not None:
            self._schedules[ticked.schedule] = msgspec.structs.replace(standing, pause=None)
        return await super().publish_ticks(ticked, entries, routes_version=routes_version)


class MissesWhatAPauseWasFor(Mutant):
    async def resume_schedule(self, name: str, *, actor: Actor) -> bool | None:
        before = self._schedules.get(name)
        done = await super().resume_schedule(name, actor=actor)
        if before is not None and done:
            after = msgspec.structs.replace(self._schedules[name], since=before.since)
            self._schedules[name] = after
        return done


class RunsAgainAndAgain(Mutant):
    async def publish_ticks(
        self, ticked: Ticked, entries: Sequence[Entry], *, routes_version: int
    ) -> Append | None:
        done = await super().publish_ticks(ticked, entries, routes_version=routes_version)
        standing = self._schedules.get(ticked.schedule)
        if standing is not None and ticked.run is not None and done is not None:
            after = msgspec.structs.replace(standing, run=ticked.run)
            self._schedules[ticked.schedule] = after
        return done


class FollowsTheLastWhoDeclaresASchedule(Mutant):
    async def declare_schedules(self, schedules: Sequence[Schedule], *, by: Declarer) -> None:
        self._workers = {}
        await super().declare_schedules(schedules, by=by)


class LosesTrendsAsItRollsThemUp(Mutant):
    def _add_point(self, name: str, start: datetime, measure: Measure) -> None:
        if start == floor(start, 60) == floor(self._clock.now(), 60):
            super()._add_point(name, start, measure)
        else:
            self._trends.setdefault(name, {})[start] = measure


class RollsUpTrendsTooEarly(Mutant):
    async def roll_up_trends(self, *, limit: int = 500) -> int:
        for name, points in list(self._trends.items()):
            self._trends[name] = {}
            for start, measure in points.items():
                self._add_point(name, floor(start, 600), measure)
        return await super().roll_up_trends(limit=limit)


class LetsTrendsPileUp(Mutant):
    async def roll_up_trends(self, *, limit: int = 500) -> int:
        return 0


class KeepsTrendsForEver(Mutant):
    async def roll_up_trends(self, *, limit: int = 500) -> int:
        kept = {name: dict(points) for name, points in self._trends.items()}
        done = await super().roll_up_trends(limit=limit)
        self._trends = self._trends or kept
        return done


class KeepsNoTrendOfAllTogether(Mutant):
    def _add_point(self, name: str, start: datetime, measure: Measure) -> None:
        if name:
            super()._add_point(name, start, measure)


class AddsUpHowLateThingsAre(Mutant):
    def _add_point(self, name: str, start: datetime, measure: Measure) -> None:
        known = self._trends.get(name, {}).get(start, Measure()).overdue
        late = msgspec.structs.replace(measure, overdue=known + measure.overdue)
        super()._add_point(name, start, late)


class AutoReplaysIgnoreGates(Mutant):
    def _is_free(self, destination: Destination) -> bool:
        return not any(one.replay.state is ReplayState.RUNNING for one in self._replays.values())


class AutoReplaysOverlap(Mutant):
    def _is_free(self, destination: Destination) -> bool:
        gate = self._gate(destination.name)
        return gate.pause is None and isinstance(gate.breaker, Closed)


class AutoReplaysOutliveTheirDestination(Mutant):
    async def start_auto_replays(self, *, due: Due) -> Sequence[Replay]:
        removed, self._removed = self._removed, {}
        try:
            return await super().start_auto_replays(due=due)
        finally:
            self._removed = removed


class AutoReplaysIgnoreAge(Mutant):
    def _neglected(self, destination: str, auto_replay: AutoReplay, *, now: datetime) -> list[Row]:
        ageless = msgspec.structs.replace(auto_replay, max_age=timedelta(days=9999))
        return super()._neglected(destination, ageless, now=now)


class AutoReplaysNeverGiveUp(Mutant):
    def _neglected(self, destination: str, auto_replay: AutoReplay, *, now: datetime) -> list[Row]:
        endless = msgspec.structs.replace(auto_replay, cycles=9999)
        return super()._neglected(destination, endless, now=now)


class AutoReplaysTakeEverything(Mutant):
    def _neglected(self, destination: str, auto_replay: AutoReplay, *, now: datetime) -> list[Row]:
        large = msgspec.structs.replace(auto_replay, batch=9999)
        return super()._neglected(destination, large, now=now)


class AutoReplaysTakeTheFirstAgain(Mutant):
    def _neglected(self, destination: str, auto_replay: AutoReplay, *, now: datetime) -> list[Row]:
        large = msgspec.structs.replace(auto_replay, batch=9999)
        found = super()._neglected(destination, large, now=now)
        return sorted(found, key=lambda row: row.id)[: auto_replay.batch]


class EditsTheEvent(Mutant):
    async def edit(self, delivery_id: DeliveryId, **given: Any) -> bool:  # noqa: ANN401 - as given
        is_done = await super().edit(delivery_id, **given)
        if is_done:
            row = self._rows[delivery_id]
            position = self._positions[row.event.id]
            before = self._log[position]
            self._log[position] = msgspec.structs.replace(before, event=row.carried)
        return is_done


class EditsWhatIsNoDeadLetter(Mutant):
    async def edit(self, delivery_id: DeliveryId, **given: Any) -> bool:  # noqa: ANN401 - as given
        row = self._rows.get(delivery_id)
        if row is not None:
            row.payload = given["payload"]
            given["before"] = given["payload"]
        return await super().edit(delivery_id, **given)


class ForgetsEditsOnReplay(Mutant):
    def _begin_cycle(
        self,
        row: Row,
        by: str,
        generation: str | None,
        *,
        now: datetime,
        sender: Record | None = None,
    ) -> None:
        super()._begin_cycle(row, by, generation, now=now, sender=sender)
        if len(row.cycles) > 1:
            row.payload = None


class PrunesTooEarly(Mutant):
    def _delivered_before(self, moment: datetime) -> list[Row]:
        return super()._delivered_before(moment + timedelta(microseconds=1))


class PrunesTheLatestFirst(Mutant):
    def _delivered_before(self, moment: datetime) -> list[Row]:
        return super()._delivered_before(moment)[::-1]


class ForgetsWhatItPruned(Mutant):
    async def prune(self, retention: Retention, *, limit: int = 500) -> Pruned:
        pruned = await super().prune(retention, limit=limit)
        self._pruned.clear()
        return pruned


class RegroupsWhatIsOfToday(Mutant):
    async def regroup(self, grouped: Grouping, *, before: str, limit: int = 200) -> int:
        return await super().regroup(grouped, before="~", limit=limit)


class ForgetsOldGroups(Mutant):
    async def regroup(self, grouped: Grouping, *, before: str, limit: int = 200) -> int:
        done = await super().regroup(grouped, before=before, limit=limit)
        self._aliases.clear()
        return done


class FollowsOneAliasOnly(Mutant):
    def _groups_named(self, group: str | None) -> frozenset[str] | None:
        return None if group is None else frozenset((group, *self._aliases.get(group, ())))


class RegroupsAllAtOnce(Mutant):
    async def regroup(self, grouped: Grouping, *, before: str, limit: int = 200) -> int:
        return await super().regroup(grouped, before=before, limit=1_000_000)


class ForgetsRunningReplays(Mutant):
    def _past_acts(self, by: datetime) -> tuple[list[AuditEntry], list[int]]:
        audit, _ = super()._past_acts(by)
        return audit, [
            number for number, one in self._replays.items() if one.replay.changed_at <= by
        ]


class ForgetsTheWholeAuditLog(Mutant):
    def _past_acts(self, by: datetime) -> tuple[list[AuditEntry], list[int]]:
        audit, replays = super()._past_acts(by)
        return list(self._audit) if audit else [], replays


class PrunesWithoutABound(Mutant):
    async def prune(self, retention: Retention, *, limit: int = 500) -> Pruned:
        return await super().prune(retention, limit=1_000_000)


class CountsFromTheFirstSettlement(Mutant):
    def _remove(self, rows: Iterable[Row], *, at: datetime | None = None) -> None:
        gone = list(rows)
        before = dict(self._idle)
        super()._remove(gone, at=at)
        self._idle |= before


class CountsFromWhateverWentLast(Mutant):
    def _remove(self, rows: Iterable[Row], *, at: datetime | None = None) -> None:
        for row in list(rows):
            self._idle.pop(self._positions[row.event.id], None)
            super()._remove([row], at=at)


class CountsFromTheFailureOfWhatWasDeleted(Mutant):
    def _remove(self, rows: Iterable[Row], *, at: datetime | None = None) -> None:
        super()._remove(rows)


class PrunesEventsWithDeadLetters(Mutant):
    async def prune(self, retention: Retention, *, limit: int = 500) -> Pruned:
        old = self._clock.now() - retention.events
        for row in self._rows.values():
            if row.is_dead_letter and row.changed_at <= old:
                self._idle[self._positions[row.event.id]] = row.changed_at
        kept, self._rows = (
            self._rows,
            {number: row for number, row in self._rows.items() if not row.is_dead_letter},
        )
        pruned = await super().prune(retention, limit=limit)
        self._rows = {
            number: row
            for number, row in kept.items()
            if number in self._rows or row.is_dead_letter
        }
        return pruned


class ForgetsKeysWithTheirEvents(Mutant):
    def _outlive(self, identity: Identity, since: datetime, *, expires: datetime) -> bool:
        return super()._outlive(identity, since, expires=since)


class NeverForgetsKeys(Mutant):
    def _prune_keys(self, moment: datetime, *, limit: int) -> int:
        return 0


class KeepsUnroutedEventsForEver(Mutant):
    def _insert(self, kept: Kept, *, now: datetime) -> None:
        super()._insert(kept, now=now)
        if not kept.destinations:
            del self._idle[self._last_position]


class PrunesUnresolvedDeadLetters(Mutant):
    def _resolved_before(self, moment: datetime) -> list[Row]:
        dead = [row for row in self._rows.values() if row.status is Status.FAILED]
        return [row for row in dead if row.finished_at <= moment]


class DiscardsWhatWasReplayed(Mutant):
    async def discard(
        self, letters: Sequence[Letter], *, actor: Actor, detail: str
    ) -> Sequence[DeliveryId]:
        current = [
            Letter(event=row.event, delivery=row.delivery(None))
            for row in self._found(one.delivery.id for one in letters)
            if row.is_dead_letter
        ]
        return await super().discard(current, actor=actor, detail=detail)


class DiscardsWhatWasEdited(Mutant):
    def _is_as_read(self, row: Row, read: Delivery) -> bool:
        return super()._is_as_read(row, msgspec.structs.replace(read, edits=row.edits))


class HoardsWhatIsResolved(Mutant):
    def _dead_letters_of(self, destination: str) -> list[Row]:
        return [
            row
            for row in self._rows.values()
            if row.status is Status.FAILED and row.destination == destination
        ]


class SharesTurns(Mutant):
    async def take_watch(self, duty: str, worker: str, *, span: timedelta) -> bool:
        return True


class KeepsTurnsForEver(Mutant):
    async def take_watch(self, duty: str, worker: str, *, span: timedelta) -> bool:
        return await super().take_watch(duty, worker, span=timedelta(days=9))


class ExportsWhatFailedLastFirst(Mutant):
    async def letters(
        self, query: Query, *, cursor: str | None = None, limit: int = 500
    ) -> LetterPage:
        page = await super().letters(query, cursor=cursor, limit=limit)
        latest_first = sorted(page.letters, key=lambda one: one.delivery.id, reverse=True)
        return msgspec.structs.replace(page, letters=tuple(latest_first))


class RestoresTheLastFirst(Mutant):
    async def restore(self, letters: Sequence[Letter], *, actor: Actor) -> Restored:
        return await super().restore(letters[::-1], actor=actor)


class RestoresTwice(Mutant):
    def _restore(self, letter: Letter, *, now: datetime) -> Row | None:
        elsewhere = msgspec.structs.replace(letter.event, id=EventId(f"{letter.event.id} again"))
        delivery = msgspec.structs.replace(letter.delivery, event_id=elsewhere.id)
        known = super()._restore(letter, now=now)
        return known or super()._restore(Letter(event=elsewhere, delivery=delivery), now=now)


class LosesTheStoryOfALetter(Mutant):
    def _restore(self, letter: Letter, *, now: datetime) -> Row | None:
        row = super()._restore(letter, now=now)
        if row is not None:
            row.cycles = ()
        return row


class RestoresWhatWasBeforeTheEdit(Mutant):
    def _restore(self, letter: Letter, *, now: datetime) -> Row | None:
        row = super()._restore(letter, now=now)
        if row is not None:
            row.payload = None
        return row


class ForgetsHowOftenALetterWasReplayed(Mutant):
    def _restore(self, letter: Letter, *, now: datetime) -> Row | None:
        row = super()._restore(letter, now=now)
        if row is not None:
            row.auto_replays = 0
        return row


class ForgetsWhatWasSent(Mutant):
    def _restore(self, letter: Letter, *, now: datetime) -> Row | None:
        row = super()._restore(letter, now=now)
        if row is not None:
            row.exchange = None
        return row


class TakesLettersOutWithoutTheirExchange(Mutant):
    async def oldest_letters(self, destination: str, *, limit: int = 500) -> Sequence[Letter]:
        return [
            msgspec.structs.replace(
                one, delivery=msgspec.structs.replace(one.delivery, exchange=None)
            )
            for one in await super().oldest_letters(destination, limit=limit)
        ]


class LooksAwayWhenSecretsAreRevealed(Mutant):
    async def note(self, action: str, *_: object, **__: object) -> None:
        del action


class RestoresWithoutTheKey(Mutant):
    def _restore(self, letter: Letter, *, now: datetime) -> Row | None:
        row = super()._restore(letter, now=now)
        for identity in self._identities(letter.event)[1:]:
            self._known.pop(identity, None)
        return row


class RoutesToWhatWasRemoved(Mutant):
    def _routes(self) -> Routes:
        return Routes(self._routes_version, self._destinations.values())


class RemovesWithoutANewVersion(Mutant):
    async def unregister(self, destination: str, *, actor: Actor) -> bool:
        version = self._routes_version
        is_new = await super().unregister(destination, actor=actor)
        self._routes_version = version
        return is_new


class MovesBeforeWhatIsInFlight(Mutant):
    def _is_busy(self, destination: str, key: str | None) -> bool:
        return False


class MovesToTheEnd(Mutant):
    def _move(self, row: Row, target: str) -> None:
        super()._move(row, target)
        self._rows[row.id] = self._rows.pop(row.id)


class MovesWhatWasGivenAlready(Mutant):
    def _was_given(self, entry: Kept, destination: str) -> bool:
        return any(
            row.event.id == entry.event.id
            and row.destination == destination
            and row.status is not Status.PENDING
            for row in self._rows.values()
        )


class MovesAnEventTwiceAtOnce(Mutant):
    _had_it: frozenset[str] | None = None

    async def move(self, ids: Sequence[DeliveryId], *, target: str, actor: Actor) -> Moved:
        log = self._log.values()
        self._had_it = frozenset(one.event.id for one in log if target in one.destinations)
        try:
            return await super().move(ids, target=target, actor=actor)
        finally:
            self._had_it = None

    def _was_given(self, entry: Kept, destination: str) -> bool:
        if self._had_it is None:
            return super()._was_given(entry, destination)
        return entry.event.id in self._had_it


class MovesAndForgetsWhereTo(Mutant):
    def _give(self, position: int, destination: str, *, instead_of: str = "") -> None:
        if not instead_of:
            super()._give(position, destination)


class BackfillsWhatWasPruned(Mutant):
    def _was_given(self, entry: Kept, destination: str) -> bool:
        return any(
            row.event.id == entry.event.id and row.destination == destination
            for row in self._rows.values()
        )


class BackfillsAheadOfLiveWork(Mutant):
    def _add(
        self, position: int, destination: str, generation: str | None, *, now: datetime
    ) -> Row:
        row = super()._add(position, destination, generation, now=now)
        row.priority = row.event.priority
        return row


class BackfillsAsFirstAttempts(Mutant):
    def _add(
        self, position: int, destination: str, generation: str | None, *, now: datetime
    ) -> Row:
        row = super()._add(position, destination, generation, now=now)
        row.kind = Kind.FIRST
        return row


class BackfillsBehindWhatOvertook(Mutant):
    def _is_overtaken(self, position: int, key: str | None, destination: Destination) -> bool:
        return False


class BackfillsWithoutCounting(Mutant):
    def _give(self, position: int, destination: str, *, instead_of: str = "") -> None:
        if instead_of:
            super()._give(position, destination, instead_of=instead_of)


class CountsDueWorkBehindOthers(Mutant):
    def _due_work(self, heads: Heads, *, now: datetime) -> tuple[DueWork, ...]:
        behind = sum(self._behind(row, heads) is not None for row in self._rows.values())
        return tuple(
            msgspec.structs.replace(one, count=one.count + behind)
            for one in super()._due_work(heads, now=now)
        )


class ForgetsWhatWorkersServe(Mutant):
    async def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        lease: timedelta,
        serving: Serving | None = None,
    ) -> Sequence[Lease]:
        self._serving.pop(worker, None)
        return await super().heartbeat(worker, leases, lease=lease, serving=serving)


class RemembersTenantsForEver(Mutant):
    def _forget_tenants(self, by: datetime, *, limit: int) -> None:
        pass


class ForgetsTenantsWithWork(Mutant):
    def _forget_tenants(self, by: datetime, *, limit: int) -> None:
        rows, self._rows = self._rows, {}
        super()._forget_tenants(by, limit=limit)
        self._rows = rows


class ForgetsTenantsTooSoon(Mutant):
    def _forget_tenants(self, by: datetime, *, limit: int) -> None:
        super()._forget_tenants(by + timedelta(days=1), limit=limit)


class ListsTenantsThatAreNotPaused(Mutant):
    async def tenants(
        self,
        *,
        destination: str | None = None,
        tenant: str | None = None,
        only_paused: bool = False,
        limit: int = 50,
    ) -> Sequence[TenantFigures]:
        return await super().tenants(destination=destination, tenant=tenant, limit=limit)


class KeepsGatesForHistory(Mutant):
    def _listed(self, *, only_unsettled: bool = False) -> list[str]:
        return super()._listed()


class NeverWaits(Mutant):
    async def wait(self, *, at_most: timedelta, since: object = None) -> None:
        pass


class NeverWakes(Mutant):
    def _tell(self) -> None:
        pass


class SleepsThroughNews(Mutant):
    def _tell(self) -> None:
        super()._tell()
        self._has_news = False


def _tokens(bucket: Bucket) -> float:
    return bucket.tokens


def _ignoring(filter_name: str, default: object = None) -> type[Mutant]:
    class IgnoresAFilter(Mutant):
        async def find(
            self,
            query: Query,
            *,
            cursor: str | None = None,
            limit: int = 50,
            most_read: int | None = None,
        ) -> Page:
            query = msgspec.structs.replace(query, **{filter_name: default})
            return await super().find(query, cursor=cursor, limit=limit, most_read=most_read)

    IgnoresAFilter.__name__ = f"IgnoresTheFilter_{filter_name}"
    return IgnoresAFilter


# A class knows its subclasses weakly: those that nothing names would come and go.
_IGNORANT = [
    _ignoring(name, {"status": Status.FAILED, "with_resolved": True}.get(name))
    for name in Query.__struct_fields__
]


class ReadsTheCursorOnceMore(Mutant):
    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        types: Sequence[str] = (),
        limit: int = 100,
        **part: int,
    ) -> LogPage:
        before = LogPosition(number=max(0, after.number - 1))
        return await super().read_events(after=before, types=types, limit=limit, **part)


class ReadsMoreThanWasAsked(Mutant):
    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        types: Sequence[str] = (),
        limit: int = 100,
        **part: int,
    ) -> LogPage:
        return await super().read_events(after=after, types=types, limit=limit + 1, **part)


class LosesACursorWithItsEvent(Mutant):
    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        types: Sequence[str] = (),
        limit: int = 100,
        **part: int,
    ) -> LogPage:
        if after != LOG_START and after.number not in self._log:
            return LogPage(events=(), reached=after, is_end=True)
        return await super().read_events(after=after, types=types, limit=limit, **part)


class StartsOverWithoutItsEvent(Mutant):
    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        types: Sequence[str] = (),
        limit: int = 100,
        **part: int,
    ) -> LogPage:
        is_there = after.number in self._log or after.number == self._last_position
        begin = after if is_there else LOG_START
        return await super().read_events(after=begin, types=types, limit=limit, **part)


class CountsPositionsAnew(Mutant):
    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        types: Sequence[str] = (),
        limit: int = 100,
        **part: int,
    ) -> LogPage:
        page = await super().read_events(limit=1_000_000, types=types)
        placed = [
            LoggedEvent(LogPosition(number=place), one.event, one.version)
            for place, one in enumerate(page.events, start=1)
        ]
        found = tuple(one for one in placed if one.position > after)[:limit]
        reached = found[-1].position if found else after
        return LogPage(events=found, reached=reached, is_end=len(found) < limit)


class ReadsWhatDoesNotFit(Mutant):
    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        types: Sequence[str] = (),
        limit: int = 100,
        **part: int,
    ) -> LogPage:
        return await super().read_events(after=after, limit=limit)


class ReachesNoFurtherThanWhatFits(Mutant):
    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        types: Sequence[str] = (),
        limit: int = 100,
        **part: int,
    ) -> LogPage:
        page = await super().read_events(after=after, types=types, limit=limit, **part)
        reached = page.events[-1].position if page.events else after
        return msgspec.structs.replace(page, reached=reached)


class IsAtTheEndWhenNothingFits(Mutant):
    async def read_events(
        self,
        *,
        after: LogPosition = LOG_START,
        types: Sequence[str] = (),
        limit: int = 100,
        **part: int,
    ) -> LogPage:
        page = await super().read_events(after=after, types=types, limit=limit, **part)
        return msgspec.structs.replace(page, is_end=page.is_end or not page.events)


class ReadsAKeyFromItsBeginning(Mutant):
    async def read_key(
        self, key: str, *, after: int = 0, limit: int = 100
    ) -> Sequence[LoggedEvent]:
        return await super().read_key(key, limit=limit)


class ReadsAKeyWithoutEnd(Mutant):
    async def read_key(
        self, key: str, *, after: int = 0, limit: int = 100
    ) -> Sequence[LoggedEvent]:
        return await super().read_key(key, after=after, limit=1_000)


class ReadersHearOldNews(Mutant):
    async def wait(self, *, at_most: timedelta, since: object = None) -> None:
        if since is None or not self._has_news:
            await super().wait(at_most=at_most, since=since)


class EndsTheLogTooFar(Mutant):
    async def end_of_log(self) -> LogPosition:
        return LogPosition(number=self._last_position + 1)


class ReadersMissWhatOthersHaveSeen(Mutant):
    async def wait(self, *, at_most: timedelta, since: object = None) -> None:
        await super().wait(at_most=at_most, since=None if since is None else self._told)


class MovesWhatIsGivenToTheEnd(Mutant):
    def _give(self, position: int, destination: str, *, instead_of: str = "") -> None:
        super()._give(position, destination, instead_of=instead_of)
        self._log[position] = self._log.pop(position)


class IgnoresExpectedVersions(Mutant):
    def _is_expected(self, entry: Entry, actual: int) -> bool:
        return True


class AcceptsOlderVersions(Mutant):
    def _is_expected(self, entry: Entry, actual: int) -> bool:
        return entry.expected_version is None or entry.expected_version >= actual


class TakesZeroForNoMatter(Mutant):
    def _is_expected(self, entry: Entry, actual: int) -> bool:
        return not entry.expected_version or entry.expected_version == actual


class CountsVersionsOverAllKeys(Mutant):
    def _next(self, event: Event[msgspec.Raw], versions: MutableMapping[str, int]) -> int | None:
        version = super()._next(event, versions)
        return None if version is None else sum(versions.values())


class CountsNotWithinABatch(Mutant):
    def _next(self, event: Event[msgspec.Raw], versions: MutableMapping[str, int]) -> int | None:
        return super()._next(event, dict(versions))


class BurnsVersionsOfWhatItRefuses(Mutant):
    def _is_expected(self, entry: Entry, actual: int) -> bool:
        is_expected = super()._is_expected(entry, actual)
        if not is_expected:
            self._next(entry.event, self._versions)
        return is_expected


class TakesTheKeyOfWhatItRefuses(Mutant):
    def _is_expected(self, entry: Entry, actual: int) -> bool:
        is_expected = super()._is_expected(entry, actual)
        if not is_expected:
            for identity in self._identities(entry.event)[1:]:
                self._known[identity] = Kept(entry.event, entry.destinations, actual)
        return is_expected


class AsksForTheVersionFirst(Mutant):
    def _result(self, entry: Entry, first: Kept) -> Receipt | Conflict:
        is_known = (first.event.id,) in self._known
        version = self._versions.get(entry.event.key or "", 0)
        if is_known and not self._is_expected(entry, version):
            return Conflict(first.event.id)
        return super()._result(entry, first)


class ForgetsTheVersionOfADuplicate(Mutant):
    def _result(self, entry: Entry, first: Kept) -> Receipt | Conflict:
        result = super()._result(entry, first)
        if isinstance(result, Receipt) and result.is_duplicate:
            return msgspec.structs.replace(result, version=None)
        return result


class ForgetsVersionsWithEvents(Mutant):
    async def prune(self, retention: Retention, *, limit: int = 500) -> Pruned:
        pruned = await super().prune(retention, limit=limit)
        left = {kept.event.key for kept in self._log.values()}
        self._versions = {key: one for key, one in self._versions.items() if key in left}
        return pruned


class CountsNotWhatComesBack(Mutant):
    async def restore(self, letters: Sequence[Letter], *, actor: Actor) -> Restored:
        versions = dict(self._versions)
        restored = await super().restore(letters, actor=actor)
        self._versions = versions
        return restored


class StaysUniqueForEver(Mutant):
    def _keep_uniques(
        self, entries: Sequence[Entry], fresh: Sequence[Kept], *, now: datetime
    ) -> None:
        super()._keep_uniques(entries, fresh, now=now + timedelta(days=1))


class HoldsUniqueKeysOfWhatIsRefused(Mutant):
    def _sift(
        self, entries: Sequence[Entry], *, now: datetime
    ) -> tuple[tuple[AppendResult, ...], Sequence[Kept]]:
        kept = [Kept(one.event, one.destinations) for one in entries]
        results = super()._sift(entries, now=now)
        self._keep_uniques(entries, kept, now=now)
        return results


class CompletesWhatCameBefore(Mutant):
    async def catch_up(self) -> CaughtUp:
        added = 0
        for position, kept in list(self._log.items()):
            for one in self._routes().destinations:
                if (
                    one.wants(kept.event.type, kept.event.tenant)
                    and one.name not in self._log[position].destinations
                ):
                    self._add(position, one.name, None, now=self._clock.now())
                    added += 1
        return CaughtUp(added=added)


class LastOpenerWins(Mutant):
    async def register(
        self,
        destinations: Sequence[Destination],
        *,
        by: Declarer = PUBLISHER,
        again: bool = False,
    ) -> Registered:
        by = by if by.worker else Declarer(worker="anybody")
        return await super().register(destinations, by=by, again=again)


class ForgetsWhatWasDeclared(Mutant):
    def _keep(self, rulings: Sequence[Ruling]) -> None:
        super()._keep(rulings)
        for one in rulings:
            self._standings[one.name] = msgspec.structs.replace(one.after, seen=())


class TakesNobodyForLive(Mutant):
    def _declared_by_others(self, by: Declarer, *, now: datetime) -> list[Release]:
        return []


class TakesTheSilentForLive(Mutant):
    def _declared_by_others(self, by: Declarer, *, now: datetime) -> list[Release]:
        return [release for worker, release in self._releases.items() if worker != by.worker]


class RetiresNoRelease(Mutant):
    def _forget(self, worker: str) -> None:
        release, seen_at = self._releases.get(worker), self._workers.get(worker)
        super()._forget(worker)
        if release is not None and seen_at is not None:
            self._releases[worker], self._workers[worker] = release, seen_at


class TakesAPartForAllThatIsDeclared(Mutant):
    async def register(
        self,
        destinations: Sequence[Destination],
        *,
        by: Declarer = PUBLISHER,
        again: bool = False,
    ) -> Registered:
        return await super().register(destinations, by=by, again=again and False)


class DropsWhatWasAdded(Mutant):
    def _keep(self, rulings: Sequence[Ruling]) -> None:
        bare = [
            Ruling(one.declared, one.before, msgspec.structs.replace(one.after, added=()))
            for one in rulings
        ]
        super()._keep(bare)


class KeepsWhatWasAddedForGood(Mutant):
    def _keep(self, rulings: Sequence[Ruling]) -> None:
        kept = []
        for one in rulings:
            before = one.before.added if one.before else ()
            added = one.after.added or tuple(
                pattern for pattern in before if pattern not in one.after.in_force.patterns
            )
            after = msgspec.structs.replace(one.after, added=added)
            kept.append(Ruling(one.declared, one.before, after))
        super()._keep(kept)


class ForgetsAboutTheRemoval(Mutant):
    async def unregister(self, destination: str, *, actor: Actor) -> bool:
        is_new = await super().unregister(destination, actor=actor)
        self._standings.pop(destination)
        return is_new


class DeclaresInSilence(Mutant):
    def _record(self, entry: AuditEntry) -> None:
        if entry.action != "declare":
            super()._record(entry)


class NamesNoDifference(Mutant):
    def _record(self, entry: AuditEntry) -> None:
        if entry.action == "declare":
            entry = msgspec.structs.replace(entry, detail=entry.detail.partition(":")[0])
        super()._record(entry)


class TellsNoVersionOfTheRoutes(Mutant):
    async def claim(self, request: ClaimRequest) -> Claim:
        return msgspec.structs.replace(await super().claim(request), routes_version=None)


class GoesOnCountingWhatIsReplayed(Mutant):
    async def replay(
        self,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        generation: str | None = None,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        replayed = await super().replay(ids, actor=actor, generation=generation, scope=scope)
        self.counted_twice = len(replayed) + getattr(self, "counted_twice", 0)
        return replayed

    async def figures(self) -> Figures:
        figures = await super().figures()
        count = figures.letters.count + getattr(self, "counted_twice", 0)
        letters = msgspec.structs.replace(figures.letters, count=count)
        return msgspec.structs.replace(figures, letters=letters)


class TellsNobodyWhoDeclaresAnother(Mutant):
    async def figures(self) -> Figures:
        figures = await super().figures()
        workers = tuple(msgspec.structs.replace(one, others=()) for one in figures.workers)
        return msgspec.structs.replace(figures, workers=workers)


class HearsNobodyWhoDeclares(Mutant):
    async def register(
        self,
        destinations: Sequence[Destination],
        *,
        by: Declarer = PUBLISHER,
        again: bool = False,
    ) -> Registered:
        seen = dict(self._workers)
        registered = await super().register(destinations, by=by, again=again)
        self._workers = {**self._workers, **seen}
        return registered


class OverridesNothing(Mutant):
    def _limits(self, destination: str, now: datetime) -> Limits:
        return self._destinations[destination].limits


class OverridesForGood(Mutant):
    def _overridden(self, now: datetime) -> dict[str, Override]:
        return dict(self._overrides)


class OverridesEverything(Mutant):
    def _limits(self, destination: str, now: datetime) -> Limits:
        override = self._overridden(now).get(destination)
        return override.limits if override else super()._limits(destination, now)


class OverridesInSilence(Mutant):
    async def override(
        self, destination: str, limits: Limits, *, lasts: timedelta, actor: Actor
    ) -> Override:
        version = self._routes_version
        override = await super().override(destination, limits, lasts=lasts, actor=actor)
        self._routes_version = version
        return override


class OverridesWithoutAudit(Mutant):
    def _record(self, entry: AuditEntry) -> None:
        if "override" not in entry.action:
            super()._record(entry)


class LetsADeclarationEndAnOverride(Mutant):
    def _keep(self, rulings: Sequence[Ruling]) -> None:
        super()._keep(rulings)
        for one in rulings:
            if one.is_change:
                self._overrides.pop(one.name, None)


class SharesNoRate(Mutant):
    def _begin_sharing(self, destinations: Sequence[str], now: datetime) -> Sharing:
        return Sharing({}, {}, now=now)


class SharesARateWithItself(Mutant):
    def _begin_sharing(self, destinations: Sequence[str], now: datetime) -> Sharing:
        rates = {
            name: msgspec.structs.replace(rate, name=name)
            for name in destinations
            if (rate := self._destinations[name].limits.shared_rate) is not None
        }
        buckets = {name: self._shared.get(name, SharedBucket()) for name in rates}
        return Sharing(rates, buckets, now=now)


class ServesWhoAsksFirstOfTheSharedRate(Mutant):
    def _end_sharing(self, unserved: Collection[str]) -> list[datetime]:
        opens = super()._end_sharing(unserved)
        self._shared = {
            name: msgspec.structs.replace(one, waiting=()) for name, one in self._shared.items()
        }
        return opens


class WaitsForWhoSharesForGood(Mutant):
    def _begin_sharing(self, destinations: Sequence[str], now: datetime) -> Sharing:
        for name, one in self._shared.items():
            waiting = tuple(msgspec.structs.replace(who, turn=now) for who in one.waiting)
            self._shared[name] = msgspec.structs.replace(one, waiting=waiting)
        return super()._begin_sharing(destinations, now)


class TellsNobodyItsTurnAtASharedRate(Mutant):
    def _end_sharing(self, unserved: Collection[str]) -> list[datetime]:
        shut = dict(self._shut)
        opens = super()._end_sharing(unserved)
        self._shut = shut
        return opens


class TellsAllInLineOfTheNextToken(Mutant):
    def _end_sharing(self, unserved: Collection[str]) -> list[datetime]:
        shut = dict(self._shut)
        opens = super()._end_sharing(unserved)
        now = self._clock.now()
        for name in self._shut.keys() - shut.keys():
            rate = self._limits(name, now).shared_rate
            assert rate is not None, "it has a turn"
            self._shut[name] = awaited(self._shared[rate.name].bucket, rate.rate, now=now)
        return opens


class ForgetsWhoRestsUntilItsTurn(Mutant):
    def _end_sharing(self, unserved: Collection[str]) -> list[datetime]:
        opens = super()._end_sharing(unserved)
        now = self._clock.now()
        for name, one in self._shared.items():
            waiting = tuple(
                msgspec.structs.replace(who, turn=min(now, who.turn)) for who in one.waiting
            )
            self._shared[name] = msgspec.structs.replace(one, waiting=waiting)
        return opens


class ChargesSharedRatesOnlyForFirstAttempts(Mutant):
    def _take(self, allowance: Allowance, rows: Iterable[Row]) -> list[Row]:
        chosen = super()._take(allowance, rows)
        others = sum(row.kind is not Kind.FIRST for row in chosen)
        self._sharing.charge(allowance.destination, -others)
        return chosen


class LetsTwoRead(Mutant):
    async def take_turn(self, *args: Any, **options: Any) -> ReaderTurn | None:  # noqa: ANN401 - as it comes
        return await super().take_turn(*args, **{**options, "lease": -options["lease"]})


class NeverLetsGoOfATurn(Mutant):
    async def take_turn(self, *args: Any, **options: Any) -> ReaderTurn | None:  # noqa: ANN401 - as it comes
        return await super().take_turn(*args, **{**options, "lease": 1000 * options["lease"]})


class BeginsProjectionsAtTheStart(Mutant):
    async def take_turn(self, *args: Any, **options: Any) -> ReaderTurn | None:  # noqa: ANN401 - as it comes
        return await super().take_turn(*args, **{**options, "begin": LOG_START})


class ForgetsWhoseTurnItIs(Mutant):
    def _has_turn(self, turn: ReaderTurn, after: LogPosition) -> bool:
        token, _ = self._checkpoints[turn.checkpoint.projection, turn.checkpoint.partition]
        return super()._has_turn(msgspec.structs.replace(turn, token=token), after)


class KeepsNewsOfTheLog(Mutant):
    async def log_news(self, after: LogPosition) -> LogNews:
        return msgspec.structs.replace(await super().log_news(after), has_more=False)


class TellsNobodyThatATurnIsLost(Mutant):
    async def log_news(self, after: LogPosition) -> LogNews:
        news = await super().log_news(after)
        return msgspec.structs.replace(news, tokens=dict.fromkeys(news.tokens, 1))


class AppliesAPageAgain(Mutant):
    def _has_turn(self, turn: ReaderTurn, after: LogPosition) -> bool:
        _, checkpoint = self._checkpoints[turn.checkpoint.projection, turn.checkpoint.partition]
        return super()._has_turn(turn, checkpoint.position)


class MovesTheCheckpointFirst(Mutant):
    async def project(
        self,
        turn: ReaderTurn,
        page: LogPage,
        apply: Applying,
        *,
        after: LogPosition,
        generation: str,
        at_most: timedelta,
        truncate: Truncating | None = None,
        create: Truncating | None = None,
    ) -> Projected:
        kept: list[Applying] = []

        async def nothing(
            _: object, events: Sequence[LoggedEvent], __: datetime
        ) -> Sequence[Settled | None]:
            kept.append(apply)
            return [None] * len(events)

        projected = await super().project(
            turn,
            page,
            nothing,
            after=after,
            generation=generation,
            at_most=at_most,
            truncate=truncate,
            create=create,
        )
        if kept:
            await apply(None, page.events, self._clock.now())
        return projected


class ParksWithoutFollowers(Mutant):
    def _hand_over(
        self,
        turn: ReaderTurn,
        logged: LoggedEvent,
        settled: Settled | None,
        generation: str,
        *,
        now: datetime,
    ) -> Settled | None:
        if settled is None:
            return None
        return super()._hand_over(turn, logged, settled, generation, now=now)


class OvertakesAParkedKey(Mutant):
    def _waits(self, name: str, key: str | None) -> bool:
        return False


class ParksAKeyForGood(Mutant):
    def _waits(self, name: str, key: str | None) -> bool:
        return any(row.destination == name and row.event.key == key for row in self._rows.values())


class ProjectsWhilePaused(Mutant):
    def _is_stopped(self, name: str) -> bool:
        return False


class ForgetsThatAModelIsToBeEmptied(Mutant):
    async def reset_projection(self, projection: str, **options: Any) -> int:  # noqa: ANN401 - as it comes
        removed = await super().reset_projection(projection, **options)
        token, new = self._checkpoints[projection, 0]
        self._checkpoints[projection, 0] = (token, msgspec.structs.replace(new, is_reset=False))
        return removed


class LetsAReaderGoOnAfterAReset(Mutant):
    async def reset_projection(self, projection: str, **options: Any) -> int:  # noqa: ANN401 - as it comes
        removed = await super().reset_projection(projection, **options)
        token, new = self._checkpoints[projection, 0]
        self._checkpoints[projection, 0] = (token - 1, new)
        return removed


class TakesAParkedEventForApplied(Mutant):
    async def has_applied(self, projection: str, event_id: EventId) -> bool:
        position = self._positions[event_id]
        return self._checkpoints[projection, 0][1].position.number >= position


class CountsWhatWasHandedOver(Mutant):
    def _keep_checkpoint(
        self,
        place: tuple[str, int],
        reached: LogPosition,
        applied: Sequence[LoggedEvent],
        *,
        now: datetime,
    ) -> None:
        handed_over = [row for row in self._rows.values() if row.destination == place[0]]
        super()._keep_checkpoint(place, reached, applied, now=now)
        token, after = self._checkpoints[place]
        counted = msgspec.structs.replace(after, count=after.count + len(handed_over))
        self._checkpoints[place] = (token, counted)


class PrunesWhatIsStillToBeRead(Mutant):
    def _is_read(self, position: int) -> bool:
        return True


class KeepsWhatWasRead(Mutant):
    def _is_read(self, position: int) -> bool:
        return not self._checkpoints


class SwapsBeforeItHasCaughtUp(Mutant):
    def _unread(
        self, checkpoint: Checkpoint, *, up_to: int = sys.maxsize
    ) -> list[Event[msgspec.Raw]]:
        return super()._unread(checkpoint) if up_to == sys.maxsize else []


class SwapsBehindWhatReadersHave(Mutant):
    async def swap_projection(
        self, projection: str, *, through: LogPosition, accepts_parked: bool, actor: Actor
    ) -> Swapping:
        for place, (token, one) in self._checkpoints.items():
            if one.served_at is None and place[0] != projection:
                self._checkpoints[place] = (token, msgspec.structs.replace(one, position=LOG_START))
        return await super().swap_projection(
            projection, through=through, accepts_parked=accepts_parked, actor=actor
        )


class SwapsInFailures(Mutant):
    async def swap_projection(
        self, projection: str, *, through: LogPosition, accepts_parked: bool, actor: Actor
    ) -> Swapping:
        return await super().swap_projection(
            projection, through=through, accepts_parked=True, actor=actor
        )


class SwapsWhatIsToBeginAnew(Mutant):
    async def swap_projection(
        self, projection: str, *, through: LogPosition, accepts_parked: bool, actor: Actor
    ) -> Swapping:
        if (projection, 0) in self._checkpoints:
            token, one = self._checkpoints[projection, 0]
            self._checkpoints[projection, 0] = (token, msgspec.structs.replace(one, is_reset=False))
        return await super().swap_projection(
            projection, through=through, accepts_parked=accepts_parked, actor=actor
        )


class ReadsAPartitionAsAWhole(Mutant):
    async def read_events(self, *, partitions: int = 1, **options: Any) -> LogPage:  # noqa: ANN401 - as it comes
        return await super().read_events(**{**options, "partition": 0})


class ReadsAKeyForTwoPartitions(Mutant):
    async def read_events(self, **options: Any) -> LogPage:  # noqa: ANN401 - as it comes
        other = {**options, "partition": 0} if options.get("partitions") else options
        mine, others = await super().read_events(**options), await super().read_events(**other)
        stray = [one for one in others.events if one.event.key == "order-2"]
        found = {one.position: one for one in (*mine.events, *stray)}
        events = tuple(found[place] for place in sorted(found))
        return msgspec.structs.replace(mine, events=events)


class HasTwoOwnersOfAPartition(Mutant):
    def _has_turn(self, turn: ReaderTurn, after: LogPosition) -> bool:
        place = turn.checkpoint.projection, turn.checkpoint.partition
        token = self._checkpoints[place][0] if turn.checkpoint.partitions > 1 else turn.token
        return super()._has_turn(msgspec.structs.replace(turn, token=token), after)


class NeverSharesPartitions(Mutant):
    async def take_turn(self, *args: Any, **options: Any) -> ReaderTurn | None:  # noqa: ANN401 - as it comes
        owners = {one.worker for _, one in self._checkpoints.values()}
        if owners - {None, options["worker"]} and options.get("partitions") == 4:
            options["held"] = range(4)
        return await super().take_turn(*args, **options)


class TakesEveryPartition(Mutant):
    async def take_turn(self, *args: Any, **options: Any) -> ReaderTurn | None:  # noqa: ANN401 - as it comes
        is_divided = options.get("partitions", 1) > 1 and len(options.get("held", ())) > 1
        lease = timedelta(0) if is_divided else options["lease"]
        return await super().take_turn(*args, **{**options, "lease": lease})


class MovesAllCheckpoints(Mutant):
    def _keep_checkpoint(
        self,
        place: tuple[str, int],
        reached: LogPosition,
        applied: Sequence[LoggedEvent],
        *,
        now: datetime,
    ) -> None:
        super()._keep_checkpoint(place, reached, applied, now=now)
        for other, (token, one) in self._checkpoints.items():
            if other[0] == place[0]:
                moved = msgspec.structs.replace(one, position=reached)
                self._checkpoints[other] = (token, moved)


class PrunesByTheFastestPartition(Mutant):
    def _is_read(self, position: int) -> bool:
        fastest: dict[str, int] = {}
        for _, one in self._checkpoints.values():
            before = fastest.get(one.projection, 0)
            fastest[one.projection] = max(before, one.position.number)
        return all(number >= position for number in fastest.values())


class SwapsOneOfItsPartitions(Mutant):
    """It looks at the partition that has read the furthest."""

    async def swap_projection(
        self, projection: str, *, through: LogPosition, accepts_parked: bool, actor: Actor
    ) -> Swapping:
        parts = self._parts(projection)
        furthest = max((one.position for one in parts), default=LOG_START)
        for one in parts if len(parts) > 1 else ():
            token, _ = self._checkpoints[projection, one.partition]
            moved = msgspec.structs.replace(one, position=furthest)
            self._checkpoints[projection, one.partition] = (token, moved)
        return await super().swap_projection(
            projection, through=through, accepts_parked=accepts_parked, actor=actor
        )


class EmptiesForEachPartition(Mutant):
    async def project(self, turn: ReaderTurn, *args: Any, **options: Any) -> Projected:  # noqa: ANN401 - as it comes
        parts, truncate = self._parts(turn.checkpoint.projection), options.get("truncate")
        is_reset = any(one.is_reset for one in parts if one.partition == turn.checkpoint.partition)
        if truncate is not None and is_reset and not all(one.is_reset for one in parts):
            await truncate(None)
        return await super().project(turn, *args, **options)


class ResetsOnePartition(Mutant):
    async def reset_projection(self, projection: str, **options: Any) -> int:  # noqa: ANN401 - as it comes
        before = {place: kept for place, kept in self._checkpoints.items() if place[1]}
        removed = await super().reset_projection(projection, **options)
        self._checkpoints.update(before)
        return removed


class DividesWhereverItStands(Mutant):
    def _has_partitions(
        self, new: Checkpoint, partitions: int, worker: str, lease: timedelta
    ) -> bool:
        before = self._parts(new.projection)
        if len(before) != partitions:
            for one in before:
                place = (one.projection, one.partition)
                token, kept = self._checkpoints[place]
                moved = msgspec.structs.replace(kept, position=before[0].position)
                self._checkpoints[place] = (token, moved)
        return super()._has_partitions(new, partitions, worker, lease)


class ReachesByThePartitionOfOthers(Mutant):
    async def has_applied(self, projection: str, event_id: EventId) -> bool:
        position = self._positions[event_id]
        furthest = max(one.position.number for one in self._parts(projection))
        return (
            furthest >= position
            if len(self._parts(projection)) > 1
            else (await super().has_applied(projection, event_id))
        )


class ForgetsEditsInARebuild(Mutant):
    def _edits(
        self, name: str, events: Sequence[LoggedEvent]
    ) -> dict[int, tuple[msgspec.Raw, tuple[Edit, ...]]]:
        return {}


class GoesOnWithACancelledRebuild(Mutant):
    def _is_held(self, name: str, rebuild: Rebuild) -> bool:
        return not rebuild.is_cancelled and super()._is_held(name, rebuild)


class GoesOnPastWhatAStrictRebuildWaitsFor(Mutant):
    def _is_held(self, name: str, rebuild: Rebuild) -> bool:
        return rebuild.is_cancelled


class SwapsInWhatLacksEvents(Mutant):
    async def take_turn(self, *args: Any, **options: Any) -> ReaderTurn | None:  # noqa: ANN401 - as it comes
        self._pruned_events = 0
        return await super().take_turn(*args, **options)


class CountsNoVersionsOfSecrets(Mutant):
    async def set_secret(self, name: str, sealed: bytes, *, key_id: str, actor: Actor) -> Secret:
        self._secrets.pop(name, None)
        return await super().set_secret(name, sealed, key_id=key_id, actor=actor)


class KeepsTheFirstOfASecret(Mutant):
    async def set_secret(self, name: str, sealed: bytes, *, key_id: str, actor: Actor) -> Secret:
        if kept := self._secrets.get(name):
            sealed = kept.sealed
        return await super().set_secret(name, sealed, key_id=key_id, actor=actor)


class EncryptsOverANewerSecret(Mutant):
    async def reseal_secret(
        self, kept: KeptSecret, sealed: bytes, *, key_id: str, actor: Actor
    ) -> bool:
        kept = self._secrets.get(kept.secret.name, kept)
        return await super().reseal_secret(kept, sealed, key_id=key_id, actor=actor)


class BringsBackADeletedSecret(Mutant):
    async def reseal_secret(
        self, kept: KeptSecret, sealed: bytes, *, key_id: str, actor: Actor
    ) -> bool:
        self._secrets.setdefault(kept.secret.name, kept)
        return await super().reseal_secret(kept, sealed, key_id=key_id, actor=actor)


class TakesARotationForAChange(Mutant):
    async def reseal_secret(
        self, kept: KeptSecret, sealed: bytes, *, key_id: str, actor: Actor
    ) -> bool:
        done = await super().reseal_secret(kept, sealed, key_id=key_id, actor=actor)
        if done:
            changed = msgspec.structs.replace(kept.secret, key_id=key_id, version=2)
            self._secrets[kept.secret.name] = KeptSecret(secret=changed, sealed=sealed)
        return done


class WritesWhatIsSealedIntoTheAuditLog(Mutant):
    def _record(self, entry: AuditEntry) -> None:
        if "secret" in entry.action:
            entry = msgspec.structs.replace(entry, detail=f"{entry.detail} {self._secrets}")
        super()._record(entry)


class DeletesSecretsSilently(Mutant):
    async def delete_secret(self, name: str, *, actor: Actor) -> bool:
        return self._secrets.pop(name, None) is not None


class ForgetsThatATokenWasRevoked(Mutant):
    async def use_token(self, token_id: str) -> None:
        await super().use_token(token_id)
        if kept := self._access_tokens.get(token_id):
            self._keep_token(msgspec.structs.replace(kept.token, revoked_at=None))


class RevokesATokenTwice(Mutant):
    async def revoke_token(self, token_id: str, *, actor: Actor) -> bool | None:
        if kept := self._access_tokens.get(token_id):
            self._keep_token(msgspec.structs.replace(kept.token, revoked_at=None))
        return await super().revoke_token(token_id, actor=actor)


class RevokesAllTokensOfAName(Mutant):
    async def revoke_token(self, token_id: str, *, actor: Actor) -> bool | None:
        done = await super().revoke_token(token_id, actor=actor)
        for kept in list(self._access_tokens.values()):
            token = msgspec.structs.replace(kept.token, revoked_at=self._clock.now())
            self._keep_token(token)
        return done


class GivesATokensIdAgain(Mutant):
    async def add_token(self, terms: TokenTerms, *, actor: Actor) -> Token | None:
        self._access_tokens.pop(terms.id, None)
        return await super().add_token(terms, actor=actor)


class MakesTokensThatNeverExpire(Mutant):
    async def add_token(self, terms: TokenTerms, *, actor: Actor) -> Token | None:
        return await super().add_token(msgspec.structs.replace(terms, lasts=None), actor=actor)


class ForgetsTokensAsSoonAsTheyEnd(Mutant):
    async def add_token(self, terms: TokenTerms, *, actor: Actor) -> Token | None:
        now = self._clock.now()
        self._access_tokens = {
            one: kept
            for one, kept in self._access_tokens.items()
            if one == terms.id or kept.token.is_current(now)
        }
        return await super().add_token(terms, actor=actor)


class GoesByTheTimeATokenWasMade(Mutant):
    async def find_token(self, token_id: str) -> KeptToken | None:
        return self._access_tokens.get(token_id)


class WidensWhatATokenAllows(Mutant):
    async def add_token(self, terms: TokenTerms, *, actor: Actor) -> Token | None:
        wide = msgspec.structs.replace(terms.grant, destinations=())
        return await super().add_token(msgspec.structs.replace(terms, grant=wide), actor=actor)


class WritesDigestsIntoTheAuditLog(Mutant):
    def _record(self, entry: AuditEntry) -> None:
        if "token" in entry.action:
            digests = " ".join(one.digest for one in self._access_tokens.values())
            entry = msgspec.structs.replace(entry, detail=f"{entry.detail} {digests}")
        super()._record(entry)


class KeepsSessionsWhenThePasswordChanges(Mutant):
    def _end_sessions(self, name: str) -> None:
        pass


class EndsEverybodysSessions(Mutant):
    def _end_sessions(self, name: str) -> None:
        self._sessions = {}


class OpensSessionsByAnOldPassword(Mutant):
    async def open_session(
        self, session_id: str, user: User, *, idle: timedelta, lasts: timedelta
    ) -> LoginSession | None:
        if kept := self._users.get(user.name):
            user = kept.user
        return await super().open_session(session_id, user, idle=idle, lasts=lasts)


class CountsLoginsAfterwards(Mutant):
    async def count_login(self, place: int, *, most: int, within: timedelta) -> datetime | None:
        number, since = self._logins.get(place, (0, self._clock.now()))
        await spend(0)
        if number >= most and self._clock.now() - since < within:
            return since + within
        self._logins[place] = number + 1, since
        return None


class NeverForgivesLogins(Mutant):
    async def forget_logins(self, place: int) -> None:
        pass


class RenewsAPasswordThatHasChanged(Mutant):
    async def renew_password(self, kept: KeptUser, password: str) -> None:
        self._users[kept.user.name] = msgspec.structs.replace(kept, password=password)


class GivesAUsersNameAgain(Mutant):
    async def add_user(
        self, name: str, grant: Grant, password: str, *, actor: Actor
    ) -> User | None:
        self._users.pop(name, None)
        return await super().add_user(name, grant, password, actor=actor)


class LetsSessionsLastWhileTheyAreSeen(Mutant):
    async def see_session(self, session_id: str) -> None:
        await super().see_session(session_id)
        if found := self._sessions.get(session_id):
            later = found.ends_at + found.idle
            self._sessions[session_id] = msgspec.structs.replace(found, ends_at=later)


class KeepsClosedSessions(Mutant):
    async def close_session(self, session_id: str) -> bool:
        found = self._sessions.get(session_id)
        done = await super().close_session(session_id)
        if found is not None:
            self._sessions[session_id] = found
        return done


class ActsForOtherTenants(Mutant):
    def _found(self, ids: Iterable[DeliveryId], scope: Scope = WHOLE_STORE) -> list[Row]:
        return super()._found(ids, Scope(destinations=scope.destinations))


class ActsAtOtherDestinations(Mutant):
    def _found(self, ids: Iterable[DeliveryId], scope: Scope = WHOLE_STORE) -> list[Row]:
        return super()._found(ids, Scope(tenant=scope.tenant))


class EditsForOtherTenants(Mutant):
    async def edit(self, delivery_id: DeliveryId, **given: Any) -> bool:  # noqa: ANN401 - as given
        return await super().edit(delivery_id, **{**given, "scope": WHOLE_STORE})


class ReplaysForOtherTenants(Mutant):
    async def replay(
        self,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        generation: str | None = None,
        scope: Scope = WHOLE_STORE,
    ) -> Sequence[DeliveryId]:
        return await super().replay(ids, actor=actor, generation=generation)


class ForgetsTheRuleOfADelivery(Mutant):
    def _insert(self, kept: Kept, *, now: datetime) -> None:
        names = tuple(one.partition("/")[0] for one in kept.destinations)
        super()._insert(replace_destinations(kept, names), now=now)


class GivesVersionsOfRulesAgain(Mutant):
    async def next_versions(self, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
        found = await super().next_versions(names)
        return {one: version if one in self._in_force else 1 for one, version in found.items()}


class KeepsOnlyTheLastVersionOfARule(Mutant):
    async def rule_versions(self, pins: Collection[str]) -> Sequence[Stored]:
        found = await super().rule_versions(pins)
        return [one for one in found if self._in_force.get(("rule", one.name)) == one]


class ChangesServicesWhateverThePast(Mutant):
    async def change_gateway(
        self, change: GatewayChange, *, revision: int, actor: Actor
    ) -> int | None:
        return await super().change_gateway(change, revision=self._gateway_revision, actor=actor)


class LetsServicesTakeNamesOfCode(Mutant):
    async def change_gateway(
        self, change: GatewayChange, *, revision: int, actor: Actor
    ) -> int | None:
        taken = {
            one.name: self._destinations.pop(one.name)
            for one in change.destinations
            if one.name in self._destinations and not self._destinations[one.name].service
        }
        for name in taken:
            self._standings.pop(name, None)
        return await super().change_gateway(change, revision=revision, actor=actor)


class DropsWhatWaitsForADeletedService(Mutant):
    def _remove_service(self, name: str, *, now: datetime) -> None:
        super()._remove_service(name, now=now)
        self._remove([row for row in self._rows.values() if row.destination == name], at=now)


class ReadsRulesOfEveryService(Mutant):
    async def gateway(self, services: Collection[str] | None = None) -> Gateway:
        every = await super().gateway()
        some = await super().gateway(services)
        return msgspec.structs.replace(some, rules=every.rules)


class ChangesServicesUnseen(Mutant):
    async def change_gateway(
        self, change: GatewayChange, *, revision: int, actor: Actor
    ) -> int | None:
        unsaid = msgspec.structs.replace(change, details=())
        return await super().change_gateway(unsaid, revision=revision, actor=actor)


class RendersWhatWaitsAgain(Mutant):
    async def render_again(
        self, ids: Sequence[DeliveryId], *, actor: Actor, scope: Scope = WHOLE_STORE
    ) -> Sequence[DeliveryId]:
        waiting = [self._rows[one] for one in ids if self._rows[one].status is Status.PENDING]
        for row in waiting:
            row.status = Status.FAILED
        changed = await super().render_again(ids, actor=actor, scope=scope)
        for row in waiting:
            row.status = Status.PENDING
        return changed


def replace_destinations(kept: Kept, names: tuple[str, ...]) -> Kept:
    return msgspec.structs.replace(kept, destinations=names)


class TakesOverAgain(Mutant):
    async def take_over(self, batch: Sequence[Tried]) -> int:
        for one in batch:
            position = self._positions.get(one.event.id)
            if position is not None:
                self._log[position] = msgspec.structs.replace(self._log[position], destinations=())
        return await super().take_over(batch)


class TakesOverWhatIsLeftOnce(Mutant):
    async def take_over(self, batch: Sequence[Tried]) -> int:
        return await super().take_over(
            [one for one in batch if one.event.id not in self._positions or not one.rest]
        )


class ForgetsTheTryOfWhatItTakesOver(Mutant):
    def _store_rest(self, position: int, rest: Rest, *, now: datetime) -> None:
        rest = msgspec.structs.replace(rest, attempts=0, attempt=None)
        super()._store_rest(position, rest, now=now)


class TakesOverDeadLettersAsWork(Mutant):
    def _store_rest(self, position: int, rest: Rest, *, now: datetime) -> None:
        rest = msgspec.structs.replace(rest, reason=None)
        super()._store_rest(position, rest, now=now)


class ForgetsWhereItHasArrived(Mutant):
    async def take_over(self, batch: Sequence[Tried]) -> int:
        return await super().take_over([msgspec.structs.replace(one, arrived=()) for one in batch])


class TakesOverWhatHasArrived(Mutant):
    async def take_over(self, batch: Sequence[Tried]) -> int:
        rests = [
            Tried(event=one.event, rest=tuple(Rest(destination=name) for name in one.arrived))
            for one in batch
        ]
        return await super().take_over([*batch, *rests]) - len(rests)


class AdmitsAtShutGates(Mutant):
    def _admit(self, name: str, wanted: int, now: datetime) -> Admission:
        return Admission(passes=wanted)


class AdmitsBeyondTheRate(Mutant):
    def _admit(self, name: str, wanted: int, now: datetime) -> Admission:
        before = self._gates.get(name)
        admission = super()._admit(name, wanted, now)
        if before is None:
            self._gates.pop(name, None)
        else:
            self._gates[name] = before
        return admission


class TellsOfNoPausedTenants(Mutant):
    async def admit(self, wanted: Mapping[str, int]) -> Admissions:
        return msgspec.structs.replace(await super().admit(wanted), paused=())


class CallsPastTheGate(Mutant):
    async def begin_call(
        self, destination: str, *, call: str, lease: timedelta, tenant: str | None = None
    ) -> Entrance:
        entrance = await super().begin_call(destination, call=call, lease=lease, tenant=tenant)
        return msgspec.structs.replace(entrance, hold=None)


class CountsNoCalls(Mutant):
    async def begin_call(
        self, destination: str, *, call: str, lease: timedelta, tenant: str | None = None
    ) -> Entrance:
        entrance = await super().begin_call(destination, call=call, lease=lease, tenant=tenant)
        gate = self._gates.get(destination, Gate())
        self._gates[destination] = msgspec.structs.replace(gate, calls=())
        return entrance


class CountsCallsForEver(Mutant):
    async def begin_call(
        self, destination: str, *, call: str, lease: timedelta, tenant: str | None = None
    ) -> Entrance:
        return await super().begin_call(
            destination, call=call, lease=timedelta(days=99), tenant=tenant
        )


class HearsOfNoEndOfCalls(Mutant):
    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        batch = [msgspec.structs.replace(one, call="", retries=0) for one in batch]
        return await super().report(batch, chance=chance)


class CallsForPausedTenants(Mutant):
    async def begin_call(
        self, destination: str, *, call: str, lease: timedelta, tenant: str | None = None
    ) -> Entrance:
        return await super().begin_call(destination, call=call, lease=lease)


class NeverGivesUpADestination(Mutant):
    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        reported = await super().report(batch, chance=chance)
        for name in reported.paused:
            if not any(one.pause for one in batch if one.destination == name):
                self._gates[name] = msgspec.structs.replace(self._gates[name], pause=None)
        return reported


class KeepsEveryRequest(Mutant):
    async def log_requests(self, batches: Mapping[str, RequestBatch]) -> None:
        await super().log_requests(
            {name: RequestBatch(one.requests, 10**6) for name, one in batches.items()}
        )


class ForgetsRequestsOfOthers(Mutant):
    async def log_requests(self, batches: Mapping[str, RequestBatch]) -> None:
        self._requests.clear()
        await super().log_requests(batches)


class KeepsAnswersOfErased(Mutant):
    def _erase_row(self, row: Row, *, blame: Blame, actor: Actor) -> None:
        answered, asked = row.exchange, row.addressees
        super()._erase_row(row, blame=blame, actor=actor)
        row.exchange, row.addressees = answered, asked


class KeepsEditsOfErased(Mutant):
    def _erase_row(self, row: Row, *, blame: Blame, actor: Actor) -> None:
        payload = row.payload
        super()._erase_row(row, blame=blame, actor=actor)
        row.payload = payload


class LeavesErasedLettersToBeReplayed(Mutant):
    def _erase_row(self, row: Row, *, blame: Blame, actor: Actor) -> None:
        super()._erase_row(row, blame=blame, actor=actor)
        row.resolution = None


class ErasesWhatIsUnderWay(Mutant):
    def _is_waited_for(self, place: int, terms: ErasureTerms) -> bool:
        return False


class ErasesUnreadEvents(Mutant):
    def _is_unread(self, place: int) -> bool:
        return False


class ForgetsPublishersOfErased(Mutant):
    def _erase_event(self, place: int, kept: Kept, terms: ErasureTerms) -> None:
        everything = ErasureTerms(parts=(*terms.parts, ErasurePart.IDEMPOTENCY_KEY))
        super()._erase_event(place, kept, everything)


class ErasesBeyondTheScope(Mutant):
    async def erase(
        self,
        positions: Sequence[int],
        *,
        terms: ErasureTerms,
        by: str,
        blame: Blame,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> ErasedBatch:
        return await super().erase(positions, terms=terms, by=by, blame=blame, actor=actor)


class AuditsWhatIsErased(Mutant):
    async def erase(
        self,
        positions: Sequence[int],
        *,
        terms: ErasureTerms,
        by: str,
        blame: Blame,
        actor: Actor,
        scope: Scope = WHOLE_STORE,
    ) -> ErasedBatch:
        key = self._log[positions[0]].event.key if positions else ""
        return await super().erase(
            positions, terms=terms, by=f"{by} {key}", blame=blame, actor=actor, scope=scope
        )


class ForgetsErasedKeysTooEarly(Mutant):
    def _forget_key(self, key: str) -> None:
        self._versions.pop(key, None)


class LogsRequestsOfErased(Mutant):
    def _as_kept(self, request: LoggedRequest) -> LoggedRequest:
        return request


class RemembersWhatReplaysWereFor(Mutant):
    def _erase_replays(self, traces: Traces) -> None:
        pass


MUTANTS = Mutant.__subclasses__()
