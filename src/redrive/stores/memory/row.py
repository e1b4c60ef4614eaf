"""One delivery as the memory store keeps it, and the steps of its life."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from redrive.model.delivery import (
    SUSPECT_AFTER,
    Attempt,
    Cycle,
    Delivery,
    DeliveryId,
    Kind,
    Lease,
    Leased,
    Resolution,
    Status,
)
from redrive.model.edit import Edit
from redrive.model.event import Event
from redrive.model.outcome import Addressees, Exchange, Fault
from redrive.model.recipient import recipient
from redrive.model.replay import ReplayState
from redrive.model.settlement import FailureReason, Requeued
from redrive.store import Replay
from redrive.stores.codec import carrying

__all__ = ["Record", "Row"]


@dataclass(slots=True, kw_only=True)
class Record:
    """A replay that changes in place, and the letters left of it with the tokens they had."""

    replay: Replay
    items: dict[DeliveryId, int]

    def was_over(self, by: datetime) -> bool:
        """Tell whether it had ended by an instant."""
        is_over = self.replay.state not in (ReplayState.RUNNING, ReplayState.PAUSED)
        return is_over and self.replay.changed_at <= by

    def count(self, *, delivered: int = 0, failed: int = 0) -> None:
        """Count what became of letters it has sent."""
        self.replay = msgspec.structs.replace(
            self.replay,
            delivered=self.replay.delivered + delivered,
            failed=self.replay.failed + failed,
        )


@dataclass(slots=True, kw_only=True)
class Row:
    """A delivery that changes in place."""

    id: DeliveryId
    event: Event[msgspec.Raw]
    destination: str
    enqueued_at: datetime
    due: datetime
    generation: str
    priority: int
    deadline: datetime | None
    status: Status = Status.PENDING
    kind: Kind = Kind.FIRST
    attempts: int = 0
    snoozes: int = 0
    crashes: int = 0
    last_crash_at: datetime | None = None
    token: int = 0
    worker: str | None = None
    lease_until: datetime | None = None
    is_alone: bool = False
    breaker_generation: int = 0
    settled_at: datetime | None = None
    reason: FailureReason | None = None
    fault: Fault | None = None
    first_failed_at: datetime | None = None
    last_failed_at: datetime | None = None
    resolution: Resolution | None = None
    was_passed_by: bool = False
    log: tuple[Attempt, ...] = ()
    cycles: tuple[Cycle, ...] = ()
    exchange: Exchange | None = None
    addressees: Addressees | None = None
    payload: msgspec.Raw | None = None
    edits: tuple[Edit, ...] = ()
    sender: Record | None = None
    auto_replays: int = 0
    rule: str = ""

    @property
    def recipient(self) -> str:
        return recipient(self.destination, self.rule)

    @property
    def is_suspect(self) -> bool:
        return self.crashes >= SUSPECT_AFTER

    @property
    def is_dead_letter(self) -> bool:
        return self.status is Status.FAILED and self.resolution is None

    @property
    def group(self) -> str | None:
        if self.status is not Status.FAILED or self.fault is None:
            return None
        return self.fault.group or None

    @property
    def blocks_its_lane(self) -> bool:
        return self.status in (Status.PENDING, Status.IN_FLIGHT) or self.is_dead_letter

    @property
    def carried(self) -> Event[msgspec.Raw]:
        """The event as a transport gets it: with the payload a person gave this delivery."""
        return carrying(self.event, None if self.payload is None else bytes(self.payload))

    @property
    def changed_at(self) -> datetime:
        """When it was settled, or, until then, when it was enqueued."""
        return self.settled_at or self.enqueued_at

    @property
    def finished_at(self) -> datetime:
        """When it was resolved or, without that, settled."""
        return self.changed_at if self.resolution is None else self.resolution.at

    def is_due(self, now: datetime) -> bool:
        return self.due <= now

    def is_past_deadline(self, now: datetime) -> bool:
        return self.deadline is not None and self.deadline <= now

    def is_leased(self, now: datetime) -> bool:
        return self.lease_until is not None and self.lease_until > now

    def lease(
        self,
        worker: str,
        span: timedelta,
        *,
        alone: bool,
        now: datetime,
        breaker_generation: int = 0,
    ) -> Leased:
        self.status = Status.IN_FLIGHT
        self.token += 1
        self.attempts += 1
        self.worker = worker
        self.lease_until = now + span
        self.is_alone = alone
        self.breaker_generation = breaker_generation
        return Leased(
            lease=Lease(self.id, self.token),
            destination=self.destination,
            event=self.carried,
            attempt=self.attempts,
            kind=self.kind,
            claimed_at=now,
            enqueued_at=self.enqueued_at,
            snoozes=self.snoozes,
            crashes=self.crashes,
            last_crash_at=self.last_crash_at,
            is_alone=alone,
            breaker_generation=breaker_generation,
            cycles=len(self.cycles),
            deadline=self.deadline,
            rule=self.rule,
        )

    def deliver(self, *, now: datetime) -> None:
        self._leave_flight(Status.DELIVERED)
        self.settled_at = now
        if self.sender is not None:
            self.sender.count(delivered=1)

    def retry(self, when: datetime, fault: Fault, *, spends: bool, now: datetime) -> None:
        self._leave_flight(Status.PENDING)
        self.attempts -= not spends
        self.kind = Kind.RETRY
        self.due = when
        self._note_failure(fault, now=now)

    def snooze(self, until: datetime) -> None:
        self._leave_flight(Status.PENDING)
        self.attempts -= 1
        self.snoozes += 1
        self.due = until

    def fail(self, reason: FailureReason, fault: Fault, *, now: datetime) -> None:
        self._leave_flight(Status.FAILED)
        self.reason = reason
        self.settled_at = now
        self._note_failure(fault, now=now)
        if self.sender is not None:
            self.sender.count(failed=1)

    def release(self, *, now: datetime) -> None:
        self._leave_flight(Status.PENDING)
        self.attempts -= 1
        self.due = min(self.due, now)

    def requeue(self, requeued: Requeued) -> None:
        self._leave_flight(Status.PENDING)
        self.attempts -= 1
        self.due = requeued.when
        self.crashes = requeued.crashes
        self.last_crash_at = requeued.last_crash_at

    def give_up(self) -> None:
        """Tell the replay that sent it, if it goes before it was settled."""
        if self.sender is not None and self.status in (Status.PENDING, Status.IN_FLIGHT):
            self.sender.count(failed=1)

    def condemn(self, reason: FailureReason, fault: Fault, *, now: datetime) -> None:
        self.fail(reason, fault, now=now)
        self.attempts -= 1
        self.crashes += 1
        self.last_crash_at = now

    def replay(
        self, generation: str | None, *, now: datetime, sender: Record | None = None
    ) -> None:
        self.status = Status.PENDING
        self.was_passed_by = False
        self.sender = sender
        self.auto_replays += sender is not None and sender.replay.is_automatic
        self.kind = Kind.REPLAY
        self.due = now
        self.generation = generation or self.generation
        self.attempts = self.snoozes = self.crashes = 0
        self.settled_at = self.first_failed_at = self.last_failed_at = self.last_crash_at = None
        self.reason = self.fault = self.exchange = None
        self.log = ()
        # It has had its deadline: left in place, it would end the new cycle before it begins.
        if self.is_past_deadline(now):
            self.deadline = None

    def cycle(self, by: str, *, now: datetime) -> Cycle:
        """Return what failed, as the history keeps it."""
        if self.reason is None or self.fault is None or self.settled_at is None:
            raise AssertionError(f"Delivery {self.id} has not failed, so it has no cycle to keep.")
        return Cycle(
            attempts=self.attempts,
            reason=self.reason,
            fault=self.fault,
            failed_at=self.settled_at,
            generation=self.generation,
            replayed_at=now,
            replayed_by=by,
            first_failed_at=self.first_failed_at,
            log=self.log,
        )

    def delivery(self, behind: DeliveryId | None) -> Delivery:
        """Return the row as others may see it."""
        return Delivery(
            id=self.id,
            event_id=self.event.id,
            event_type=self.event.type,
            destination=self.destination,
            status=self.status,
            due=self.due,
            enqueued_at=self.enqueued_at,
            generation=self.generation,
            attempts=self.attempts,
            key=self.event.key,
            tenant=self.event.tenant,
            source=self.event.source,
            priority=self.priority,
            deadline=self.deadline,
            kind=self.kind,
            snoozes=self.snoozes,
            crashes=self.crashes,
            worker=self.worker,
            lease_until=self.lease_until,
            settled_at=self.settled_at,
            reason=self.reason,
            fault=self.fault,
            first_failed_at=self.first_failed_at,
            last_failed_at=self.last_failed_at,
            resolution=self.resolution,
            behind=behind,
            log=self.log,
            cycles=self.cycles,
            payload=self.payload,
            edits=self.edits,
            replay=None if self.sender is None else self.sender.replay.id,
            auto_replays=self.auto_replays,
            rule=self.rule,
        )

    def _leave_flight(self, status: Status) -> None:
        self.status = status
        self.worker = self.lease_until = None
        self.is_alone = False

    def _note_failure(self, fault: Fault, *, now: datetime) -> None:
        self.fault = fault
        self.first_failed_at = self.first_failed_at or now
        self.last_failed_at = now
