"""What all stores find out, and say, about projections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from redrive.errors import UsageError
from redrive.model.event import EventId
from redrive.model.position import LogPosition
from redrive.store import Checkpoint, ProjectionFigures, Rebuild

__all__ = [
    "MOST_EDITED",
    "Owner",
    "by_projection",
    "check_swap",
    "divided",
    "left_behind",
    "no_table",
    "serving",
    "serving_from",
    "still_read",
    "still_serving",
    "still_used",
    "to_read",
    "to_take",
    "together",
    "versions_beside",
    "went_on",
    "whole",
]

MOST_EDITED = 100
"""How many events a rebuild names that it applied as they were edited."""
_NEVER = datetime.min.replace(tzinfo=UTC)


def serving(checkpoints: Iterable[Checkpoint]) -> frozenset[str]:
    """Return those versions that readers have: given to them last, or else the lowest."""
    found: dict[str, Checkpoint] = {}
    for one in sorted(checkpoints, key=lambda one: (one.served_at or _NEVER, -one.version)):
        found[one.name] = one
    return frozenset(one.projection for one in found.values())


def serving_from(now: datetime, versions: Iterable[Checkpoint]) -> datetime:
    """Return since when a version serves, later than any other, whatever the clock says."""
    before = max((one.served_at for one in versions if one.served_at is not None), default=_NEVER)
    return max(now, before + timedelta(microseconds=1))


def versions_beside(
    checkpoint: Checkpoint, checkpoints: Iterable[Checkpoint]
) -> Sequence[Checkpoint]:
    """Return the other versions of a projection."""
    return [
        one
        for one in checkpoints
        if one.name == checkpoint.name and one.projection != checkpoint.projection
    ]


class Owner(NamedTuple):
    """Whose turn a partition is, if anybody's, and whether that worker lives."""

    partition: int
    worker: str | None
    is_live: bool


def to_take(owners: Sequence[Owner], worker: str, held: Collection[int]) -> list[int]:
    """Return which partitions a worker may take the turn of, the best first.

    That is what no other live worker has; else what another has that has two more, so that taking
    one makes it fairer, and nobody takes it back.
    """
    free = [
        one.partition
        for one in owners
        if one.partition not in held and (one.worker == worker or not one.is_live)
    ]
    others = Counter(one.worker for one in owners if one.is_live and one.worker != worker)
    if free or not others:
        return free
    [(richest, most)] = others.most_common(1)
    mine = sum(one.worker == worker and one.partition in held for one in owners)
    if most < mine + 2:
        return []
    return [one.partition for one in reversed(owners) if one.worker == richest]


def by_projection(found: Iterable[Checkpoint]) -> list[list[Checkpoint]]:
    """Put the partitions of each version together; they come one behind the other."""
    return [list(some) for _, some in groupby(found, key=lambda one: one.projection)]


def whole(parts: Sequence[Checkpoint]) -> Checkpoint:
    """Return what all partitions of a version are together: as far as the slowest of them."""
    if len(parts) == 1:
        return parts[0]
    slowest = min(parts, key=lambda one: one.position)
    latest = max(parts, key=lambda one: one.applied_at or _NEVER)
    wanted = {kind for one in parts for kind in one.types}
    return replace(
        slowest,
        partition=0,
        partitions=len(parts),
        began=min(one.began for one in parts),
        event_id=latest.event_id,
        event_type=latest.event_type,
        applied_at=latest.applied_at,
        count=sum(one.count for one in parts),
        types=tuple(sorted(wanted)) if all(one.types for one in parts) else (),
        is_reset=any(one.is_reset for one in parts),
        tables=tuple(sorted({table for one in parts for table in one.tables})),
        served_at=max((one.served_at for one in parts if one.served_at), default=None),
        rebuild=_whole_rebuild([one.rebuild for one in parts if one.rebuild is not None]),
    )


def _whole_rebuild(parts: Sequence[Rebuild]) -> Rebuild | None:
    """Return what the rebuilds of all partitions are together; it ends with the last of them."""
    if not parts:
        return None
    ends = [one.ended_at for one in parts if one.ended_at is not None]
    return replace(
        parts[0],
        total=sum(one.total for one in parts),
        ended_at=max(ends) if len(ends) == len(parts) else None,
        is_partial=any(one.is_partial for one in parts),
        is_cancelled=any(one.is_cancelled for one in parts),
        edits=sum(one.edits for one in parts),
        edited=tuple(name for one in parts for name in one.edited)[:MOST_EDITED],
    )


