"""I3 and I4: a lease is settled once, by whoever holds it, while it lasts."""

from __future__ import annotations

from collections.abc import Iterator

from redrive.model.delivery import Status
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Ledger, Step

__all__ = ["SettledOnce", "StaleRefused"]


class SettledOnce(Check):
    """Per lease at most one settlement, release or rescue is accepted."""

    name = "I3 settled once"

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        if step.how not in ("settled", "released", "rescued") or step.lease is None:
            return
        before = ledger.ended.get(step.lease)
        if before is not None:
            yield f"{step.lease} was {step.how} after it was {before}"


class StaleRefused(Check):
    """Nothing is accepted but from the current lease, nor a rescue while it lasts."""

    name = "I4 stale refused"

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        entry, lease, now = step.entry, step.lease, step.call.now
        if step.how not in ("settled", "released", "rescued", "extended") or lease is None:
            return
        if entry is None or entry.removed:
            yield f"{lease} was {step.how}, and there is no such delivery"
        elif lease.token != entry.token:
            yield f"{lease} was {step.how}, and {entry} has the token {entry.token} by now"
        elif entry.status is not Status.IN_FLIGHT:
            yield f"{lease} was {step.how}, and {entry} is {entry.status}"
        elif (step.how == "rescued") is entry.is_leased(now):
            yield f"{lease} was {step.how} at {now}; it lasts until {entry.lease_until}"
