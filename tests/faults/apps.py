"""The apps that real worker processes run in these tests; each fault has its own."""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from redrive import Breaker, Event, ReadModel, Redrive, Retry, Terminal, http
from redrive.clock import SystemClock
from redrive.model.destination import Order
from redrive.observer import Claimed, DeclarationChanged, Fact, WorkerStarted
from tests.effects.ledger import Connection, Entries, Ledger
from tests.faults import mortality
from tests.faults.deadlock import lock_up
from tests.faults.journal import is_first, record
from tests.waiting import spend, spend_at_once

App = Callable[[Path], Redrive]
Payload = Event[dict[str, Any]]

clock = SystemClock()
quick_retry = Retry(max_attempts=2, base="50ms", jitter="none")
never_again = Retry(max_attempts=1)


def store_url(folder: Path) -> str:
    """Return the URL of the store: what the test has written down, else a file in the folder."""
    try:
        return (folder / "store-url").read_text("utf-8")
    except FileNotFoundError:
        return f"sqlite:///{folder}/store.db"


def make_app(
    folder: Path, *, concurrency: int = 50, grace: str = "500ms", lease: str = "6s"
) -> Redrive:
    """The lease is long enough for a heartbeat to come in time on a busy machine."""
    return Redrive(
        store_url(folder),
        lease=lease,
        poll="100ms",
        concurrency=concurrency,
        grace=grace,
    )


def steady(folder: Path) -> Redrive:
    """Takes 5 ms for each event."""
    app = make_app(folder)

    @app.handler("thing.*", name="steady")
    async def handle(event: Payload) -> None:
        await spend(0.005)
        record(folder, event, "done")

    return app


def ticking(folder: Path) -> Redrive:
    """Publishes an event each second, whatever becomes of leases."""
    app = make_app(folder, lease="1s")
    app.schedule(every="1s", type="tick.due", name="secondly", missed="all")

    @app.handler("tick.*", name="ticks")
    async def handle(event: Payload) -> None: ...

    return app


def slow(folder: Path, *, grace: str = "500ms") -> Redrive:
    """Takes as long as the event says."""
    app = make_app(folder, grace=grace)

    @app.handler("thing.*", name="slow")
    async def handle(event: Payload) -> None:
        record(folder, event, "begun")
        await spend(event.payload["seconds"])
        record(folder, event, "done")

    return app


def patient(folder: Path) -> Redrive:
    """Takes as long as the event says, and is given much time to end."""
    return slow(folder, grace="60s")


class _Threshold:
    """Lets a worker process go on only when the test says so, and says that it has come so far.

    It brings what it needs: when it is cleared away, Python has given up almost everything.
    """

    def __init__(self, folder: Path) -> None:
        self._mark = partial(os.mkdir, str(folder / "reached"))
        self._may_go = partial(os.access, str(folder / "go"), os.F_OK)
        held = threading.Lock()
        held.acquire()
        self._wait = partial(held.acquire, timeout=0.01)

    def cross(self) -> None:
        self._mark()
        while not self._may_go():
            self._wait()


class _Remains(_Threshold):
    """What is cleared away last."""

    def __del__(self) -> None:
        self.cross()


def _is_worker() -> bool:
    return "REDRIVE_TEST_FOLDER" in os.environ


def loading(folder: Path) -> Redrive:
    """Takes long to be imported."""
    if _is_worker():
        _Threshold(folder).cross()
    return steady(folder)


def leaving(folder: Path) -> Redrive:
    """Has much to do when its process ends."""
    if _is_worker():
        atexit.register(_Threshold(folder).cross)
    return steady(folder)


def remaining(folder: Path) -> Redrive:
    """Has much to do at the very last moment of its process."""
    if _is_worker():
        vars(sys)["remains"] = _Remains(folder)
    return steady(folder)


def unending(folder: Path) -> Redrive:
    """Keeps order by a thread that cannot be ended; in a later process it ends at once."""
    app = make_app(folder)

    @app.handler("thing.*", name="lane", order="park")
    def handle(event: Payload) -> None:
        record(folder, event, "begun")
        while is_first(folder):
            record(folder, event, "running")
            spend_at_once(0.002)
        record(folder, event, "done")

    return app


def refusing(folder: Path) -> Redrive:
    """Keeps order by a task that refuses to be ended; in a later process it ends at once."""
    app = make_app(folder)

    @app.handler("thing.*", name="lane", order="park")
    async def handle(event: Payload) -> None:
        record(folder, event, "begun")
        while is_first(folder):
            record(folder, event, "running")
            with suppress(asyncio.CancelledError):
                await spend(0.002)
        record(folder, event, "done")

    return app