def together(parts: Sequence[ProjectionFigures]) -> ProjectionFigures:
    """Return how a projection is of which each partition is told."""
    if len(parts) == 1:
        return parts[0]
    lag: Counter[str] = Counter()
    for one in parts:
        lag.update(one.lag)
    silent = min(parts, key=lambda one: one.seen_at or _NEVER)
    checkpoint = whole([one.checkpoint for one in parts])
    return replace(
        silent,
        checkpoint=replace(checkpoint, worker=silent.checkpoint.worker),
        lag=dict(sorted(lag.items())),
        is_at_least=any(one.is_at_least for one in parts),
        oldest_at=min((one.oldest_at for one in parts if one.oldest_at), default=None),
        handed_over=sum(one.handed_over for one in parts),
        parked_keys=sum(one.parked_keys for one in parts),
        parts=tuple(parts),
    )


def to_read(
    parts: Sequence[Checkpoint], current: Sequence[Checkpoint], through: LogPosition
) -> list[tuple[Checkpoint, LogPosition]]:
    """Return how far each partition must have read, before readers get it for what they have.

    A key must not go back. Where both have as many partitions, it is in the same one of both.
    """
    if len(parts) == len(current):
        reached = [one.position for one in current]
    else:
        reached = [max(one.position for one in current)] * len(parts)
    return [(one, max(through, end)) for one, end in zip(parts, reached, strict=True)]


def divided(parts: Sequence[Checkpoint], partitions: int) -> list[Checkpoint]:
    """Return the checkpoints of a projection that goes on with another number of partitions.

    A key may come to another one, which must neither miss nor repeat any of its events: all of
    them must have read equally far.
    """
    name = parts[0].projection
    if any(one.position != parts[0].position for one in parts):
        raise UsageError(
            f"The projection {name!r} has {len(parts)} partitions, which have not read equally "
            f"far, so that it cannot go on with {partitions}: declare a new version with "
            f"{partitions}, or have it begin anew with: redrive projection reset "
            f"{parts[0].name} --version {parts[0].version}"
        )
    before = replace(
        whole(parts),
        partitions=partitions,
        worker=None,
        # It was emptied as soon as one of them has begun.
        is_reset=all(one.is_reset for one in parts),
    )
    rebuild = before.rebuild and replace(before.rebuild, total=0, edits=0, edited=())
    rest = replace(
        before, event_id=None, event_type=None, applied_at=None, count=0, rebuild=rebuild
    )
    return [before, *(replace(rest, partition=one) for one in range(1, partitions))]


def went_on(
    rebuild: Rebuild, edited: Sequence[EventId], *, erased: int, is_over: bool, now: datetime
) -> Rebuild:
    """Return a rebuild after a batch: some events were applied as edited, some were passed by."""
    return replace(
        rebuild,
        edits=rebuild.edits + len(edited),
        edited=(*rebuild.edited, *edited)[:MOST_EDITED],
        erased=rebuild.erased + erased,
        ended_at=now if is_over else None,
    )


def still_read(projection: str, worker: str) -> UsageError:
    """Say that a projection cannot be dropped, because a live worker would begin it again."""
    return UsageError(
        f"The projection {projection!r} is read by the worker {worker}, which would begin it "
        "again; take it out of the app, stop the workers that have it, and drop it then."
    )


def still_serving(checkpoint: Checkpoint) -> UsageError:
    """Say that a version cannot be dropped, because readers have it."""
    return UsageError(
        f"Readers have version {checkpoint.version} of the projection {checkpoint.name!r}; swap "
        "another version in first, or drop the others."
    )


def check_swap(checkpoint: Checkpoint, current: Checkpoint | None) -> Checkpoint:
    """Return the version that readers have, unless it is this one, or this has nothing to swap."""
    who = f"Version {checkpoint.version} of the projection {checkpoint.name!r}"
    if current is None or current.projection == checkpoint.projection:
        raise UsageError(f"{who} is the one that readers have.")
    if not checkpoint.tables:
        raise UsageError(
            f"{who} names no tables, so that there is nothing to swap; declare those of its read "
            'model, as in @app.projection(version=2, tables=["orders"]), and write to '
            'model.table("orders").'
        )
    return current


def left_behind(checkpoint: Checkpoint, current: Checkpoint, stale: Sequence[str]) -> UsageError:
    """Say that readers would go on with tables of a version that they no longer have."""
    return UsageError(
        f"Version {checkpoint.version} of the projection {checkpoint.name!r} has no table "
        f"{', '.join(stale)}, of which readers would go on with that of version {current.version}; "
        "drop the view if nobody reads it, and swap again."
    )


def still_used(projection: str) -> UsageError:
    """Say that somebody has the tables of a version."""
    return UsageError(
        f"Somebody still reads the tables of {projection}, so that nothing was dropped; try again "
        "when they have finished."
    )


def no_table(projection: str, missing: Sequence[str]) -> UsageError:
    """Say that a read model lacks tables."""
    return UsageError(
        f"The projection {projection!r} has no table {missing[0]}; create it, or give the "
        "projection a function `async def create(self, model)` that does."
    )
