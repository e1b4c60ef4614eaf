"""I6: tries are counted, and bounded; waiting and crashing spend none; no innocent is condemned."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from redrive.model.delivery import SUSPECT_AFTER, Lease, Leased
from redrive.model.gate import Closed
from redrive.model.settlement import (
    Delivered,
    Failed,
    FailureReason,
    Requeued,
    RetryAt,
    Snoozed,
)
from redrive.store import FORGOTTEN_AFTER
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Entry, Ledger, Step
from tests.proof.checkers.records import Begun, Born, Died, Ended, Record, Silenced

__all__ = ["AttemptsBounded", "CrashesCounted", "SettledAsAnswered"]


class AttemptsBounded(Check):
    """A claim is numbered by the tries that counted, and there are at most `max_attempts`."""

    name = "I6 attempts bounded"

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        entry = step.entry
        if step.how != "claimed" or entry is None:
            return
        leased: Leased = step.detail
        if leased.attempt != entry.spent + 1:
            yield (
                f"{entry} was claimed as try {leased.attempt} of its cycle, and {entry.spent} "
                "were spent before it"
            )
        most = ledger.promises[entry.destination].max_attempts
        # Whatever it has spent elsewhere, where it was moved to it is tried once.
        if leased.attempt > max(most, entry.spent_elsewhere + 1):
            yield f"{entry} was claimed for try {leased.attempt} of {most}"


class SettledAsAnswered(Check):
    """What is accepted fits what the destination answered; without an answer it is not delivered.

    A terminal answer stops at once, a transient one only after the last try. A failed probe spends
    no attempt, and neither does a call during which the breaker changed; all others do.
    """

    name = "I6 settled as answered"

    def __init__(self) -> None:
        self._begun: dict[Lease, None] = {}
        self._answers: dict[Lease, str] = {}

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, Begun):
            self._begun[record.leased.lease] = None
        elif isinstance(record, Ended):
            self._answers.setdefault(record.lease, record.outcome)
        yield from ()

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        entry, lease = step.entry, step.lease
        if step.how != "settled" or entry is None or lease is None:
            return
        answer = self._answers.get(lease, "none")
        if lease not in self._begun:
            yield f"{entry} was settled as {_word(step.detail)} and never sent"
        elif not _fits(answer, step.detail, entry, ledger):
            yield f"{entry} was settled as {_word(step.detail)} after the answer: {answer}"


def _fits(answer: str, settlement: object, entry: Entry, ledger: Ledger) -> bool:
    is_last = entry.spent + 1 >= ledger.promises[entry.destination].max_attempts
    reason = settlement.reason if isinstance(settlement, Failed) else None
    match answer:
        case "succeeded":
            return isinstance(settlement, Delivered)
        case "terminal":
            return reason is FailureReason.TERMINAL
        case "cancel":
            return reason is FailureReason.CANCELLED
        case "throttled" | "snooze":
            given_up = reason in (FailureReason.EXHAUSTED, FailureReason.EXPIRED)
            return isinstance(settlement, Snoozed) or given_up
        case _:  # transient, or none within the time-out
            return _fits_failure(settlement, reason, entry, ledger, is_last=is_last)


def _fits_failure(
    settlement: object,
    reason: FailureReason | None,
    entry: Entry,
    ledger: Ledger,
    *,
    is_last: bool,
) -> bool:
    if reason is FailureReason.EXPIRED:
        return entry.deadline is not None
    if isinstance(settlement, RetryAt) and not settlement.spends:
        state = ledger.breaker(entry.destination)
        is_up = isinstance(state, Closed) and state.generation == entry.breaker_generation
        return entry.is_probe or not is_up
    if entry.is_probe:
        return False
    return reason is FailureReason.EXHAUSTED if is_last else isinstance(settlement, RetryAt)


def _word(settlement: object) -> str:
    reason = f" ({settlement.reason})" if isinstance(settlement, Failed) else ""
    if isinstance(settlement, RetryAt) and not settlement.spends:
        reason = " without spending it"
    return type(settlement).__name__ + reason


class CrashesCounted(Check):
    """A crash is counted, and only a crash; suspects run alone, and only so are condemned.

    Whatever has silenced a worker, it is blamed only after a lease in which the store has not heard
    of it, and never after it retired.
    """

    name = "I6 crashes counted"

    def __init__(self) -> None:
        self._machines: dict[str, str] = {}
        self._dead: dict[str, None] = {}
        self._silenced: dict[str, None] = {}
        self._seen: dict[str, datetime] = {}
        self._leases: dict[str, timedelta] = {}
        self._retired: dict[str, datetime] = {}
        self._forgotten: dict[str, None] = {}

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        match record:
            case Born(worker=worker, machine=machine):
                self._machines[worker] = machine
            case Died(machine=machine):
                self._mark(self._dead, machine)
            case Silenced(machine=machine):
                self._mark(self._silenced, machine)
            case _:
                pass
        yield from ()

    def _mark(self, marks: dict[str, None], machine: str) -> None:
        for worker, home in self._machines.items():
            if home == machine:
                marks[worker] = None

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        entry, given = step.entry, step.call.given
        match step.how:
            case "claimed" if entry is not None:
                leased: Leased = step.detail
                self._hear(given["request"].worker, given["request"].lease, step)
                is_suspect = entry.crashes >= SUSPECT_AFTER
                if is_suspect and not leased.is_alone:
                    yield f"{entry} was claimed in company after {entry.crashes} crashes"
            case "heartbeat":
                self._hear(given["worker"], given["lease"], step)
                for worker, seen_at in self._seen.items():
                    if seen_at < step.call.now - FORGOTTEN_AFTER:
                        self._forgotten[worker] = None
            case "retire":
                self._retired[given["worker"]] = step.call.now
            case "rescued" if entry is not None:
                yield from self._judge(entry, step)
            case _:
                pass

    def _hear(self, worker: str, lease: timedelta, step: Step) -> None:
        self._seen[worker] = step.call.now
        self._leases[worker] = lease
        self._retired.pop(worker, None)
        self._forgotten.pop(worker, None)

    def _judge(self, entry: Entry, step: Step) -> Iterator[str]:
        worker = entry.worker
        is_heard = entry.lease_until is not None and self._seen[worker] > entry.lease_until
        match step.detail:
            case Requeued(crashes=crashes, last_crash_at=decided) if crashes > entry.crashes:
                yield from self._blamed(entry, worker, decided)
                if worker not in self._dead and worker not in self._silenced:
                    yield f"{entry} was blamed for a crash, and its worker {worker} lives"
            case Requeued():
                is_unknown = worker in self._retired or worker in self._forgotten
                excused = worker in self._silenced or is_unknown or is_heard
                if worker in self._dead and not excused:
                    yield f"{entry} brought down its worker {worker}, and no crash was counted"
            case Failed(reason=reason):
                if not entry.is_alone or entry.crashes < SUSPECT_AFTER:
                    yield f"{entry} was condemned ({reason}) without having crashed alone"

    def _blamed(self, entry: Entry, worker: str, decided: datetime | None) -> Iterator[str]:
        """Look at a blame as of when it was decided; what came in later nobody could know."""
        if decided is None:
            return
        silence = decided - self._seen[worker]
        if timedelta(0) <= silence < self._leases[worker]:
            yield f"{entry} was blamed for a crash {silence} after {worker} was heard of"
        if worker in self._retired and self._retired[worker] <= decided:
            yield f"{entry} was blamed for a crash of {worker}, which had retired"
