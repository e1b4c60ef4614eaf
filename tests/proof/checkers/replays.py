"""I10: a replay keeps the identity of what it sends again, and only dead letters are replayed."""

from __future__ import annotations

from collections.abc import Iterator

from redrive.model.delivery import Leased
from tests.proof.checkers.check import Check
from tests.proof.checkers.ledger import Ledger, Step

__all__ = ["IdentityKept", "OnlyDeadLetters"]


class IdentityKept(Check):
    """Every try carries the event as it was published; its payload, as it was last edited."""

    name = "I10 identity kept"

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        entry = step.entry
        if step.how != "claimed" or entry is None:
            return
        leased: Leased = step.detail
        sent, published = leased.event, entry.event
        for field in ("id", "type", "key", "tenant", "source", "idempotency_key", "headers"):
            if getattr(sent, field) != getattr(published, field):
                yield f"{entry} carries another {field} than its event: {getattr(sent, field)!r}"
        if bytes(sent.payload) != entry.payload:
            yield f"{entry} carries {bytes(sent.payload)!r} instead of {entry.payload!r}"
        if leased.destination != entry.destination:
            yield f"{entry} was claimed for {leased.destination}"


class OnlyDeadLetters(Check):
    """Replay, edit, resolve and delete change dead letters; of two at once one wins."""

    name = "I10 one winner"

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        entry = step.entry
        if step.how in ("replayed", "edited", "resolved") and not (
            entry is not None and entry.is_dead_letter
        ):
            state = "not there" if entry is None else entry.status
            yield f"delivery {entry.id if entry else '?'} was {step.how} while it is {state}"
