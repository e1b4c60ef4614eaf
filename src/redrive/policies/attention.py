"""Attention: which work nobody claims, and which dead letters are near their limit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from redrive.model.duration import spell_duration
from redrive.model.retention import Keep
from redrive.store import (
    DestinationFigures,
    DueWork,
    Figures,
    LetterQuota,
    ProjectionFigures,
    WorkerFigures,
    Workload,
)

__all__ = [
    "SILENT_AFTER",
    "expiring",
    "is_read",
    "live_workers",
    "near_limit",
    "orphans",
    "overflow",
    "stranded",
]

SILENT_AFTER = timedelta(minutes=1)
"""A worker that was not heard of for this long is taken to be gone."""

_NEAR = 0.8


def live_workers(workload: Workload) -> frozenset[str]:
    """Return the names of the workers that were heard of lately."""
    return frozenset(
        one.id for one in workload.workers if workload.now - one.seen_at < SILENT_AFTER
    )


def stranded(
    due: Sequence[DueWork], workers: Sequence[WorkerFigures], *, now: datetime
) -> tuple[DueWork, ...]:
    """Return the due work that no live worker claims.

    Nothing is, while no worker lives at all or while one lives that never said what it claims.
    """
    serving = [one.serving for one in workers if now - one.seen_at < SILENT_AFTER]
    known = [one for one in serving if one is not None]
    if not serving or len(known) < len(serving):
        return ()
    served = {
        (name, generation)
        for one in dict.fromkeys(known)
        for name in one.destinations
        for generation in one.generations
    }
    return tuple(one for one in due if (one.destination, one.generation) not in served)


def orphans(figures: Figures) -> tuple[DestinationFigures, ...]:
    """Return the destinations with something waiting that were removed or have no live worker."""
    serving = [one.serving for one in figures.workers if figures.now - one.seen_at < SILENT_AFTER]
    served = frozenset(name for one in serving if one for name in one.destinations)
    is_known = bool(serving) and None not in serving
    return tuple(
        one
        for one in figures.destinations
        if one.pending
        and (one.is_removed or (is_known and one.name not in served and not one.is_disabled))
    )


def near_limit(keep: Keep, *, count: int, oldest: datetime | None, now: datetime) -> str | None:
    """Say which limit of a destination's dead letters is nearly reached, if one is."""
    if keep.count is not None and count >= keep.count * _NEAR:
        return f"{count:,} of {keep.count:,} dead letters"
    if keep.age is not None and oldest is not None and now - oldest >= keep.age * _NEAR:
        return f"an age of {spell_duration(keep.age)}"
    return None


def overflow(quota: LetterQuota) -> int:
    """Return how many dead letters are over the count their destination keeps."""
    return 0 if quota.keep.count is None else max(0, quota.count - quota.keep.count)


def expiring(quota: LetterQuota) -> datetime | None:
    """Return the instant up to which dead letters failed that are too old; `None` if none did."""
    if quota.keep.age is None or quota.oldest is None:
        return None
    limit = quota.now - quota.keep.age
    return limit if quota.oldest <= limit else None


def is_read(projection: ProjectionFigures) -> bool:
    """Tell whether a worker that was heard of lately reads for a projection."""
    seen_at = projection.seen_at
    return seen_at is not None and projection.now - seen_at < SILENT_AFTER
