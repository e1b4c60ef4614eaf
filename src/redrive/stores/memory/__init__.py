"""A store that lives and dies with its process: for tests, and to read what a store must do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from redrive.clock import Clock
from redrive.errors import TransactionError
from redrive.model.delivery import DeliveryId, Leased
from redrive.store import (
    AppliedLane,
    Capabilities,
    Effect,
    Ending,
    Finding,
    Following,
    Level,
    Miscount,
)
from redrive.stores.memory.access import MemoryAccess
from redrive.stores.memory.calling import MemoryCalls
from redrive.stores.memory.encrypting import MemoryEncrypting
from redrive.stores.memory.erasing import MemoryErasing
from redrive.stores.memory.housekeeping import MemoryHousekeeping, MemoryLetters
from redrive.stores.memory.log import MemoryRegistry
from redrive.stores.memory.projections import MemoryProjections
from redrive.stores.memory.replays import MemoryReplays
from redrive.stores.memory.schedules import MemorySchedules
from redrive.stores.memory.secrets import MemorySecrets
from redrive.stores.memory.services import MemoryServices
from redrive.stores.memory.taking_over import MemoryTakingOver
from redrive.stores.memory.trends import MemoryTrends

__all__ = ["MemoryStore"]


class MemoryStore(
    MemoryHousekeeping,
    MemoryLetters,
    MemoryProjections,
    MemoryRegistry,
    MemoryReplays,
    MemorySchedules,
    MemoryTakingOver,
    MemoryTrends,
    MemoryAccess,
    MemoryCalls,
    MemoryErasing,
    MemorySecrets,
    MemoryServices,
    MemoryEncrypting,
):
    """The store contract in plain Python.

    Any thread and any event loop may use it. Each delivery keeps the last `history` attempts of
    its cycle, and its last `history` cycles.
    """

    capabilities = Capabilities(
        survives_restart=False, is_shared_by_processes=False, joins_transactions=False
    )
    schema_version = 0

    def __init__(self, clock: Clock, history: int = 20) -> None:
        super().__init__(clock, history)

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        with self._lock:
            self._tell()

    async def stuck(self, *, limit: int = 100) -> Sequence[DeliveryId]:  # noqa: ARG002 - the contract
        return ()  # who goes next is found out anew by each claim

    async def miscounts(self) -> Sequence[Miscount]:
        return ()  # nothing is kept: whoever asks is told by counting

    async def recount(self) -> Sequence[Miscount]:
        return ()

    async def check(self) -> Sequence[Finding]:
        what = "The store is in memory: it ends with its process, and no other process sees it."
        return (Finding(level=Level.OK, what=what),)

    async def apply(self, leased: Leased, effect: Effect, *, at_most: timedelta) -> Ending:  # noqa: ARG002 - the contract
        raise _no_database()

    async def apply_lane(
        self,
        leased: Leased,  # noqa: ARG002 - the contract
        effect: Effect,  # noqa: ARG002
        follow: Following,  # noqa: ARG002
        *,
        at_most: timedelta,  # noqa: ARG002
    ) -> AppliedLane:
        raise _no_database()


def _no_database() -> TransactionError:
    return TransactionError(
        "The memory store has no database, so no effect can be committed together with its "
        "delivery; use a store that has one."
    )
