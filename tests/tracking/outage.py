"""An outage of the store under load: `python -m tests.tracking.outage 20` is one of 20 seconds."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from pathlib import Path

from redrive import Redrive, Tracking
from redrive.app.declaration import Ports
from redrive.clock import SystemClock
from redrive.journal.folder import FileState, files_of
from redrive.model.delivery import Status
from redrive.store import Query
from tests.tracking.sinks import Good
from tests.tracking.test_outage import Weak
from tests.waiting import eventually

__all__ = ["suffer"]

_MOST = 1_000_000


async def suffer(folder: Path, *, seconds: float, threads: int = 2) -> str:
    """Track from several threads while the store goes away and comes back; all arrives once."""
    store, good = Weak(SystemClock()), Good()
    app = Redrive("memory://", journal=folder, tracking=Tracking(rate=None, capacity=2_000))
    app.destination("good", "page.*", transport=good)
    tracked: list[list[str]] = [[] for _ in range(threads)]
    is_over = threading.Event()

    def load(mine: list[str]) -> None:
        while not is_over.wait(0.001):
            mine.append(app.track("page.seen", {"n": len(mine)}).event_id)

    with app.rewired(Ports(), lambda: store):
        app.track("page.first")
        await app.flush()
        loads = [threading.Thread(target=load, args=[mine]) for mine in tracked]
        for one in loads:
            one.start()
        await eventually(lambda: len(good.taken) > 20, what="all is well at first")
        store.is_down = True
        began = time.monotonic()
        await eventually(
            lambda: time.monotonic() - began > seconds and app.tracking.figures().spilled > 20,
            what="the journal is written",
        )
        store.is_down = False
        sent = len(good.taken)
        await eventually(lambda: len(good.taken) > sent + 20, what="all is well again")
        is_over.set()
        for one in loads:
            one.join()
        await app.flush("30s")
        await eventually(
            lambda: app.tracking.figures().drained == app.tracking.figures().spilled,
            what="the journal is drained",
        )
        figures = app.tracking.figures()
        page = await store.find(Query(status=Status.PENDING, destination="good"), limit=_MOST)
        await app.close()
    stored = [one.event_id for one in page.deliveries]
    given = [*good.taken[1:], *stored]
    assert len(given) == len(set(given))
    assert set(given) == {one for mine in tracked for one in mine}
    assert figures.is_balanced
    assert not figures.dropped
    assert len(stored) == figures.spilled + figures.stored
    assert all(one.state is FileState.DRAINED for one in files_of(folder))
    return f"{figures.tracked:,} tracked, {figures.spilled:,} by way of the journal, none lost"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        sys.stdout.write(asyncio.run(suffer(Path(place), seconds=float(sys.argv[1]))) + "\n")
