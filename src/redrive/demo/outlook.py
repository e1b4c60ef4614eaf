"""The outlook: what a story asks the store while it waits for something to come about."""

from __future__ import annotations

from redrive.demo.tempo import Tempo
from redrive.model.gate import Closed, GateFigures, Open
from redrive.operations import Operations
from redrive.store import DestinationFigures, Group

__all__ = ["PATIENCE_SECONDS", "Outlook"]

PATIENCE_SECONDS = 20.0


class Outlook:
    """Looks through `Operations`, as any operator would, with an eye on one destination."""

    def __init__(self, operations: Operations, pace: Tempo, *, watched: str) -> None:
        self._operations = operations
        self._pace = pace
        self._watched = watched

    async def largest_group(self, *, letters: int = 1) -> Group:
        """Wait for dead letters of one cause, and return the most frequent one."""
        found: list[Group] = []

        async def is_there() -> bool:
            found[:] = await self._operations.groups(limit=1)
            return bool(found) and found[0].count >= letters

        await self._pace.wait_until(is_there, patience=PATIENCE_SECONDS)
        return found[0]

    async def is_shut(self) -> bool:
        """Tell whether the breaker of the watched is open."""
        return isinstance((await self._gate()).gate.breaker, Open)

    async def is_closed(self) -> bool:
        """Tell whether it is closed."""
        return isinstance((await self._gate()).gate.breaker, Closed)

    async def has_no_dead_letter(self) -> bool:
        """Tell whether every dead letter is gone."""
        return not any(one.failed for one in await self.destinations())

    async def is_quiet(self) -> bool:
        """Tell whether nothing is on its way."""
        return all(one.pending + one.in_flight == 0 for one in await self.destinations())

    async def figures(self) -> DestinationFigures:
        """Return the figures of the watched."""
        return next(one for one in await self.destinations() if one.name == self._watched)

    async def destinations(self) -> tuple[DestinationFigures, ...]:
        """Return the figures of all."""
        return (await self._operations.status()).destinations

    async def _gate(self) -> GateFigures:
        gates = await self._operations.gates()
        return next(one for one in gates if one.destination == self._watched)
