"""What all stores find out, and say, about projections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from redrive.errors import UsageError
from redrive.model.event import EventId
from redrive.store import Checkpoint, Rebuild

__all__ = [
    "MOST_EDITED",
    "check_swap",
    "left_behind",
    "no_table",
    "serving",
    "serving_from",
    "still_read",
    "still_serving",
    "still_used",
    "versions_beside",
    "went_on",
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


def went_on(
    rebuild: Rebuild, edited: Sequence[EventId], *, is_over: bool, now: datetime
) -> Rebuild:
    """Return a rebuild after a batch, in which some events were applied as they were edited."""
    return replace(
        rebuild,
        edits=rebuild.edits + len(edited),
        edited=(*rebuild.edited, *edited)[:MOST_EDITED],
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
