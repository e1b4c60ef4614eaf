"""What a store promises about projections: how far each is, and that it applies events once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

import msgspec

from redrive.model.audit import Actor
from redrive.model.event import EventId
from redrive.model.pattern import matches
from redrive.model.position import LogPosition
from redrive.model.projection import destination_of, table_of
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
    "Rebuild",
    "Swapping",
    "Truncating",
]


class Rebuild(msgspec.Struct, frozen=True, kw_only=True):
    """How a read model is made anew: up to `goal`, the end of the log when that was begun.

    `total` counts the events that it wanted up to there. `rate` is how many it applies in a second,
    at most. If it `is_strict`, it waits at each event that fails, until a person has dealt with it.
    If it `is_partial`, events had gone from the log when it began at the start. `edits` counts the
    events that it applied as a person had edited them, and `edited` names the first of them.
    `erased` counts those that it passed by, because nobody knows any more what they said.
    """

    begun_at: datetime
    goal: LogPosition
    total: int = 0
    rate: float | None = None
    is_strict: bool = False
    is_partial: bool = False
    is_cancelled: bool = False
    ended_at: datetime | None = None
    edits: int = 0
    edited: tuple[EventId, ...] = ()
    erased: int = 0

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.ended_at is None and not self.is_cancelled


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How far a projection is: everything up to `position` was applied, handed over or unwanted.

    `projection` is the destination that this version is; people call all versions by one `name`.

    `began` is where it has begun, and `count` how many events it has applied since, those that were
    handed over not among them. `event_id`, `event_type` and `applied_at` are of the last one.
    """

    projection: str
    version: int = 1
    partition: int = 0
    partitions: int = 1
    """Of how many this is one; what is told of all of them is told as partition 0."""
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
    tables: tuple[str, ...] = ()
    """The tables of its read model, by the names that readers use."""
    served_at: datetime | None = None
    """When readers were given this version in place of another."""
    rebuild: Rebuild | None = None
    """How its read model is made anew, or was the last time."""

    @property
    def name(self) -> str:
        """What the projection is called, whichever version this is."""
        return self.projection.removesuffix(destination_of("", self.version))

    @property
    def own_tables(self) -> tuple[str, ...]:
        """The tables that this version writes to."""
        return tuple(table_of(one, self.version) for one in self.tables)

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
    `is_serving` says whether this is the version that readers have.

    Of several partitions the whole is told: what all of them lag behind, how far the slowest has
    read, and the worker that was not heard of for the longest.
    """

    checkpoint: Checkpoint
    now: datetime
    lag: dict[str, int]
    is_at_least: bool
    oldest_at: datetime | None
    handed_over: int
    parked_keys: int
    seen_at: datetime | None
    is_serving: bool = True
    parts: tuple[ProjectionFigures, ...] = ()
    """Each partition, where there are several; else this is about the only one."""

    @property
    def events_behind(self) -> int:
        """How many events it wants and has not read."""
        return sum(self.lag.values())

    @property
    def progress(self) -> float | None:
        """How much of a rebuild is done, from 0 to 1; `None` where there was none."""
        rebuild = self.checkpoint.rebuild
        if rebuild is None:
            return None
        if rebuild.ended_at is not None or not rebuild.total:
            return 1.0
        done = self.checkpoint.count if self.is_at_least else rebuild.total - self.events_behind
        return min(1.0, max(0.0, done / rebuild.total))

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
    """Whether there is something to read, and the token of each partition's turn."""

    has_more: bool
    tokens: dict[tuple[str, int], int]


class ReaderTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The right of a worker to read for a partition, until another takes it; fenced by `token`."""

    token: int
    checkpoint: Checkpoint


Applying = Callable[[object, Sequence[LoggedEvent], datetime], Awaitable[Sequence[Settled | None]]]
"""Applies events one after the other, on a connection in an open transaction, at an instant.

