"""What a store promises about projections: how far each is, and that it applies events once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

import msgspec

from redrive.model.audit import Actor
from redrive.model.event import EventId
from redrive.model.pattern import matches
from redrive.model.position import LogPosition
from redrive.store.log import LoggedEvent, LogPage
from redrive.store.queue import Settled

__all__ = [
    "MOST_LAG",
    "Applying",
    "Checkpoint",
    "LogNews",
    "Projected",
    "Projecting",
    "ProjectionFigures",
    "Projections",
    "ReaderTurn",
    "Truncating",
]


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far a projection is: everything up to `position` was applied, handed over or unwanted.

    `began` is where it has begun, and `count` how many events it has applied since, those that were
    handed over not among them. `event_id`, `event_type` and `applied_at` are of the last one.
    """

    projection: str
    version: int = 1
    partition: int = 0
    began: LogPosition
    position: LogPosition
    event_id: EventId | None = None
    event_type: str | None = None
    applied_at: datetime | None = None
    count: int = 0
    worker: str | None = None
    types: tuple[str, ...] = ()
    """Patterns of the events that it wants; none for all of them."""
    is_reset: bool = False
    """Whether its read model is still to be emptied, together with the next batch."""

    def wants(self, event_type: str) -> bool:
        """Tell whether it wants events of a type."""
        return not self.types or any(matches(pattern, event_type) for pattern in self.types)


MOST_LAG = 100_000
"""How many unread events are counted, at most."""


class ProjectionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How a projection is, as seen at one moment.

    `lag` counts by type the events that it wants and has not read; only `MOST_LAG` events behind
    its checkpoint are looked at, and `is_at_least` says that there are more. `oldest_at` is when
    the first of them was published. `handed_over` counts what failed, or waits behind it, and
    `parked_keys` the keys of that. `seen_at` is when the worker that reads was last heard of.
    """

    checkpoint: Checkpoint
    now: datetime
    lag: dict[str, int]
    is_at_least: bool
    oldest_at: datetime | None
    handed_over: int
    parked_keys: int
    seen_at: datetime | None

    @property
    def events_behind(self) -> int:
        """How many events it wants and has not read."""
        return sum(self.lag.values())

    @property
    def is_caught_up(self) -> bool:
        """Whether it has read everything that it wants, as of this moment."""
        return not self.lag and not self.is_at_least

    @property
    def behind_for(self) -> timedelta:
        """For how long the first event that it has not read has waited."""
        since = self.oldest_at
        return timedelta(0) if since is None else max(timedelta(0), self.now - since)


class LogNews(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there is something to read, and the token of each projection's turn."""

    has_more: bool
    tokens: dict[str, int]


class ReaderTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The right of a worker to read for a projection, until another takes it; fenced by `token`."""

    token: int
    checkpoint: Checkpoint


Applying = Callable[[object, Sequence[LoggedEvent], datetime], Awaitable[Sequence[Settled | None]]]
"""Applies events one after the other, on a connection in an open transaction, at an instant.

Returns `None` for each that it applied. Behind the first that failed it applies none, and returns
what was decided about that one, whose lease the store still has to make.
"""


Truncating = Callable[[object], Awaitable[None]]
"""Empties a read model, on a connection in an open transaction."""


class Projecting(Enum):
    """What came of a batch."""

    KEPT = "kept"
    HELD = "held"
    """Nothing was applied: the projection is paused, or halted by a dead letter."""
    REFUSED = "refused"
    """Nothing was applied: the turn is another's by now, or the checkpoint is elsewhere."""
    CONTRADICTED = "contradicted"
    """Nothing was applied: the database has refused what was written, when it was committed."""


class Projected(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a batch, and what was handed over of it with which settlement.

    An event without one was put behind another of its key. `error` is the driver's, of a commit
    that was refused because of a constraint.
    """

    ending: Projecting
    error: Exception | None = None
    handed_over: tuple[tuple[LoggedEvent, Settled | None], ...] = ()


class Projections(Protocol):
    """Checkpoints of projections, and the batches by which they grow."""

    async def take_turn(
        self,
        projection: str,
        *,
        worker: str,
        lease: timedelta,
        begin: LogPosition,
        types: Sequence[str] = (),
    ) -> ReaderTurn | None:
        """Take the turn of reading for a projection, unless a live worker has it.

        A worker is live while it was heard of within the lease. One that has the turn already gets
        a new one. A projection that is new begins behind `begin`. It wants events of these types
        from now on.
        """

    async def project(
        self,
        turn: ReaderTurn,
        page: LogPage,
        apply: Applying,
        *,
        after: LogPosition,
        generation: str,
        at_most: timedelta,
        truncate: Truncating | None = None,
    ) -> Projected:
        """Apply a page that was read behind a position, and move the checkpoint to its end.

        What `apply` does with its connection, the checkpoint and what is handed over are committed
        together, or nothing of it is. Events of a key that has a lane here are put behind it. One
        that fails, and later ones of its key, become deliveries in the lane of the key, the first
        one settled as was decided; the others of the page are applied once. `apply` may be called
        several times for an event, and what it did before is undone. After a reset `truncate` comes
        first, in the same transaction; what it raises passes, and undoes everything.
        """

    async def log_news(self, after: LogPosition) -> LogNews:
        """Tell whether something can be read behind a position, and whose turns are current."""

    async def reset_projection(self, projection: str, *, to: LogPosition, actor: Actor) -> int:
        """Have a projection begin anew behind a position, and remove what it had handed over.

        Whoever reads for it loses the turn. Its read model stays as it is until the next batch.
        Returns how many deliveries were removed. It leaves an audit entry.
        """

    async def drop_projection(self, projection: str, *, lease: timedelta, actor: Actor) -> int:
        """Forget a projection, and remove what it had handed over; its read model stays.

        Raises `UsageError` while a live worker reads for it: that would begin it again. Returns how
        many deliveries were removed. It leaves an audit entry.
        """

    async def projections(self) -> Sequence[ProjectionFigures]:
        """Return how all projections are, by name; each as of one moment."""

    async def has_applied(self, projection: str, event_id: EventId) -> bool:
        """Tell whether a projection is past an event, and has not handed it over unfinished.

        One that is no longer in the log was read by every projection there was.
        """
