"""Redrive: an event that is tracked, with a rate, to a destination that takes it at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.contender import Arena, Contender, Place, Role
from benchmarks.measures.calls import describe_library
from benchmarks.measures.tracking import FIELDS, Way, track_workload
from redrive import Rate, Redrive, Tracking
from redrive.model.delivery import Leased
from redrive.model.outcome import Outcome, Succeeded

__all__ = ["CONTENDER"]

_AMPLE = Rate(per_second=1e8, burst=1e8)


class _Nowhere:
    batch = 500

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        return [Succeeded()] * len(deliveries)


@contextmanager
def _handing(place: Place) -> Iterator[Way]:
    app = Redrive(
        f"sqlite:///{place.folder}/tracking.db",
        journal=place.folder / "journal",
        tracking=Tracking(rate=_AMPLE),
    )
    app.destination("nowhere", "page.*", transport=_Nowhere())
    yield lambda: app.track("page.seen", FIELDS), lambda: app.tracking.flush_blocking("30s")
    figures = app.tracking.flush_blocking("30s")
    assert figures.sent == figures.tracked
    app.tracking.close()


CONTENDER = Contender(
    name="Redrive",
    role=Role.ENGINE,
    arena=Arena.TRACKING,
    describe=describe_library("redrive"),
    workloads=track_workload(_handing),
)
