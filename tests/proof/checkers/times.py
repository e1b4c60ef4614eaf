"""I12: nothing starts before it is due, or past its deadline; nothing due is left lying."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from redrive.model.delivery import Status
from redrive.store import ClaimRequest
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Ledger, Step
from tests.proof.checkers.records import ClockSet, Record

__all__ = ["InItsTime"]


class InItsTime(Check):
    """A claim is at or after the due time, before the deadline, and of its own generations.

    Its leases are of the same instant as the claim. What was due once is due, though somebody has
    set the clock back.
    """

    name = "I12 due time"

    def __init__(self) -> None:
        self._latest = datetime.min.replace(tzinfo=UTC)

    def hear(self, ledger: Ledger, record: Record) -> Iterator[str]:
        if isinstance(record, ClockSet):  # a claim that took nothing may have seen it
            self._latest = max(self._latest, record.was)
        yield from ()

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        entry, now = step.entry, step.call.now
        self._latest = max(self._latest, now)
        if step.how == "given up" and entry is not None and entry.status is not Status.PENDING:
            yield f"{entry} was given up while it is {entry.status}"
        if step.how != "claimed" or entry is None:
            return
        request: ClaimRequest = step.call.given["request"]
        if step.detail.claimed_at != now:
            yield f"{entry} was claimed at {step.detail.claimed_at}, by a claim of {now}"
        if self._latest < entry.due:
            yield f"{entry} was claimed at {now}, before it is due at {entry.due}"
        if entry.deadline is not None and now >= entry.deadline:
            yield f"{entry} was claimed at {now}, past its deadline {entry.deadline}"
        if entry.generation not in request.generations:
            yield f"{entry} of {entry.generation!r} was claimed for {request.generations}"