Returns `None` for each that it applied. Behind the first that failed it applies none, and returns
what was decided about that one, whose lease the store still has to make. Of events that it applies
at once it blames the first: which one fails shows when each is applied by itself.
"""


Truncating = Callable[[object], Awaitable[None]]
"""Empties a read model, or creates one, on a connection in an open transaction."""


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
    reached: LogPosition | None = None
    """Where a strict rebuild has stopped within the page; `None` is at its end."""


class Swapping(Enum):
    """What came of an attempt to give readers another version."""

    SWAPPED = "swapped"
    BEHIND = "behind"
    """Nothing was changed: it has not read everything that readers have, or are to have."""
    PARKED = "parked"
    """Nothing was changed: some events have failed, or wait behind those that did."""
    PARTIAL = "partial"
    """Nothing was changed: events had gone from the log when it began at the start."""
    BUSY = "busy"
    """Nothing was changed: somebody reads for so long that others would have to wait."""


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
        version: int = 1,
        tables: Sequence[str] = (),
        partitions: int = 1,
        held: Collection[int] = (),
    ) -> ReaderTurn | None:
        """Take the turn of reading for a partition, unless live workers have all of them.

        A worker is live while it was heard of within the lease. One that has a turn already gets a
        new one, but for the partitions that it says are `held` by it. One with two partitions fewer
        than another takes one of those, so that all have about as many. A projection that is new
        begins behind `begin`, and has so many partitions. It wants events of these types from now
        on, and has these tables.

        It goes on with another number of partitions as soon as nobody reads, if all of them have
        read equally far; else it raises `UsageError`.
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
        create: Truncating | None = None,
    ) -> Projected:
        """Apply a page that was read behind a position, and move the checkpoint to its end.

        The page is of the partition whose turn it is, and no other's checkpoint moves. What `apply`
        does with its connection, the checkpoint and what is handed over are committed together, or
        nothing of it is. Events of a key that has a lane here are put behind it. One that fails,
        and later ones of its key, become deliveries in the lane of the key, the first one settled
        as was decided; the others of the page are applied once. `apply` may be called several times
        for an event, and what it did before is undone. After a reset `truncate` comes first, in the
        same transaction, for whichever partition is the first to apply something; what it raises
        passes, and undoes everything.

        During a rebuild, events that a person has edited are applied as they were edited. A strict
        one stops behind the first event that fails, and is held until that is dealt with.

        With `create` the tables are looked at before: it is called if one is missing, and readers
        are given this version if they have none. Without `truncate` the tables are emptied.
        """

    async def log_news(self, after: LogPosition) -> LogNews:
        """Tell whether something can be read behind a position, and whose turns are current."""

    async def reset_projection(
        self,
        projection: str,
        *,
        to: LogPosition,
        actor: Actor,
        rate: float | None = None,
        is_strict: bool = False,
    ) -> int:
        """Have a projection begin anew behind a position, and remove what it had handed over.

        Whoever reads for it loses the turn. Its read model stays as it is until the next batch.
        Returns how many deliveries were removed. It leaves an audit entry.
        """

    async def cancel_rebuild(self, projection: str, *, actor: Actor) -> bool:
        """Have a projection that is rebuilt apply nothing more; tell whether it was.

        Whoever reads for it loses the turn. It leaves an audit entry.
        """

    async def swap_projection(
        self, projection: str, *, through: LogPosition, accepts_parked: bool, actor: Actor
    ) -> Swapping:
        """Give readers a version of a projection in place of the one that they have, in one step.

        Only if all of it has read up to `through`, and as far as the version that they have. What
        hangs on the names that readers use stays, or it is refused with a `UsageError` that names
        it. It leaves an audit entry.
        """

    async def drop_projection(self, projection: str, *, lease: timedelta, actor: Actor) -> int:
        """Forget a version of a projection, and remove what it had handed over.

        Its tables go with it if readers have another version; else its read model stays. Raises
        `UsageError` while a live worker reads for it, which would begin it again, and for the
        version that readers have while there are others. Returns how many deliveries were removed.
        It leaves an audit entry.
        """

    async def projections(self) -> Sequence[ProjectionFigures]:
        """Return how all projections are, by name; each as of one moment."""

    async def has_applied(self, projection: str, event_id: EventId) -> bool:
        """Tell whether the partition of an event is past it, and has not handed it over unfinished.

        One that is no longer in the log was read by every projection there was.
        """
