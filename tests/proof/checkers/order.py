"""I5: the deliveries of a key go one after the other, in publish order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from redrive.model.delivery import Status
from redrive.model.destination import Order
from redrive.model.event import Event
from tests.proof.checkers.check import Check
from tests.proof.checkers.entry import Entry, Step
from tests.proof.checkers.ledger import Ledger
from tests.proof.checkers.records import Made

__all__ = ["InOrder", "OneAtATime"]


class OneAtATime(Check):
    """Only what is pending is claimed: never twice at once, and never what is settled."""

    name = "I5 one at a time"

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        if step.how != "claimed":
            return
        entry = step.entry
        if entry is None or entry.removed:
            yield f"{step.lease} was claimed, and no append made it, or it is gone"
        elif entry.status is not Status.PENDING:
            yield f"{entry} was claimed while it is {entry.status}"
        elif step.lease is not None and step.lease.token <= entry.token:
            yield f"{entry} was claimed with the token {step.lease.token} after {entry.token}"


class InOrder(Check):
    """At an ordered destination only the head of a lane is claimed, as its policy has it."""

    name = "I5 order"

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        entry = step.entry
        if step.how == "moved" and entry is not None:
            yield from self._moved(ledger, entry, step.detail)
        elif step.how == "backfilled":
            yield from self._backfilled(ledger, *step.detail)
        if step.how != "claimed" or entry is None or ledger.order(entry) is Order.NONE:
            return
        ahead = ledger.ahead(entry)
        if ahead is not None:
            yield f"{entry} was claimed before {ahead.id} of its key, which is {ahead.status}"
        if ledger.order(entry) is Order.BLOCK:
            yield from self._unblocked(ledger, entry, since=step.call.since)

    def _unblocked(self, ledger: Ledger, entry: Entry, *, since: float | None) -> Iterator[str]:
        """Look for dead letters that stop a destination; who claims may not see the latest."""
        for one in ledger.of_destination[entry.destination]:
            is_over = one.event.key is None or one.was_passed_by
            is_seen = since is None or one.failed_at < since
            if one.is_dead_letter and not is_over and is_seen:
                yield f"{entry} was claimed while the dead letter {one.id} blocks all"

    def _moved(self, ledger: Ledger, entry: Entry, target: str) -> Iterator[str]:
        """Look whether a delivery was moved before one of its key that has begun already."""
        if ledger.promises[target].destination.order is Order.NONE or entry.event.key is None:
            return
        for one in ledger.lanes.get((target, entry.event.key), ()):
            if one.status is Status.IN_FLIGHT and one.id > entry.id:
                yield f"{entry} was moved to {target} before {one.id} of its key, in flight"

    def _backfilled(
        self, ledger: Ledger, event: Event[msgspec.Raw], made: Sequence[Made]
    ) -> Iterator[str]:
        """Look whether an event was added behind a later one of its key that is not over."""
        for name in [one.destination for one in made]:
            order = ledger.promises[name].destination.order
            if order is Order.NONE or event.key is None:
                continue
            for one in ledger.lanes.get((name, event.key), ()):
                is_over = one.removed or not (
                    one.status in (Status.PENDING, Status.IN_FLIGHT) or one.is_dead_letter
                )
                if not is_over and ledger.places[one.event.id] > ledger.places[event.id]:
                    yield f"{event.id} was backfilled to {name} behind {one.event.id} of its key"
