"""Planted bugs of dead letters, replays and edits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.model.delivery import DeliveryId, Status
from redrive.stores.memory import MemoryStore
from redrive.stores.memory.row import Row
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]


class ReplayWithoutGuard(MemoryStore):
    async def replay(self, ids: Sequence[DeliveryId], **options: Any) -> Sequence[DeliveryId]:  # noqa: ANN401 - as the store has it
        for row in self._found(ids):
            if row.status is not Status.FAILED:
                row.replay(None, now=self._clock.now())
        replayed = await super().replay(ids, **options)
        return [*replayed, *(one for one in ids if one not in replayed)]


class EditLostOnReplay(MemoryStore):
    def _begin_cycle(self, row: Row, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as the store has it
        super()._begin_cycle(row, *args, **options)
        row.payload = None


class CycleForgotten(MemoryStore):
    def _begin_cycle(self, row: Row, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as the store has it
        super()._begin_cycle(row, *args, **options)
        row.cycles = row.cycles[:-1]


class DeletedNotCounted(MemoryStore):
    async def delete(self, ids: Sequence[DeliveryId], **options: Any) -> Sequence[DeliveryId]:  # noqa: ANN401 - as the store has it
        counted = self._deleted
        deleted = await super().delete(ids, **options)
        self._deleted = counted
        return deleted


BUGS: tuple[Bug, ...] = (
    Bug("replay without status guard", ReplayWithoutGuard),
    Bug("edit lost on replay", EditLostOnReplay),
    Bug("cycle forgotten", CycleForgotten),
    Bug("deleted not counted", DeletedNotCounted),
)
