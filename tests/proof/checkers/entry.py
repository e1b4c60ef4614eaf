"""One delivery as it must be, and how each step of the store changes it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from redrive.model.delivery import DeliveryId, Kind, Lease, Status
from redrive.model.event import Event
from redrive.model.settlement import Delivered, Failed, Requeued, RetryAt, Snoozed
from tests.proof.checkers.records import Call

__all__ = ["Entry", "Step", "begin", "begin_cycle", "end", "move"]


@dataclass(slots=True, kw_only=True)
class Entry:
    """One delivery. `spent` are its tries of this cycle that count.

    `been` are the destinations it was moved from; `spent_elsewhere` is what it had spent by then.
    """

    id: DeliveryId
    event: Event[msgspec.Raw]
    destination: str
    rule: str = ""
    """The version of a rule that is pinned to it."""
    due: datetime
    deadline: datetime | None
    generation: str
    payload: bytes
    status: Status = Status.PENDING
    kind: Kind = Kind.FIRST
    token: int = 0
    worker: str = ""
    lease_until: datetime | None = None
    is_alone: bool = False
    breaker_generation: int = 0
    is_probe: bool = False
    spent: int = 0
    snoozes: int = 0
    crashes: int = 0
    cycle: int = 0
    been: tuple[str, ...] = ()
    spent_elsewhere: int = 0
    is_resolved: bool = False
    was_passed_by: bool = False
    """Whether it failed where order goes on without it; then it holds nothing up."""
    failed_at: float = 0.0
    """The true time at which it failed last."""
    removed: str = ""

    given_as: str = ""
    """The recipient it was made for."""

    @property
    def tenant(self) -> str:
        return self.event.tenant or ""

    @property
    def is_waiting(self) -> bool:
        return self.status is Status.PENDING and not self.removed

    @property
    def is_dead_letter(self) -> bool:
        return self.status is Status.FAILED and not self.is_resolved and not self.removed

    def is_leased(self, now: datetime) -> bool:
        """Tell whether somebody holds it by a lease that has not run out."""
        return (
            self.status is Status.IN_FLIGHT
            and self.lease_until is not None
            and self.lease_until > now
        )

    def __str__(self) -> str:
        return f"delivery {self.id} to {self.destination}"


class Step(NamedTuple):
    """One thing the store did, mostly to one delivery; `how` is what it did with it.

    `detail` is what it was given for that: a `Leased`, a `Settlement`, a `Lease`, a `Recovery`.
    """

    how: str
    call: Call
    entry: Entry | None = None
    lease: Lease | None = None
    detail: Any = None


def begin(entry: Entry, step: Step, now: datetime) -> None:
    """Follow a claim."""
    leased, request = step.detail, step.call.given["request"]
    entry.status = Status.IN_FLIGHT
    entry.token = leased.lease.token
    entry.worker = request.worker
    entry.lease_until = now + request.lease
    entry.is_alone = leased.is_alone
    entry.breaker_generation = leased.breaker_generation
    entry.is_probe = leased.is_probe and not leased.is_known


def end(entry: Entry, step: Step, now: datetime) -> None:
    """Follow what ends a lease."""
    entry.lease_until, entry.is_alone = None, False
    match step.detail:
        case None:
            entry.status, entry.due = Status.PENDING, min(entry.due, now)
        case Delivered():
            entry.status = Status.DELIVERED
            entry.spent += 1
        case RetryAt(when=when, spends=spends):
            entry.status, entry.due, entry.kind = Status.PENDING, when, Kind.RETRY
            entry.spent += spends
        case Snoozed(until=until):
            entry.status, entry.due = Status.PENDING, until
            entry.snoozes += 1
        case Failed():
            entry.status = Status.FAILED
            entry.spent += step.how == "settled"
            entry.crashes += step.how == "rescued"
        case Requeued(when=when, crashes=crashes):
            entry.status, entry.due, entry.crashes = Status.PENDING, when, crashes
        case _:
            raise AssertionError(f"{step.detail!r} ends no lease")


def begin_cycle(entry: Entry, generation: str | None, now: datetime) -> None:
    """Follow a replay."""
    entry.status, entry.kind, entry.due = Status.PENDING, Kind.REPLAY, now
    entry.generation = generation or entry.generation
    entry.cycle += 1
    entry.was_passed_by = False
    entry.spent = entry.snoozes = entry.crashes = entry.spent_elsewhere = 0
    if entry.deadline is not None and entry.deadline <= now:
        entry.deadline = None


def move(entry: Entry, target: str) -> None:
    """Follow a move to another destination."""
    entry.been = (*entry.been, entry.destination)
    entry.destination = target
    entry.spent_elsewhere = entry.spent
    entry.was_passed_by = False
