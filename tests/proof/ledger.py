"""What a store must do, in plain Python: a few dozen lines of state, and no database.

The model says what every call must change. Where a store may choose, as among the deliveries that
may start, it checks the choice and then follows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from redrive.model.delivery import SUSPECT_AFTER, Delivery, Kind, Leased, Status
from redrive.model.destination import Order
from redrive.model.retention import Retention
from redrive.model.settlement import (
    Delivered,
    Failed,
    FailureReason,
    Requeued,
    RetryAt,
    Settlement,
    Snoozed,
)
from redrive.store import Claim, ClaimRequest, Pruned

__all__ = ["ORDERS", "TURN", "Journey", "Ledger", "Story"]

ORDERS = {"free": Order.NONE, "parks": Order.PARK, "blocks": Order.BLOCK, "skips": Order.SKIP}
"""The destinations of the model, by how they keep order."""

TURN = 3
"""How many of one tenant may go before the others, by default."""


@dataclass(slots=True)
class Story:
    """An event: what it was told as, and since when nothing of it is left."""

    id: str
    key: str | None
    tenant: str | None
    body: int
    identity: tuple[str, str] | None
    destinations: tuple[str, ...]
    idle_since: datetime | None = None


@dataclass(slots=True)
class Journey:
    """A delivery. `id` is the store's, learned when it is first seen."""

    story: Story
    destination: str
    enqueued_at: datetime
    due: datetime
    generation: str
    priority: int
    deadline: datetime | None
    id: int = 0
    status: Status = Status.PENDING
    kind: Kind = Kind.FIRST
    attempts: int = 0
    snoozes: int = 0
    crashes: int = 0
    token: int = 0
    worker: str | None = None
    lease_until: datetime | None = None
    is_alone: bool = False
    settled_at: datetime | None = None
    reason: FailureReason | None = None
    fault: str | None = None
    first_failed_at: datetime | None = None
    last_failed_at: datetime | None = None
    resolved_at: datetime | None = None
    cycles: list[FailureReason] = field(default_factory=list)
    was_passed_by: bool = False

    @property
    def is_dead_letter(self) -> bool:
        return self.status is Status.FAILED and self.resolved_at is None

    @property
    def finished_at(self) -> datetime:
        at = self.resolved_at or self.settled_at
        assert at is not None
        return at

    @property
    def is_suspect(self) -> bool:
        return self.crashes >= SUSPECT_AFTER

    def land(self, status: Status) -> None:
        self.status = status
        self.worker = self.lease_until = None
        self.is_alone = False

    def hurt(self, fault: str, *, now: datetime) -> None:
        self.fault = fault
        self.first_failed_at = self.first_failed_at or now
        self.last_failed_at = now

    def fail(self, reason: FailureReason, fault: str, *, now: datetime) -> None:
        self.land(Status.FAILED)
        self.reason, self.settled_at = reason, now
        self.hurt(fault, now=now)
        self.was_passed_by = ORDERS[self.destination] is Order.SKIP

    def again(self, generation: str | None, *, now: datetime) -> None:
        assert self.reason is not None
        self.cycles.append(self.reason)
        self.status, self.kind, self.due = Status.PENDING, Kind.REPLAY, now
        self.generation = generation or self.generation
        self.attempts = self.snoozes = self.crashes = 0
        self.settled_at = self.first_failed_at = self.last_failed_at = None
        self.reason = self.fault = None
        self.was_passed_by = False
        if self.deadline is not None and self.deadline <= now:
            self.deadline = None

    def view(self, behind: int | None) -> dict[str, Any]:
        """Return all that a reader of the store must see of it."""
        return {
            "event": self.story.id,
            "destination": self.destination,
            "key": self.story.key,
            "tenant": self.story.tenant,
            "status": self.status,
            "due": self.due,
            "enqueued_at": self.enqueued_at,
            "generation": self.generation,
            "attempts": self.attempts,
            "priority": self.priority,
            "deadline": self.deadline,
            "kind": self.kind,
            "snoozes": self.snoozes,
            "crashes": self.crashes,
            "worker": self.worker,
            "lease_until": self.lease_until,
            "settled_at": self.settled_at,
            "reason": self.reason,
            "fault": self.fault,
            "first_failed_at": self.first_failed_at,
            "last_failed_at": self.last_failed_at,
            "resolved_at": self.resolved_at,
            "cycles": self.cycles,
            "behind": behind,
        }


