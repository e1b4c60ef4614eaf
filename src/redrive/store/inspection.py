"""What a store promises to people who look: deliveries, groups and figures."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from redrive.model.checks import check_text
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.destination import BY_RULES, NOTHING
from redrive.model.retention import Keep
from redrive.model.settlement import FailureReason
from redrive.store.queue import Serving

__all__ = [
    "MOST_COMPARED",
    "MOST_COUNTED",
    "DestinationFigures",
    "DueWork",
    "Figures",
    "Group",
    "Inspection",
    "LaneFigures",
    "LetterFigures",
    "Page",
    "Query",
    "WorkerFigures",
    "Workload",
]

_SOUGHT = ("destination", "event_type", "event_id", "key", "tenant", "error_class", "group", "text")
_LONGEST_SOUGHT = 10_000
MOST_COUNTED = 1_000
MOST_COMPARED = 1_000
"""Of how many letters of a group it is told whose they are."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which deliveries to look at; what is `None` does not matter.

    Without a status all are looked at, resolved ones included, the latest delivery first.
    `event_type` may be a glob; `text` is looked for in the error and the payload, in any case, as
    Unicode folds it.
    The time is when it was settled or, until then, enqueued: from `since` on, before `until`.
    """

    status: Status | None = Status.FAILED
    destination: str | None = None
    event_type: str | None = None
    event_id: str | None = None
    key: str | None = None
    tenant: str | None = None
    reason: FailureReason | None = None
    error_class: str | None = None
    group: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    with_resolved: bool = False

    def __post_init__(self) -> None:
        for name in _SOUGHT:
            if (value := getattr(self, name)) is not None:
                check_text(name, value, longest=_LONGEST_SOUGHT)

    @property
    def listed(self) -> Query:
        """What of it is in a list that stores keep: of a status, or letters of a destination."""
        is_kept = self.status is Status.FAILED and not self.with_resolved
        destination = self.destination if is_kept else None
        return Query(status=self.status, with_resolved=self.with_resolved, destination=destination)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some deliveries, and where the next page begins; `None` when this was the last."""

    deliveries: tuple[Delivery, ...]
    next_cursor: str | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters whose faults name the same group.

    Seen is when one failed for good. `example` is the latest, and title, destination, error class,
    reason and message are its; `top_tenants` are the three with the most of its
    latest `MOST_COMPARED` letters, with how many of those.
    """

    id: str
    title: str
    destination: str
    error_class: str
    reason: FailureReason
    count: int
    first_seen: datetime
    last_seen: datetime
    example: DeliveryId
    message: str = ""
    top_tenants: tuple[tuple[str, int], ...] = ()


class DestinationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How many deliveries of one destination are in which status.

    `waiting` are the pending ones not due yet, and `retrying` those of them that failed before;
    `behind` are those behind another of their lane, and `due` those that could run now, but for
    their gate. `failed` leaves out the `resolved`; `oldest_due` is of those that are `due`, and
    `oldest_failed` is when the oldest unresolved dead letter failed. `pruned` arrived too, and
    were removed since. `keep` is how many dead letters it keeps, if that is limited.
    `is_removed` says that nothing is routed to it any more, `is_disabled` that it is a service
    which nobody is to serve.
    """

    name: str
    patterns: tuple[str, ...]
    pending: int = 0
    waiting: int = 0
    retrying: int = 0
    behind: int = 0
    due: int = 0
    in_flight: int = 0
    delivered: int = 0
    failed: int = 0
    resolved: int = 0
    oldest_due: datetime | None = None
    pruned: int = 0
    oldest_failed: datetime | None = None
    keep: Keep | None = None
    is_removed: bool = False
    is_disabled: bool = False

    @property
    def is_service(self) -> bool:
        """Whether the store describes it, and no code."""
        return self.patterns == BY_RULES

    @property
    def is_projection(self) -> bool:
        """Whether it reads the log by itself, and gets only what has failed there."""
        return self.patterns == NOTHING


class WorkerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that was heard of; `serving` is `None` when it never said what it claims.

    `others` are the destinations of which it declares another than what is in force; only
    `figures` tells them.
    """

    id: str
    seen_at: datetime
    in_flight: int
    serving: Serving | None = None
    others: tuple[str, ...] = ()


class DueWork(msgspec.Struct, frozen=True, kw_only=True):
    """How many deliveries of one destination and generation are due and at no lane's end."""

    destination: str
    generation: str
    count: int


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What is due, and who there is to claim it."""

    now: datetime
    due: tuple[DueWork, ...]
    workers: tuple[WorkerFigures, ...]


class LetterFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The unresolved dead letters of the whole store in numbers.

    `lately` are those that failed within the last `span`; `by_tenant` are the ten tenants with the
    most.
    """

    count: int = 0
    oldest: datetime | None = None
    lately: int = 0
    span: timedelta = timedelta(minutes=5)
    by_reason: tuple[tuple[FailureReason, int], ...] = ()
    by_tenant: tuple[tuple[str, int], ...] = ()

    @property
    def per_minute(self) -> float:
        """How many joined them per minute of late."""
        return self.lately * 60 / self.span.total_seconds()


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The whole system in numbers, in one consistent reading.

    `unrouted` are the events of the log that no destination was ever given. `deleted` were
    removed by people, `exported` to a file because there were too many, `pruned` because they had
    arrived and been kept long enough, and so were `pruned_resolved` and `pruned_events`.
    """

    now: datetime
    events: int
    unrouted: int
    refused_settlements: int
    deleted: int
    destinations: tuple[DestinationFigures, ...]
    workers: tuple[WorkerFigures, ...]
    pruned: int = 0
    pruned_resolved: int = 0
    pruned_events: int = 0
    exported: int = 0
    due: tuple[DueWork, ...] = ()
    letters: LetterFigures = LetterFigures()


class LaneFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A lane that does not move because the delivery at its head failed for good."""

    destination: str
    key: str
    head: DeliveryId
    since: datetime
    reason: FailureReason
    waiting: int


class Inspection(Protocol):
    """Looking, without changing anything."""

    async def find(
        self,
        query: Query,
        *,
        cursor: str | None = None,
        limit: int = 50,
        most_read: int | None = None,
    ) -> Page:
        """Return matching deliveries, latest change first; pages neither repeat nor skip.

        With `most_read`, only so many are looked at: for a text, of those that the rest of the
        query leaves, and without one, of all in its status, or of the dead letters of its
        destination. A page may hold fewer than `limit`, or
        none, and have a cursor all the same. A store may end one earlier that would take long.
        """

    async def find_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        """Return one delivery with its log, its earlier cycles and its exchange."""

    async def lanes(
        self, *, destination: str | None = None, limit: int = 50
    ) -> Sequence[LaneFigures]:
        """Return the lanes that wait behind a dead letter, of one destination or all.

        Those that have waited the longest come first.
        """

    async def groups(
        self, query: Query, *, limit: int = 50, most_read: int | None = None
    ) -> Sequence[Group]:
        """Return the groups of the dead letters that match, the largest first.

        Only those letters count. Of equally large groups the one seen last comes first. With
        `most_read`, only so many of the latest are looked at, as by `find`.
        """

    async def figures(self) -> Figures:
        """Return the whole system in numbers; cheap however long history and backlog.

        Beyond 10,000 a store may tell what has come due, and nobody has claimed since, as waiting,
        and `oldest_due` of those that go next.
        """

    async def workload(self) -> Workload:
        """Count what is due, and name the workers; cheap however long history and backlog.

        Of each destination and generation, `MOST_COUNTED` are counted at most.
        """
