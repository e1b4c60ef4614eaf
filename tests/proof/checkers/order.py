"""I5: the deliveries of a key go one after the other, in publish order."""

from __future__ import annotations

from collections.abc import Iterator

from redrive.model.delivery import Status
from redrive.model.destination import Order
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Ledger, Step

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
        if step.how != "claimed" or entry is None or ledger.order(entry) is Order.NONE:
            return
        ahead = ledger.ahead(entry)
        if ahead is not None:
            yield f"{entry} was claimed before {ahead.id} of its key, which is {ahead.status}"
        if ledger.order(entry) is Order.BLOCK:
            for one in ledger.of_destination[entry.destination]:
                if one.is_dead_letter and one.event.key is not None:
                    yield f"{entry} was claimed while the dead letter {one.id} blocks all"
