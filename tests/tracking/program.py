"""A program that tracks and is ended in every way; it says on its standard output what it does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from redrive import Bypass, Redrive, Tracking
from redrive.model.delivery import Leased
from redrive.model.outcome import Outcome, Succeeded
from redrive.tracking.terms import Candidate
from tests.waiting import spend_at_once


class Notes:
    """Writes down what arrives, a line each, which outlives any kill."""

    batch = 50

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        self._file.write("".join(f"{one.event.id}\n" for one in deliveries))
        self._file.flush()
        return [Succeeded()] * len(deliveries)


class Hung:
    """Never answers."""

    batch = 50

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        await asyncio.Event().wait()
        return []


def say(what: str) -> None:
    """Tell whoever started this."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def end_within(_: Candidate) -> bool:
    """Be told to end while `track` is under way: this is called in the middle of it."""
    signal.raise_signal(signal.SIGTERM)
    return True


def main(how: str, folder: Path, store: str) -> None:
    """Track until told to stop, or so many events."""
    app = Redrive(
        store,
        journal=folder / "journal",
        tracking=Tracking(
            rate=None,
            capacity=500,
            flush_limit="1s",
            sampling={"page.last": 0.5},
            bypass=Bypass(when=end_within),
        ),
    )
    app.destination("notes", "page.*", transport=Notes(folder / f"notes-{how}"))
    if how in {"hung", "within"}:
        app.destination("hung", "page.*", transport=Hung())
    tracked = (folder / f"tracked-{how}").open("a", buffering=1)
    if how == "fork":
        fork(app, tracked)
        return
    number = 0
    while how in {"forever", "hung", "within"} or number < 300:
        number += 1
        if how == "within" and number > 100:
            app.track("page.last", {"n": number})
        tracked.write(f"{app.track('page.seen', {'n': number}).event_id}\n")
        if number == 50:
            app.tracking.flush_blocking("100ms" if how == "hung" else "5s")
            say("begun")
        if number > 50:
            spend_at_once(0.0002)
    if how == "exit":
        sys.exit(3)


def fork(app: Redrive, tracked: object) -> None:
    """Track in a parent and in a child: each has what it tracked itself."""
    for number in range(20):
        app.track("page.seen", {"parent": number})
    child = os.fork()
    if child == 0:
        assert app.tracking.figures().tracked == 0
        for number in range(10):
            app.track("page.seen", {"child": number})
        assert app.tracking.flush_blocking("10s").sent == 10
        os._exit(0)
    _, status = os.waitpid(child, 0)
    figures = app.tracking.flush_blocking("10s")
    say(f"child {status} parent {figures.sent}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