def view_of(one: Delivery) -> dict[str, Any]:
    """Return of a store's answer what the model knows as well."""
    return {
        "event": one.event_id,
        "destination": one.destination,
        "key": one.key,
        "tenant": one.tenant,
        "status": one.status,
        "due": one.due,
        "enqueued_at": one.enqueued_at,
        "generation": one.generation,
        "attempts": one.attempts,
        "priority": one.priority,
        "deadline": one.deadline,
        "kind": one.kind,
        "snoozes": one.snoozes,
        "crashes": one.crashes,
        "worker": one.worker,
        "lease_until": one.lease_until,
        "settled_at": one.settled_at,
        "reason": one.reason,
        "fault": one.fault and one.fault.message,
        "first_failed_at": one.first_failed_at,
        "last_failed_at": one.last_failed_at,
        "resolved_at": one.resolution and one.resolution.at,
        "cycles": [cycle.reason for cycle in one.cycles],
        "behind": one.behind,
    }


class Ledger:
    """All stories and journeys, and the figures that count them."""

    def __init__(self) -> None:
        self.stories: dict[str, Story] = {}
        self.identities: dict[tuple[str, str], Story] = {}
        self.outlived: dict[tuple[str, str], datetime] = {}
        self.journeys: dict[int, Journey] = {}
        self.paused: set[str] = set()
        self.paused_tenants: set[tuple[str, str | None]] = set()
        self.refused = 0
        self.deleted = 0
        self.exported = 0
        self.acts = 0
        self.pruned: Counter[str] = Counter()
        self.pruned_resolved = 0
        self.pruned_events = 0
        self.versions: Counter[str] = Counter()

    def next_version(self, key: str | None) -> int | None:
        """Count one more event of a key, and return its version."""
        if key is None:
            return None
        self.versions[key] += 1
        return self.versions[key]

    def found(self, ids: Iterable[int]) -> list[Journey]:
        return [self.journeys[one] for one in dict.fromkeys(ids) if one in self.journeys]

    def acted(self, changed: Sequence[object]) -> None:
        """Count an act that a person is named for."""
        self.acts += bool(changed)

    def current(self, delivery_id: int, token: int, *, now: datetime) -> Journey | None:
        """Return the journey whose lease this is, if it is one that counts."""
        one = self.journeys.get(delivery_id)
        if one is None or one.token != token or one.status is not Status.IN_FLIGHT:
            return None
        assert one.lease_until is not None
        return one if one.lease_until > now else None

    def overdue(self, now: datetime) -> list[Journey]:
        return [
            one
            for one in self.journeys.values()
            if one.lease_until is not None and one.lease_until <= now
        ]

    def lane(self, one: Journey) -> tuple[str, str] | None:
        key, order = one.story.key, ORDERS[one.destination]
        if key is None or order is Order.NONE or one.was_passed_by:
            return None
        return one.destination, key

    def heads(self) -> dict[tuple[str, str], int]:
        """Return who goes first in each lane: what flies, else the earliest that is not over."""
        heads: dict[tuple[str, str], int] = {}
        flying: dict[tuple[str, str], int] = {}
        for one in sorted(self.journeys.values(), key=lambda one: one.id):
            lane = self.lane(one)
            if lane is None or one.status is Status.DELIVERED or one.resolved_at is not None:
                continue
            heads.setdefault(lane, one.id)
            if one.status is Status.IN_FLIGHT:
                assert lane not in flying, "two of one lane are in flight"
                flying[lane] = one.id
        return heads | flying

    def behind(self, one: Journey, heads: dict[tuple[str, str], int]) -> int | None:
        lane = self.lane(one)
        if lane is None or one.status is not Status.PENDING or heads[lane] == one.id:
            return None
        return heads[lane]

    def views(self) -> dict[int, dict[str, Any]]:
        heads = self.heads()
        return {one.id: one.view(self.behind(one, heads)) for one in self.journeys.values()}

    def count(self, destination: str, *, now: datetime) -> dict[str, int]:
        """Return the figures of a destination, by the names that a store gives them."""
        own = [one for one in self.journeys.values() if one.destination == destination]
        heads = self.heads()
        pending = [one for one in own if one.status is Status.PENDING]
        behind = [one.id for one in pending if self.behind(one, heads) is not None]
        waiting = [one for one in pending if one.due > now]
        return {
            "pending": len(pending),
            "waiting": len(waiting),
            "retrying": sum(one.kind is Kind.RETRY for one in waiting),
            "behind": len(behind),
            "due": sum(one.due <= now and one.id not in behind for one in pending),
            "in_flight": sum(one.status is Status.IN_FLIGHT for one in own),
            "delivered": sum(one.status is Status.DELIVERED for one in own),
            "failed": sum(one.is_dead_letter for one in own),
            "resolved": sum(one.resolved_at is not None for one in own),
            "pruned": self.pruned[destination],
        }

    def settle(self, one: Journey, settlement: Settlement, *, now: datetime) -> None:
        match settlement:
            case Delivered():
                one.land(Status.DELIVERED)
                one.settled_at = now
            case RetryAt(when=when, fault=fault, spends=spends):
                one.land(Status.PENDING)
                one.attempts -= not spends
                one.kind, one.due = Kind.RETRY, when
                one.hurt(fault.message, now=now)
            case Snoozed(until=until):
                one.land(Status.PENDING)
                one.attempts -= 1
                one.snoozes += 1
                one.due = until
            case Failed(reason=reason, fault=fault):
                one.fail(reason, fault.message, now=now)

    def release(self, one: Journey, *, now: datetime) -> None:
        one.land(Status.PENDING)
        one.attempts -= 1
        one.due = min(one.due, now)

    def rescue(self, one: Journey, recovery: Requeued | Failed, *, now: datetime) -> None:
        one.attempts -= 1
        if isinstance(recovery, Failed):
            one.fail(recovery.reason, recovery.fault.message, now=now)
            one.crashes += 1
        else:
            one.land(Status.PENDING)
            one.due, one.crashes = recovery.when, recovery.crashes

    def remove(self, journeys: Iterable[Journey], *, at: datetime | None = None) -> None:
        for one in journeys:
            del self.journeys[one.id]
            since = at or one.finished_at
            one.story.idle_since = max(since, one.story.idle_since or since)

    def prune(self, retention: Retention, *, now: datetime) -> Pruned:
        """Let go of what was kept long enough, and count it."""
        everything = list(self.journeys.values())
        delivered = [
            one
            for one in everything
            if one.status is Status.DELIVERED and one.finished_at <= now - retention.delivered
        ]
        resolved = [
            one
            for one in everything
            if one.resolved_at is not None and one.resolved_at <= now - retention.events
        ]
        self.pruned.update(one.destination for one in delivered)
        self.pruned_resolved += len(resolved)
        self.remove([*delivered, *resolved])
        keys = 0
        with_journeys = {one.story.id for one in self.journeys.values()}
        gone = [
            story
            for story in self.stories.values()
            if story.id not in with_journeys
            and story.idle_since is not None
            and story.idle_since <= now - retention.events
        ]
        for story in gone:
            del self.stories[story.id]
            if story.identity is not None:
                assert story.idle_since is not None
                self.outlived[story.identity] = story.idle_since
        self.pruned_events += len(gone)
        for identity, since in list(self.outlived.items()):
            if since <= now - retention.idempotency:
                del self.outlived[identity], self.identities[identity]
                keys += 1
        return Pruned(delivered=len(delivered), resolved=len(resolved), events=len(gone), keys=keys)

    def reachable(self, request: ClaimRequest) -> list[Journey]:
        """Return what a claim could lease, now or when its time has come."""
        heads = self.heads()
        asked = [allowed.destination for allowed in request.allowances]
        return [
            one
            for one in self.journeys.values()
            if one.status is Status.PENDING
            and one.generation in request.generations
            and one.destination in asked
            and self.behind(one, heads) is None
        ]

    def is_held(self, one: Journey) -> bool:
        """Tell whether a person, or a dead letter that blocks, is in the way."""
        tenant = one.story.tenant or ""
        return (
            one.destination in self.paused
            or (tenant, one.destination) in self.paused_tenants
            or (tenant, None) in self.paused_tenants
            or self.is_blocked(one.destination)
        )

    def is_blocked(self, destination: str) -> bool:
        return ORDERS[destination] is Order.BLOCK and any(
            one.is_dead_letter and one.destination == destination and one.story.key is not None
            for one in self.journeys.values()
        )

    def follow(self, request: ClaimRequest, claim: Claim) -> None:
        """Check that a claim is right, and note its leases."""
        now = claim.now
        reachable = self.reachable(request)
        ready = [
            one
            for one in reachable
            if one.due <= now
            and (one.deadline is None or one.deadline > now)
            and not self.is_held(one)
        ]
        later = [one.due for one in reachable if one.due > now]
        allowances = {one.destination: one for one in request.allowances}
        suspects = [
            one for one in ready if one.is_suspect and allowances[one.destination].total > 0
        ]
        leased = [self.journeys[one.lease.delivery_id] for one in claim.deliveries]
        assert len(set(map(id, leased))) == len(leased), "leased twice"
        assert [one.id for one in leased if one not in ready] == [], "leased what may not start"
        if request.alone:
            first = sorted(suspects, key=_precedence)[:1]
            assert leased == first, "alone: the first of the suspects, and nothing else"
        else:
            company = [one for one in ready if not one.is_suspect]
            left = request.limit
            for allowance in request.allowances:
                got = [one for one in leased if one.destination == allowance.destination]
                here = [one for one in company if one.destination == allowance.destination]
                room = min(allowance.total, left)
                self._check_share(got, here, room)
                left -= len(got)
        assert claim.next_due == min(later, default=None)
        assert claim.suspects == len(suspects) - (len(leased) if request.alone else 0)
        for journey, one in zip(leased, claim.deliveries, strict=True):
            self._lease(journey, one, request, now=now)

    def _check_share(self, got: list[Journey], here: list[Journey], room: int) -> None:
        assert len(got) == min(max(room, 0), len(here)), "less than what may start, or more"
        for tenant in sorted({one.story.tenant or "" for one in got}):
            for kind in Kind:
                line = sorted((one for one in here if _is_of(one, tenant, kind)), key=_precedence)
                mine = [one for one in got if _is_of(one, tenant, kind)]
                assert mine == line[: len(mine)], "not by priority and age"
        served = Counter(one.story.tenant or "" for one in got)
        waiting = sorted({one.story.tenant or "" for one in here} - set(served))
        if waiting:
            assert max(served.values(), default=0) <= TURN, f"{waiting[0]} had no turn"

    def _lease(
        self, journey: Journey, leased: Leased, request: ClaimRequest, *, now: datetime
    ) -> None:
        assert leased.lease.token > journey.token, "the token did not grow"
        journey.status, journey.worker = Status.IN_FLIGHT, request.worker
        journey.token, journey.attempts = leased.lease.token, journey.attempts + 1
        journey.lease_until, journey.is_alone = now + request.lease, request.alone
        seen = (leased.event.id, leased.destination, leased.attempt, leased.kind, leased.snoozes)
        expected = (
            *(journey.story.id, journey.destination, journey.attempts),
            *(journey.kind, journey.snoozes),
        )
        assert seen == expected
        assert bytes(leased.event.payload) == str(journey.story.body).encode()
        assert (leased.crashes, leased.is_alone) == (journey.crashes, request.alone)


def _precedence(one: Journey) -> tuple[int, int]:
    return -one.priority, one.id


def _is_of(one: Journey, tenant: str, kind: Kind) -> bool:
    return (one.story.tenant or "") == tenant and one.kind is kind
