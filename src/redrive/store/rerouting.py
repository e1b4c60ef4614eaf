"""What a store promises about destinations that go, and about those that come late."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId

__all__ = ["LOWEST_PRIORITY", "Backfilled", "LogSlice", "Moved", "Rerouting"]

LOWEST_PRIORITY = -100
"""The priority of what is backfilled: whatever is published meanwhile goes first."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What became of deliveries that were to go to another destination.

    `skipped` have an event that was given to it already, `busy` a key of which one is in flight
    there just now; both are where they were.
    """

    moved: tuple[DeliveryId, ...] = ()
    skipped: int = 0
    busy: int = 0


class LogSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the log, as far as one destination is concerned; `last` is where it ends.

    `missing` are numbers of positions and keys of events that it wants and never had a delivery
    of; `given` of those that it had. `last` is `None` when there was nothing left to read.
    `is_ordered` says that the destination keeps order, removed or not.
    """

    missing: tuple[tuple[int, str | None], ...] = ()
    given: tuple[tuple[int, str | None], ...] = ()
    last: int | None = None
    is_ordered: bool = False


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
    """How many events of the log got the delivery they were missing.

    `overtaken` did not: a later event of their key is at the ordered destination already, be it as
    a dead letter.
    """

    added: int = 0
    overtaken: int = 0


class Rerouting(Protocol):
    """Acts on what goes where; each leaves an audit entry if it changed something."""

    async def unregister(self, destination: str, *, actor: Actor) -> bool:
        """Route nothing to a destination any more; tells whether that is new.

        What it has stays, as do its figures for as long as it has anything. Only a declaration
        that was never seen brings it back, or `reregister`.
        """

    async def reregister(self, destination: str, *, actor: Actor) -> bool:
        """Take a removal back, with the declaration there was; tells whether that is new."""

    async def waiting_for(
        self,
        destination: str,
        *,
        after: int = 0,
        limit: int = 500,
        with_dead_letters: bool = False,
    ) -> Sequence[DeliveryId]:
        """Return pending deliveries of a destination with an id above `after`, in order."""

    async def move(self, ids: Sequence[DeliveryId], *, target: str, actor: Actor) -> Moved:
        """Hand pending deliveries and unresolved dead letters to another destination.

        They keep their ids, and so their place in publish order; the lanes of both destinations
        are right afterwards. Ids in another status are left alone.
        """

    async def drop(self, ids: Sequence[DeliveryId], *, actor: Actor) -> Sequence[DeliveryId]:
        """Remove pending deliveries; counted as deleted, and the next of their lanes is freed.

        To the replay that sent one of them, it has failed again.
        """

    async def read_log(
        self,
        destination: str,
        *,
        after: int = 0,
        limit: int = 1_000,
        since: datetime | None = None,
        until: datetime | None = None,
        event_type: str | None = None,
    ) -> LogSlice:
        """Read the log for a destination; events past their deadline aside.

        `after`, and what is found, are numbers of positions, and come in their order: a reader that
        goes on to the end sees all that was committed when it began. `since`, `until` (when it was
        published) and `event_type`, a glob, narrow what is missing.
        """

    async def backfill(
        self,
        destination: str,
        positions: Sequence[int],
        *,
        actor: Actor,
        generation: str | None = None,
    ) -> Backfilled:
        """Give events a delivery to the destination, unless they ever had one.

        They count as replays, with the lowest priority, and are due now.
        """
