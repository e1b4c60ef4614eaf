"""Planted bugs of moves, backfills and destinations that come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.model.delivery import DeliveryId, Status
from redrive.model.destination import Destination
from redrive.store import Backfilled, Moved, Registered
from redrive.stores.deduplicate import Kept
from redrive.stores.memory import MemoryStore
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]


class GivenAgain(MemoryStore):
    def _was_given(self, entry: Kept, destination: str) -> bool:
        return False


class MovedInFrontOfWhatFlies(MemoryStore):
    def _is_busy(self, destination: str, key: str | None) -> bool:
        return False


class MovedInFlight(MemoryStore):
    async def move(self, ids: Sequence[DeliveryId], **options: Any) -> Moved:  # noqa: ANN401 - as the store has it
        moved = await super().move(ids, **options)
        source = [row.destination for row in self._found(ids) if row.id not in moved.moved]
        flying = [
            row
            for row in self._rows.values()
            if row.status is Status.IN_FLIGHT and row.destination in source
        ]
        for row in flying:
            row.destination = options["target"]
        return msgspec.structs.replace(moved, moved=(*moved.moved, *(row.id for row in flying)))


class DroppedNotCounted(MemoryStore):
    async def drop(self, ids: Sequence[DeliveryId], **options: Any) -> Sequence[DeliveryId]:  # noqa: ANN401 - as the store has it
        counted = self._deleted
        dropped = await super().drop(ids, **options)
        self._deleted = counted
        return dropped


class BackfillForgotten(MemoryStore):
    def _give(self, position: int, destination: str, *, instead_of: str = "") -> None:
        if instead_of:
            super()._give(position, destination, instead_of=instead_of)


class BackfillOutOfOrder(MemoryStore):
    def _is_overtaken(self, position: int, key: str | None, destination: Destination) -> bool:
        return False


class BackfillCutShort(MemoryStore):
    async def backfill(
        self,
        destination: str,
        positions: Sequence[int],
        **options: Any,  # noqa: ANN401 - as the store has it
    ) -> Backfilled:
        return await super().backfill(destination, positions[:-1], **options)


class RegisteredUnnoticed(MemoryStore):
    async def register(
        self,
        destinations: Sequence[Destination],
        **options: Any,  # noqa: ANN401 - as the store has it
    ) -> Registered:
        before = self._routes_version
        registered = await super().register(destinations, **options)
        self._routes_version = before or self._routes_version
        return msgspec.structs.replace(registered, routes=self._routes())


BUGS: tuple[Bug, ...] = (
    Bug("moved to who has it", GivenAgain),
    Bug("moved in front of what is in flight", MovedInFrontOfWhatFlies),
    Bug("moved in flight", MovedInFlight),
    Bug("dropped not counted", DroppedNotCounted),
    Bug("backfill forgotten", BackfillForgotten),
    Bug("backfill out of order", BackfillOutOfOrder),
    Bug("backfill cut short", BackfillCutShort),
    Bug("a registration nobody notices", RegisteredUnnoticed),
)