def deafened(folder: Path) -> Redrive:
    """Stops listening to signals, and does not end."""
    app = make_app(folder)

    @app.handler("thing.*", name="deafened")
    async def handle(event: Payload) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        record(folder, event, "begun")
        await asyncio.Event().wait()

    return app


def poisoned(folder: Path) -> Redrive:
    """One event kills the process while all the others are running."""
    app = make_app(folder)

    @app.handler("thing.*", name="poisoned")
    async def handle(event: Payload) -> None:
        record(folder, event, "begun")
        await spend(0.05)
        if event.payload.get("is_pill"):
            os._exit(1)
        await spend(0.1)
        record(folder, event, "done")

    return app


def locked_up(folder: Path) -> Redrive:
    """Blocks the event loop in a C function that waits on after a signal; one holds Python, too."""
    app = make_app(folder)

    @app.handler("thing.*", name="locked", timeout="10m")
    async def handle(event: Payload) -> None:
        record(folder, event, "begun")
        while not (folder / "go").exists():
            await spend(0.01)
        lock_up(holds_python=event.payload["holds_python"])

    return app


def blocked(folder: Path, *, timeout: str = "500ms") -> Redrive:
    """One event blocks the event loop for ever; another waits when it is tried first."""
    app = make_app(folder)
    begun: list[str] = []

    @app.handler("thing.*", name="blocked", timeout=timeout)
    async def handle(event: Payload) -> None:
        record(folder, event, "begun")
        if event.payload.get("is_blocker"):
            threading.Event().wait()
        begun.append(event.id)
        if event.payload.get("is_waiting") and begun == [event.id]:
            await asyncio.Event().wait()
        await spend(0.1)
        record(folder, event, "done")

    return app


def sluggish(folder: Path) -> Redrive:
    """Blocks the event loop for as long as the event says, and then goes on."""
    app = make_app(folder)

    @app.handler("thing.*", name="sluggish", timeout="5m")
    async def handle(event: Payload) -> None:
        record(folder, event, "begun")
        spend_at_once(event.payload["seconds"])
        record(folder, event, "done")

    return app


def watched(folder: Path) -> Redrive:
    """One event blocks the event loop for ever, and is told on within less than a lease."""
    return blocked(folder, timeout="4s")


def obstinate(folder: Path) -> Redrive:
    """One event blocks the event loop for ever, and may do so for long."""
    return blocked(folder, timeout="10m")


def stuck(folder: Path) -> Redrive:
    """Events that never end, each in its own way, beside one that does."""
    app = make_app(folder, concurrency=12)

    @app.handler("thing.plain", name="plain")
    async def plain(event: Payload) -> None:
        record(folder, event, "done")

    @app.handler("thing.endless", name="endless", timeout="200ms", retry=quick_retry)
    async def endless(event: Payload) -> None:
        record(folder, event, "begun")
        await asyncio.Event().wait()

    @app.handler("thing.deaf", name="deaf", timeout="200ms", retry=never_again)
    async def deaf(event: Payload) -> None:
        record(folder, event, "begun")
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                record(folder, event, "deaf")

    @app.handler("thing.hung", name="hung", timeout="200ms", retry=never_again)
    def hung(event: Payload) -> None:
        record(folder, event, "begun")
        threading.Event().wait()

    return app


def probed(folder: Path) -> Redrive:
    """Sends events to the service whose URL is in the folder, with two probes at a time."""
    app = make_app(folder)
    app.destination(
        "service",
        "thing.*",
        transport=http(
            (folder / "url").read_text("utf-8"),
            headers={"x-process": str(os.getpid())},
            allow_private=True,
        ),
        retry=Retry(max_attempts=50, base="50ms", cap="200ms"),
        breaker=Breaker(failures=3, open_for="1s", successes=20, probes=2, ramp="2s"),
        retry_rate=None,
    )
    return app


def ordered(folder: Path, *, order: str) -> Redrive:
    """Keeps the order of keys, and refuses what is marked until somebody has mended it."""
    app = make_app(folder, lease="10s")

    @app.handler("thing.*", name="ordered", order=Order(order), retry=never_again, replay_rate=None)
    async def handle(event: Payload) -> None:
        record(folder, event, "begun")
        await spend(0.001)
        if event.payload.get("is_bad") and not (folder / "mended").exists():
            raise Terminal("it is marked")
        record(folder, event, "done")

    return app


def parking(folder: Path) -> Redrive:
    """Keeps later events of a key behind one that has failed."""
    return ordered(folder, order="park")


def blocking(folder: Path) -> Redrive:
    """Stops altogether when one has failed."""
    return ordered(folder, order="block")


def skipping(folder: Path) -> Redrive:
    """Goes on with the key of one that has failed."""
    return ordered(folder, order="skip")


