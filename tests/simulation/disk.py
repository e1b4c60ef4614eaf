"""The real SQLite store, inline, on one host whose disk fails: writes, syncs, and no space left."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, ParamSpec, TypeVar
from unittest.mock import patch

import apsw

from redrive.errors import StoreUnavailableError
from redrive.model.delivery import Delivery, Status
from redrive.model.destination import Destination, Routes
from redrive.model.pattern import matches
from redrive.model.position import LOG_START
from redrive.store import PUBLISHER, Appended, Backfilled, Query, Registered, Store
from redrive.stores.sealed import PLAIN
from redrive.stores.sql.audit import read_audit
from redrive.stores.sql.checkpoints import all_projections
from redrive.stores.sql.counts import read_miscounts
from redrive.stores.sql.figures import read_figures
from redrive.stores.sql.inspection import conditions_of, find_deliveries
from redrive.stores.sql.log import read_events
from redrive.stores.sql.registering import register
from redrive.stores.sql.replays import find_replays
from redrive.stores.sqlite import (
    SqliteStore,
    SqliteTransaction,
    core,
)
from redrive.stores.sqlite.connection import connect
from redrive.stores.sqlite.schema import migrate
from redrive.stores.sqlite.session import SqliteSession, finish
from redrive.stores.sqlite.threads import Reader, Threads, Writer
from tests.proof.checkers.records import (
    Call,
    ClockSet,
    Looked,
    Made,
    Modelled,
    Record,
    Served,
    Wanted,
)
from tests.simulation.follower import Follower
from tests.simulation.history import History
from tests.simulation.loop import SimulationLoop
from tests.simulation.machine import Machine
from tests.simulation.network import WITNESSED, given_by_name, tells
from tests.simulation.plan import Plan, ProjectionPlan
from tests.simulation.ports import HostClock

__all__ = ["HostGround"]

T = TypeVar("T")
P = ParamSpec("P")
_ALL = 100_000
_ALL_REPLAYS = "ORDER BY r.id DESC"
_TICKS = (0.5, 0.5)
"""How often a waiting worker looks for what others have written; 0.05 s would be most of a run."""
_PATIENCE = 10.0
_ASKS_AGAIN = 0.005
"""How long a process waits for the write lock, and how often it looks, in seconds."""
_COMMITS = ("_commit", "_finish")
"""What ends the transactions of projections and their lanes."""
_MODEL = "CREATE TABLE model (number INTEGER PRIMARY KEY, projection TEXT, event TEXT)"
_numbers = count(1)


class _About(NamedTuple):
    """The call of the contract that a call of the writer belongs to."""

    method: str
    given: dict[str, Any]


_about: ContextVar[_About | None] = ContextVar("about", default=None)


class _Disk(apsw.VFS):
    """A file system that fails as the plan says."""

    def __init__(self, plan: Plan) -> None:
        self.is_full = False
        self.is_faulty = True
        self.is_ours = False
        self.writes = 0
        self._errors = plan.disk_errors
        self._chance = Random(f"disk of {plan.seed}")  # noqa: S311 - a simulation
        self._name = f"simulated-{next(_numbers)}"
        super().__init__(self._name, "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _File(self, name, flags)

    def fail(self, what: str) -> None:
        """Fail, if it is time to."""
        if self.is_ours or not self.is_faulty:
            return
        if self.is_full:
            raise apsw.FullError("no space left")
        if self._chance.random() < self._errors:
            if self._chance.random() < 0.3:
                raise apsw.FullError("no space left for a moment")
            raise apsw.IOError(f"a {what} failed")


class _File(apsw.VFSFile):
    def __init__(self, disk: _Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.fail("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        # Nothing here survives the run, so nothing has to reach the real disk.
        self._disk.fail("sync")


class _InlineReader(Reader):
    """Reads on the loop itself, a moment after it was asked."""

    def __init__(self, path: Path, process: _Process) -> None:
        super().__init__(path, name="inline")
        self._process = process

    def start(self) -> None:
        self._is_open = True

    def stop(self) -> None:
        self._is_open = False
        self._let_go()

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        calls = self._gathered.pop(loop)
        loop.call_later(self._process.latency(), self._serve, calls)

    def let_go(self) -> None:
        self._let_go()


class _InlineWriter(Writer):
    """Commits on the loop itself, a moment after it was asked, with a witness."""

    def __init__(self, path: Path, process: _Process) -> None:
        super().__init__(path, name="inline")
        self._process = process
        self._done: list[tuple[_About, Any]] = []

    def start(self) -> None:
        self._is_open = True

    def stop(self) -> None:
        self._is_open = False
        self._let_go()

    async def call(self, function: Callable[[apsw.Connection], T]) -> T:
        about = _about.get()

        def told(connection: apsw.Connection) -> T:
            answer = function(connection)
            if about is not None:
                self._done.append((about, answer))
            return answer

        return await super().call(told)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        calls = self._gathered.pop(loop)
        until = loop.time() + _PATIENCE
        loop.call_later(self._process.latency(), self._when_free, loop, calls, until)

    def _when_free(self, loop: asyncio.AbstractEventLoop, calls: list[Any], until: float) -> None:
        """Wait for whoever has the write lock, as SQLite does, and not for ever."""
        if self._process.is_locked and loop.time() < until:
            loop.call_later(_ASKS_AGAIN, self._when_free, loop, calls, until)
            return
        self._serve(calls)

    def _perform(self, connection: apsw.Connection, calls: list[Any]) -> None:
        self._done = []
        if self._process.is_locked:
            raise apsw.BusyError("another process has the write lock")
        super()._perform(connection, calls)
        for about, answer in self._done:
            self._process.witness(about, answer)

    def let_go(self) -> None:
        self._let_go()


class _Process(Threads):
    """What one process runs inline, and what it has open; all of it closes when it dies."""

    def __init__(self, ground: HostGround, machine: Machine) -> None:
        self._ground = ground
        self._machine = machine
        self._files: list[_InlineReader | _InlineWriter] = []
        self._connections: list[apsw.Connection] = []

    def latency(self) -> float:
        return self._ground.latency()

    def witness(self, about: _About, answer: object) -> None:
        self._ground.witness(about, answer)

    def writer(self, path: Path) -> Writer:
        writer = _InlineWriter(path, self)
        self._files.append(writer)
        return writer

    def reader(self, path: Path) -> Reader:
        reader = _InlineReader(path, self)
        self._files.append(reader)
        return reader

    @property
    def is_locked(self) -> bool:
        """Whether somebody on the host has a transaction open that writes."""
        return self._ground.is_locked

    def has_lock(self) -> bool:
        self._connections = [one for one in self._connections if _is_open(one)]
        return any(one.in_transaction for one in self._connections)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        name = getattr(function, "__name__", "")
        if (args[1:] == ("COMMIT",) or name in _COMMITS) and self._ground.dies_now():
            self._machine.die("it crashes in a transaction")
            await self._machine.loop.create_future()
        if args[1:] == ("BEGIN IMMEDIATE",) or name == "_take_lock":
            await self._wait_for_lock()
        result = function(*args, **kwargs)
        if isinstance(result, apsw.Connection):
            self._connections.append(result)
        return result

    async def _wait_for_lock(self) -> None:
        loop = self._machine.loop
        until = loop.time() + _PATIENCE
        while self.is_locked:
            if loop.time() >= until:
                raise StoreUnavailableError("another process has the write lock")
            await loop.pause(_ASKS_AGAIN)

    def let_go(self) -> None:
        """Close what the dead process had open: a transaction under way is as if it never was."""
        for file in self._files:
            file.let_go()
        for connection in self._connections:
            connection.close(force=True)


def _is_open(connection: apsw.Connection) -> bool:
    try:
        return connection.in_transaction or True
    except apsw.ConnectionClosedError:
        return False


class _SimulatedStore(SqliteStore):
    """The real store of one process, with a witness for what joins a transaction."""

    def __init__(self, ground: HostGround, process: _Process, path: Path, clock: HostClock) -> None:
        super().__init__(path, clock=clock, history=20, threads=process)
        self._ground = ground
        self._joined: list[tuple[_About, Any]] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SqliteTransaction]:
        self._joined = []
        async with super().transaction() as transaction:
            yield transaction
        for about, answer in self._joined:
            self._ground.witness(about, answer)


def _witnessed(method: str) -> Callable[..., Any]:
    named = given_by_name(method)
    plain = getattr(SqliteStore, method)

    async def call(self: _SimulatedStore, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the store has it
        about = _About(method, named(args, kwargs))
        _about.set(about)
        try:
            answer = await plain(self, *args, **kwargs)
        finally:
            _about.set(None)
        if about.given.get("within") is not None:
            self._joined.append((about, answer))
        return answer

    return call


for _method in WITNESSED:
    setattr(_SimulatedStore, _method, _witnessed(_method))


class HostGround:
    """One host with one clock, one file, and as many processes as the plan has."""

    def __init__(self, plan: Plan, loop: SimulationLoop, history: History) -> None:
        self.ways: Counter[str] = Counter()
        self._plan = plan
        self._loop = loop
        self._history = history
        self._follower = Follower(
            lambda after: finish(read_events(self._session, after=after, limit=_ALL)).events,
            history,
            loop,
        )
        self._clock = HostClock(loop, ahead=plan.ahead)
        self._disk = _Disk(plan)
        self._chance = Random(f"host of {plan.seed}")  # noqa: S311 - a simulation
        self._folder = Path(tempfile.mkdtemp(prefix="redrive-simulation-"))
        self._path = self._folder / "store.db"
        self._processes: dict[str, list[_Process]] = {}
        self._tick = patch.object(core, "_TICKS", _TICKS)
        self._tick.start()
        self._eye = self._safely(lambda: connect(self._path))

    @property
    def _session(self) -> SqliteSession:
        return SqliteSession(self._eye, self._clock.now(), PLAIN)

    def clock_for(self, number: int) -> HostClock:
        return self._clock

    def begin(self, destinations: list[Destination]) -> None:
        def prepare() -> None:
            migrate(self._eye, name="simulated")
            self._eye.execute(_MODEL)
            with self._eye:
                finish(register(self._session, destinations, by=PUBLISHER, again=False, history=20))

        self._safely(prepare)
        given = {"destinations": destinations}
        self.witness(_About("register", given), Registered(routes=Routes(0, destinations)))

    def make_store(self, machine: Machine) -> Store:
        process = _Process(self, machine)
        self._processes.setdefault(machine.name, []).append(process)
        return _SimulatedStore(self, process, self._path, self._clock)

    def lose_store(self, machine: Machine) -> None:
        for process in self._processes.pop(machine.name, ()):
            self._safely(process.let_go)

    def fail(self, *, is_down: bool) -> None:
        self._disk.is_full = is_down

    def step(self, by: timedelta, machines: list[Machine]) -> None:
        self._set_clock(by)

    def step_machine(self, machine: Machine, by: timedelta) -> None:
        self._set_clock(by)

    def _set_clock(self, by: timedelta) -> None:
        self._history.write(ClockSet(at=self._loop.time(), was=self._clock.now()))
        self._clock.step(by)

    def heal(self) -> None:
        self._disk.is_full = self._disk.is_faulty = False

    def look(self, *, is_final: bool = False) -> Looked:
        def read() -> Looked:
            session = self._session
            return Looked(
                at=self._loop.time(),
                now=session.now,
                deliveries=tuple(one for status in Status for one in self._in(status)),
                events=tuple(
                    one.event
                    for one in finish(read_events(session, after=LOG_START, limit=_ALL)).events
                ),
                figures=finish(read_figures(session)),
                miscounts=tuple(finish(read_miscounts(session))),
                audit=tuple(finish(read_audit(session, before=None, limit=_ALL))),
                replays=tuple(finish(find_replays(session, _ALL_REPLAYS))),
                is_final=is_final,
            )

        self._safely(self._follower.go_on)
        return self._safely(read)

    def models(self, projections: Sequence[ProjectionPlan], *, is_final: bool) -> list[Record]:
        """Read every read model beside the log, and what readers have."""
        return self._safely(
            lambda: [
                *self._read_models(projections, is_final=is_final),
                *self._read_served(projections),
            ]
        )

    def _read_served(self, projections: Sequence[ProjectionPlan]) -> list[Served]:
        views = "SELECT name FROM sqlite_master WHERE type = 'view'"
        known = {name for (name,) in self._eye.execute(views)}
        return [
            Served(
                at=self._loop.time(),
                projection=one.name,
                events=frozenset(
                    event
                    for (event,) in self._eye.execute(f"SELECT event FROM {one.name}")  # noqa: S608 - a view of ours
                ),
            )
            for one in projections
            if one.name in known
        ]

    def _read_models(
        self, projections: Sequence[ProjectionPlan], *, is_final: bool
    ) -> list[Modelled]:
        session = self._session
        figures = {one.checkpoint.projection: one for one in finish(all_projections(session))}
        parts = {
            title: [part.checkpoint for part in one.parts or (one,)]
            for title, one in figures.items()
        }
        log = finish(read_events(session, after=LOG_START, limit=_ALL)).events
        handed_over = [one for status in Status for one in self._in(status)]
        applied = list(self._eye.execute("SELECT projection, event FROM model ORDER BY number"))
        return [
            Modelled(
                at=self._loop.time(),
                projection=title,
                keeps_order=plan.on_failure != "skip",
                wanted=tuple(
                    Wanted(one.position, one.event.id, one.event.key)
                    for one in log
                    if any(matches(pattern, one.event.type) for pattern in plan.patterns)
                ),
                applied=tuple(event for name, event in applied if name == title),
                handed_over=frozenset(
                    one.event_id for one in handed_over if one.destination == title
                ),
                unfinished=frozenset(
                    one.event_id
                    for one in handed_over
                    if one.destination == title
                    and one.status is not Status.DELIVERED
                    and one.resolution is None
                ),
                reached=tuple(part.position for part in parts[title]),
                is_reset=all(part.is_reset for part in parts[title]),
                is_told_caught_up=figures[title].is_caught_up,
                is_final=is_final,
            )
            for plan in projections
            for title in plan.titles.values()
            if title in figures
        ]

    def unsettled(self) -> tuple[datetime, list[Delivery]]:
        def read() -> list[Delivery]:
            return [
                one
                for status in (Status.PENDING, Status.IN_FLIGHT, Status.FAILED)
                for one in self._in(status)
                if one.resolution is None
            ]

        return self._clock.now(), self._safely(read)

    def end(self) -> None:
        self.heal()
        for processes in self._processes.values():
            for process in processes:
                with suppress(Exception):
                    process.let_go()
        self._eye.close(force=True)
        self._tick.stop()
        self._disk.unregister()
        shutil.rmtree(self._folder, ignore_errors=True)

    def latency(self) -> float:
        return self._chance.random() * self._plan.latency

    @property
    def is_locked(self) -> bool:
        """Whether some process has the write lock of the file."""
        processes = [one for some in self._processes.values() for one in some]
        return any(one.has_lock() for one in processes)

    def dies_now(self) -> bool:
        """Tell whether a process crashes in the middle of its transaction."""
        return self._disk.is_faulty and self._chance.random() < 0.1

    def witness(self, about: _About, answer: Any) -> None:  # noqa: ANN401 - any answer
        """Take down what the store has committed."""
        if not tells(about.method, answer):
            return
        queries: list[Query] = []
        if isinstance(answer, Backfilled):
            queries = [Query(status=Status.PENDING, destination=about.given["destination"])]
        if isinstance(answer, Appended):
            ids = [entry.event.id for entry in about.given["entries"]]
            queries = [Query(status=Status.PENDING, event_id=one) for one in ids]
        made = self._safely(
            lambda: [
                Made(one.event_id, one.destination, one.id, one.rule)
                for query in queries
                for one in self._find(query)
            ]
        )
        given = {name: value for name, value in about.given.items() if name != "within"}
        self._history.write(
            Call(
                at=self._loop.time(),
                now=self._clock.now(),
                method=about.method,
                given=given,
                answer=answer,
                made=tuple(sorted(made, key=lambda one: one.id)),
            )
        )
        if isinstance(answer, Appended):
            self._safely(self._follower.go_on)

    def _in(self, status: Status) -> list[Delivery]:
        return self._find(Query(status=status, with_resolved=True))

    def _find(self, query: Query) -> list[Delivery]:
        session = self._session
        conditions, values = finish(conditions_of(session, query, "d.enqueued_at"))
        where = f"WHERE {' AND '.join(conditions)} ORDER BY d.id"
        return finish(find_deliveries(session, where, *values))

    def _safely(self, work: Callable[[], T]) -> T:
        """Do what is no part of the simulated system, on a disk that does not fail."""
        before, self._disk.is_ours = self._disk.is_ours, True
        try:
            return work()
        finally:
            self._disk.is_ours = before
