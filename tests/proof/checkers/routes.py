"""I2: an event comes to each destination once, by whatever way."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from redrive.model.event import Event
from redrive.model.recipient import is_given, recipient
from tests.proof.checkers.check import Check
from tests.proof.checkers.entry import Entry, Step
from tests.proof.checkers.ledger import Ledger
from tests.proof.checkers.records import Made

__all__ = ["GivenOnce"]


class GivenOnce(Check):
    """No event is given to a destination that has it; only what waits or has failed is moved.

    A backfill gives a destination what it wants, and so gets an event that was stored by older
    routes what it lacks; both are counted.
    """

    name = "I2 given once"

    def see(self, ledger: Ledger, step: Step) -> Iterator[str]:
        entry = step.entry
        match step.how:
            case "moved" if entry is None or not (entry.is_waiting or entry.is_dead_letter):
                yield f"{entry} was moved to {step.detail}, and neither waits nor has failed"
            case "moved" if entry is not None and self._has(ledger, entry.event, step.detail):
                yield f"{entry} was moved to {step.detail}, which has its event"
            case "backfilled":
                event, made = step.detail
                yield from self._given(ledger, event, step, made[0].destination)
            case "caught up":
                event, made = step.detail
                yield from self._caught_up(ledger, event, made[0])
            case "added" if step.detail != step.call.answer.added:
                yield f"{step.detail} were added, and {step.call.answer.added} are told"
            case "removed" if entry is None or entry.removed:
                yield f"{entry} was removed, and it is not there"
            case _:
                pass

    def _given(
        self, ledger: Ledger, event: Event[msgspec.Raw], step: Step, name: str
    ) -> Iterator[str]:
        if self._has(ledger, event, name):
            yield f"{event.id} was backfilled to {name}, which has it"
        if not ledger.promises[name].destination.wants(event.type, event.tenant):
            yield f"{event.id} was backfilled to {name}, which does not want it"
        if name != step.call.given["destination"]:
            yield f"{event.id} was backfilled to {name}, not to {step.call.given['destination']}"

    def _caught_up(self, ledger: Ledger, event: Event[msgspec.Raw], made: Made) -> Iterator[str]:
        name = made.recipient
        had = [recipient(one.destination, one.rule) for one in ledger.of_event.get(event.id, ())]
        if is_given(name, had):
            yield f"{event.id} was given to {name} later, which has it"
        if not any(name in one for one in ledger.wanting(event, since=ledger.stored[event.id])):
            yield f"{event.id} was given to {name} later, which has not wanted it since"

    def _has(self, ledger: Ledger, event: Event[msgspec.Raw], name: str) -> bool:
        found: list[Entry] = ledger.of_event.get(event.id, [])
        return any(one.destination == name for one in found)
