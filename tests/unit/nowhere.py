"""A way to nowhere, for endpoints that nothing is sent to."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.model.delivery import Leased
from redrive.model.outcome import Outcome


class Nowhere:
    """A transport that must not be used."""

    def __init__(self, batch: int = 1) -> None:
        self.batch = batch

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        raise AssertionError