def mending(folder: Path) -> Redrive:
    """Refuses everything until there is a file named `fixed`, and then takes 2 ms for each."""
    app = make_app(folder, lease="8s")

    @app.handler("thing.*", name="mending", retry=never_again, replay_rate=None)
    async def handle(event: Payload) -> None:
        if not (folder / "fixed").exists():
            raise Terminal("not yet")
        await spend(0.002)
        record(folder, event, "done")

    return app


def bookkeeping(folder: Path) -> Redrive:
    """Writes each number into a ledger in the store's database; the marked ones kill it once.

    Leases may be lost: that changes nothing of what is written.
    """
    app = make_app(folder, lease="1s")
    ledger = Ledger(app.settings.store)
    patient = Retry(max_attempts=100, base="50ms", cap="1s")

    @app.handler("thing.*", name="books", transactional=True, timeout="300ms", retry=patient)
    async def handle(event: Payload, connection: Connection) -> None:
        record(folder, event, "begun")
        await ledger.write(connection, event.payload["number"])
        await spend(0.001)
        mortality.die_once(folder, event, at="effect")

    return app


def dividing(folder: Path) -> Redrive:
    """Does as `projecting`, by four readers side by side."""
    return projecting(folder, partitions=4)


def projecting(folder: Path, *, partitions: int = 1) -> Redrive:
    """Writes what was paid for each key into a table of the store's database.

    What is marked as bad fails until somebody has mended it.
    """
    app = make_app(folder)
    entries = Entries(app.settings.store)

    @app.projection(
        "thing.*", name="entries", timeout="1s", retry=never_again, partitions=partitions
    )
    async def write(event: Payload, model: ReadModel) -> None:
        await entries.write(model.connection, event.key or "", event.payload["number"])
        if event.payload["is_bad"] and not (folder / "mended").exists():
            raise RuntimeError("it is bad")

    return app


def soaked(folder: Path) -> Redrive:
    """One destination that fails one try in twenty, and one that keeps the order of keys."""
    app = make_app(folder, lease="8s")
    often = Retry(max_attempts=20, base="100ms", cap="1s")
    flaky = random.Random(os.getpid())  # noqa: S311 - which ones fail does not matter

    @app.handler("thing.*", name="steady", retry=often, retry_rate=None)
    async def handle(event: Payload) -> None:
        await spend(0.002)
        if flaky.random() < 0.05:
            raise ConnectionError("one in twenty")
        record(folder, event, "done")

    @app.handler("thing.*", name="ordered", order="park", retry=often, retry_rate=None)
    async def keep_order(event: Payload) -> None:
        record(folder, event, "kept")

    return app


def released(folder: Path, *, release: str = "") -> Redrive:
    """One of three releases that differ in what they declare; the third ends when it starts.

    What its workers claim, begin and end is written down with the time.
    """
    release = release or os.environ.get("REDRIVE_TEST_RELEASE", "2")
    app = make_app(folder, concurrency=20)
    declared: dict[str, tuple[tuple[str, ...], Order, str]] = {
        "1": (("thing.*",), Order.NONE, "150/s"),
        "2": (("thing.*", "extra.*"), Order.PARK, "100/s"),
        "3": (("thing.*",), Order.SKIP, "120/s"),
    }
    patterns, order, rate = declared[release]
    app.observe(Watchman(folder, release))

    @app.handler(*patterns, name="shop", order=order, rate=rate, retry=Retry(max_attempts=20))
    async def handle(event: Payload) -> None:
        note(folder, "begun", event.payload["number"], release)
        await spend(0.002)
        note(folder, "ended", event.payload["number"], release)

    return app


class Watchman:
    """Writes down what a worker claims; the third release ends as soon as it is at work."""

    def __init__(self, folder: Path, release: str) -> None:
        self._folder = folder
        self._release = release

    def notice(self, fact: Fact) -> None:
        match fact:
            case WorkerStarted() if self._release == "3":
                os._exit(1)
            case DeclarationChanged(worker=worker) if worker:
                note(self._folder, "declared", 0, worker)
            case Claimed(deliveries=deliveries):
                for one in deliveries:
                    number = msgspec.json.decode(one.event.payload)["number"]
                    at = one.claimed_at.timestamp()
                    note(self._folder, "claimed", number, self._release, at=at)


def note(folder: Path, what: str, number: int, release: str, *, at: float | None = None) -> None:
    """Append one line, whole even when many processes write: what, number, when, whose."""
    line = f"{what} {number} {at or clock.now().timestamp():.6f} {release} {os.getpid()}\n"
    journal = os.open(folder / "deployments", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(journal, line.encode())
    finally:
        os.close(journal)
