"""Reporting at once: results that leave the breakers as they are.

Most attempts succeed, and a closed breaker that has counted no failure does not change by that. How
the breakers looked is remembered by the claim that read them; whether they still do takes a look,
and nobody has to be waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from redrive.model.destination import Destination
from redrive.model.gate import BreakerState, Closed, Gate
from redrive.policies import outage
from redrive.store import Report
from redrive.stores.codec import destination_from, json_text
from redrive.stores.postgres.codec import columns

__all__ = ["UNCHANGED", "Breakers", "KnownBreaker", "values"]

UNCHANGED = f"""
SELECT count(*)
FROM unnest((SELECT $1::integer[]), (SELECT $2::text[]), (SELECT $3::text[]))
    AS q (destination, description, breaker)
JOIN redrive.destinations t ON t.id = q.destination AND t.document = q.description
JOIN redrive.gates g ON g.destination = q.destination
    AND coalesce(g.document::json ->> 'breaker', '{json_text(Closed())}') = q.breaker
"""


class KnownBreaker(NamedTuple):
    """A breaker as it was read: the number and the document of its destination, and its state."""

    number: int
    description: str
    state: BreakerState

    @property
    def destination(self) -> Destination:
        return destination_from(self.description)


class Breakers:
    """How the breakers look, as far as this process knows."""

    def __init__(self) -> None:
        self._known: dict[str, KnownBreaker] = {}

    def learn(self, destination: str, breaker: KnownBreaker) -> None:
        """Take note of how a breaker looks."""
        self._known[destination] = breaker

    def forget(self) -> None:
        """Wait for the next claim that reads them."""
        self._known.clear()

    def closed(self, destinations: Sequence[str]) -> list[int] | None:
        """Return the numbers of these, if all of their breakers are closed."""
        known = [self._known.get(one) for one in destinations]
        closed = [one.number for one in known if one and isinstance(one.state, Closed)]
        return closed if len(closed) == len(known) else None

    def untouched(
        self, batch: Sequence[Report], *, now: datetime
    ) -> dict[str, KnownBreaker] | None:
        """Return the breakers, if the reports would leave all of them as they are.

        The instant only matters where something would change.
        """
        found: dict[str, KnownBreaker] = {}
        for one in batch:
            known = self._known.get(one.destination)
            if known is None or one.is_check:
                return None
            gate = Gate(breaker=known.state)
            if (
                outage.after_report(gate, known.destination.limits, one, now=now, chance=0.0)
                != gate
            ):
                return None
            found[one.destination] = known
        return found


def values(breakers: Sequence[KnownBreaker]) -> list[list[object]]:
    """Return what `UNCHANGED` takes."""
    return columns([(one.number, one.description, json_text(one.state)) for one in breakers], 3)
