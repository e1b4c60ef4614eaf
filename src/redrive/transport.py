"""The transport contract: one method that carries deliveries to a destination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from redrive.model.delivery import Leased
from redrive.model.destination import Destination
from redrive.model.outcome import Outcome
from redrive.policies.terms import Terms

__all__ = ["Endpoint", "Transport"]


class Transport(Protocol):
    """The way to one destination."""

    batch: int
    """How many deliveries `send` takes at once, at most."""

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        """Try each delivery once and return one outcome each, in the same order.

        Never raises for a failure of the destination: that is an outcome. Cancelling it is how a
        time-out ends the try.
        """


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A destination in a worker: what it wants, on which terms, and the way to it."""

    destination: Destination
    terms: Terms
    transport: Transport
