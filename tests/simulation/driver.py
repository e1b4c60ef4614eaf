"""The driver of PostgreSQL in virtual time: every statement runs for real, and takes its time here.

On the way things go wrong: a statement is lost, or its answer after it took effect, or the whole
connection; a notification is late, or never comes. All processes share one thread, so a statement
that has to wait for a lock is undone and tried again when some transaction has ended, which is what
it would have found then.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import asyncpg

from tests.proof.checkers.records import Silenced
from tests.simulation.backend import Backend, RealServer
from tests.simulation.history import History
from tests.simulation.loop import SimulationLoop, Strand, current_strand
from tests.simulation.plan import Plan
from tests.simulation.ports import HostClock

__all__ = ["LAST_USED", "Connection", "Driver", "Watch"]

Watch = Callable[[str], Callable[[list[Any]], None] | None]
"""Asked by whoever sends a statement: who wants to hear of its rows, once all is committed."""

_SILENCE = re.compile(r"(idle_in_transaction_session_timeout = )'(\d+)s'")
_PATIENCE = re.compile(r"(lock_timeout = |'lock_timeout', )'(\d+)ms'")
_LOCKING = re.compile(r"INSERT|UPDATE|DELETE|FOR (KEY )?SHARE|advisory|replay_all")
"""What has to wait for others, if they have it locked."""
_TIME = "SELECT clock_timestamp()"
_TIME_UNLESS_GIVEN = "coalesce($1::timestamptz, clock_timestamp())"
_NOTIFY = re.compile(r"NOTIFY (\w+)")
_ENDS = ("COMMIT", "ROLLBACK")
_DEADLOCK_SECONDS = 1.0
_LEAST_PATIENCE, _MOST_PATIENCE = 0.05, 3.0
"""How long it takes until somebody hears that a connection is gone."""
_STATEMENTS = 4
"""About how many statements a call takes; the plan says what goes wrong with calls."""
LAST_USED: ContextVar[Connection] = ContextVar("last used")
"""The connection on which a task has sent its last statement."""


class _Text(NamedTuple):
    """A statement as it is run, and the limits that it sets, in seconds of virtual time."""

    text: str
    silence: float | None
    patience: float | None
    asks_the_time: bool
    may_wait: bool


@lru_cache(maxsize=2_000)
def _read(statement: str) -> _Text:
    """Take the limits out of a statement: the server is not to count seconds of its own."""
    silence, patience = _SILENCE.search(statement), _PATIENCE.search(statement)
    text = _PATIENCE.sub(r"\1'1ms'", _SILENCE.sub(r"\g<1>0", statement))
    return _Text(
        text,
        None if silence is None else float(silence[2]),
        None if patience is None else float(patience[2]) / 1000,
        "clock_timestamp" in text,
        _LOCKING.search(text) is not None,
    )


class _Request:
    """A statement under way, and who hears of it: `after` is called when it has taken effect."""

    __slots__ = ("after", "back", "connection", "fate", "how", "is_over", "read", "reply", "values")

    def __init__(  # noqa: PLR0917 - all that there is to know
        self,
        connection: Connection,
        how: str,
        statement: str,
        values: tuple[object, ...],
        reply: asyncio.Future[Any],
        after: Callable[[list[Any]], None] | None,
    ) -> None:
        self.connection = connection
        self.how = how
        self.read = _read(statement)
        self.values = values
        self.reply = reply
        self.after = after
        self.fate = ""
        self.back = 0.0
        self.is_over = False


class Connection:
    """What the store takes for a connection of its driver."""

    was_closed = False
    wants_new_plans = False

    def __init__(self, driver: Driver, machine: str, backend: Backend, number: int) -> None:
        self.machine = machine
        self.number = number
        self._process: int = backend.connection.get_server_pid()
        self.backend: Backend | None = backend
        """The session on the server, while there is one."""
        self.settings: Mapping[str, str] = {}
        self.is_cut = False
        self.is_failed = False
        """Whether the transaction has failed, so that it can only be rolled back."""
        self.begin = ""
        """The beginning of a transaction, which the server hears of with the first statement."""
        self.may_hold = False
        """Whether it is in a transaction that may have locked something."""
        self.now = datetime.min.replace(tzinfo=UTC)
        """What time it was when it was last asked for."""
        self.request: _Request | None = None
        self.patience: float | None = None
        self.silence: float | None = None
        self.idle_timer: asyncio.TimerHandle | None = None
        self.on_commit: list[Callable[[], None]] = []
        """What to take down when the transaction is committed."""
        self.listeners: dict[str, list[Callable[..., None]]] = {}
        self.on_end: list[Callable[[Any], None]] = []
        self._driver = driver

    @property
    def is_in_transaction(self) -> bool:
        if self.backend is None:
            return False
        return bool(self.begin) or self.is_failed or self.backend.connection.is_in_transaction()

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        rows: list[Any] = await self._driver.ask(self, "fetch", statement, values)
        return rows

    async def fetchrow(self, statement: str, *values: object) -> Any:  # noqa: ANN401 - any row
        rows = await self.fetch(statement, *values)
        return rows[0] if rows else None

    async def fetchval(self, statement: str, *values: object) -> Any:  # noqa: ANN401 - any column
        row = await self.fetchrow(statement, *values)
        return None if row is None else row[0]

    async def execute(self, statement: str, *values: object) -> str:
        status: str = await self._driver.ask(self, "execute", statement, values)
        return status

    def took(self, seconds: float, *, now: float) -> None:
        """Keep its plans: the tables of a world are small."""

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None:
        await self.execute("SELECT")
        self.listeners.setdefault(channel, []).append(callback)

    def add_termination_listener(self, callback: Callable[[Any], None]) -> None:
        self.on_end.append(callback)

    def get_server_pid(self) -> int:
        return self._process

    def get_server_version(self) -> Any:  # noqa: ANN401 - of the driver
        return self._driver.version

    def is_closed(self) -> bool:
        return self.is_cut or self.was_closed

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the driver's
        self.terminate()

    def terminate(self) -> None:
        self.was_closed = True
        self._driver.hang_up(self)


class Driver:
    """The way from the processes of one world to the server, in place of `asyncpg.connect`."""

    def __init__(
        self,
        plan: Plan,
        real: RealServer,
        *,
        loop: SimulationLoop,
        history: History,
        clock: HostClock,
        watch: Watch,
        spoils: tuple[str, str] | None = None,
    ) -> None:
        self.is_down = False
        self.is_faulty = True
        self._plan = plan
        self._real = real
        self._loop = loop
        self._history = history
        self._clock = clock
        self._watch = watch
        self._spoils = spoils
        self._chance = Random(f"driver of {plan.seed}")  # noqa: S311 - a simulation
        self._context = Strand("server").context()
        self._connections: dict[int, Connection] = {}
        self._blocked: list[_Request] = []
        self._number = 0
        self.version: Any = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Stand in for the real driver on the simulated loop, for as long as the block lasts."""
        real_connect = asyncpg.connect

        async def connect(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the driver has it
            if asyncio.get_running_loop() is self._loop:
                return await self.connect(options.get("server_settings") or {})
            return await real_connect(*args, **options)

        with patch.object(asyncpg, "connect", connect):
            yield

    async def connect(self, settings: Mapping[str, str]) -> Connection:
        """Open a connection for the process that asks."""
        strand = current_strand()
        machine = "" if strand is None else strand.name.partition(" ")[0]
        await self._loop.pause(self._chance.random() * 2 * self._plan.latency)
        if self.is_down or self._goes_wrong(self._plan.lost_requests):
            raise ConnectionRefusedError("the server cannot be reached")
        backend = self._real.lend(settings)
        self.version = backend.connection.get_server_version()
        self._number += 1
        connection = Connection(self, machine, backend, self._number)
        connection.settings = settings
        self._connections[connection.number] = connection
        return connection

    async def ask(
        self, connection: Connection, how: str, statement: str, values: tuple[object, ...]
    ) -> Any:  # noqa: ANN401 - rows or a status
        """Send a statement, and wait for what comes back."""
        if connection.is_closed():
            raise asyncpg.InterfaceError("connection is closed")
        if connection.request is not None:
            raise asyncpg.InterfaceError("another operation is in progress")
        LAST_USED.set(connection)
        if self._spoils is not None:
            statement = statement.replace(*self._spoils)
        reply = self._loop.create_future()
        after = self._watch(statement) if how == "fetch" else None
        request = _Request(connection, how, statement, values, reply, after)
        request.fate, request.back = self._fate(), self._chance.random() * self._plan.latency
        connection.request = request
        delay = self._chance.random() * self._plan.latency
        self._loop.call_later(delay, self._arrive, request, context=self._context)
        return await reply

    def hang_up(self, connection: Connection) -> None:
        """Let the server notice that a client is gone, when it is done with what it was asked."""
        if connection.request is None:
            self._end(connection)

    def lose(self, machine: str) -> None:
        """Let the connections of a process that has died go the way of the process."""
        for one in [one for one in self._connections.values() if one.machine == machine]:
            one.is_cut = True
            self.hang_up(one)

    def fail(self, *, is_down: bool) -> None:
        """Let the server be gone with everything that is not committed, or back."""
        self.is_down = is_down
        if is_down:
            for one in list(self._connections.values()):
                request = one.request
                self._cut(one)
                if request is not None:
                    self._answer(request, error=_lost())

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        self.is_down = self.is_faulty = False

    def end(self) -> None:
        """Give everything back."""
        for one in list(self._connections.values()):
            self._end(one)

    def _goes_wrong(self, share: float) -> bool:
        return self.is_faulty and self._chance.random() < share / _STATEMENTS

    def _fate(self) -> str:
        plan = self._plan
        for fate, share in (
            ("statement lost", plan.lost_requests),
            ("answer lost", plan.lost_replies),
            ("late", plan.late_replies),
        ):
            if self._goes_wrong(share):
                return fate
        return ""

    def _arrive(self, request: _Request) -> None:
        connection = request.connection
        if request.is_over:
            return
        if connection.backend is None:
            self._answer(request, error=_lost())
            return
        if connection.idle_timer is not None:
            connection.idle_timer.cancel()
        if request.fate == "statement lost":
            self._silence(connection, "a statement is lost")
            self._cut(connection)
            self._answer_in(self._a_while(), request, error=_lost())
            return
        if self._carry_out(request):
            return
        self._blocked.append(request)
        patience = request.read.patience or connection.patience or self._plan.lock_timeout
        if patience:
            self._later(patience, self._give_up, request, asyncpg.LockNotAvailableError)
        self._later(_DEADLOCK_SECONDS, self._look_for_deadlock, request)

    def _carry_out(self, request: _Request) -> bool:
        """Run a statement, unless it has to wait for somebody."""
        connection = request.connection
        was_in_transaction = connection.is_in_transaction
        result, error = None, None
        try:
            result = self._run(request)
        except _Blocked:
            return False
        except (asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, TypeError) as raised:
            error = raised
        if error is not None:
            self._undo(connection)
        elif not connection.is_in_transaction:
            self._settle(request, result, was_in_transaction=was_in_transaction)
        self._reply(request, result, error)
        return True

    def _settle(self, request: _Request, result: Any, *, was_in_transaction: bool) -> None:  # noqa: ANN401 - as above
        """Take down what is committed now."""
        connection = request.connection
        on_commit, connection.on_commit = connection.on_commit, []
        if was_in_transaction:
            if result == "COMMIT":
                for one in on_commit:
                    one()
            self._wake()
        elif request.after is not None:
            request.after(result)
        for channel in _NOTIFY.findall(request.read.text):
            self._notify(channel)

    def _run(self, request: _Request) -> Any:  # noqa: ANN401 - rows or a status
        connection, read = request.connection, request.read
        if connection.is_failed:
            if read.text not in _ENDS:
                raise asyncpg.InFailedSQLTransactionError("current transaction is aborted")
            connection.is_failed = False
            return "ROLLBACK"
        if read.text.startswith("BEGIN"):
            connection.begin, connection.may_hold = read.text, False
            connection.patience, connection.silence = read.patience, read.silence
            return "BEGIN"
        if connection.begin and read.text in _ENDS:
            connection.begin = ""
            return read.text
        if read.asks_the_time and not (_TIME_UNLESS_GIVEN in read.text and request.values[0]):
            connection.now = self._clock.now()
        if read.text == _TIME:
            return [(connection.now,)]
        assert connection.backend is not None
        return self._real.run(self._run_for_real(connection.backend, request))

    async def _run_for_real(self, backend: Backend, request: _Request) -> Any:  # noqa: ANN401 - as above
        connection, read = request.connection, request.read
        is_inside = connection.is_in_transaction
        is_careful = is_inside and read.may_wait and self._others_hold(connection)
        before = [connection.begin] if connection.begin else []
        connection.begin = ""
        now = self._clock.now().isoformat()
        if read.asks_the_time and backend.now != now:
            before.append(f"SET simulated.now = '{now}'")
            backend.now = now
        if is_careful:
            before += ["RELEASE SAVEPOINT simulated"] * backend.has_savepoint
            before.append("SAVEPOINT simulated")
            backend.has_savepoint = True
        real = backend.connection
        if before:
            await real.execute("; ".join(before))
        try:
            result = await getattr(real, request.how)(read.text, *request.values)
        except asyncpg.LockNotAvailableError as error:
            if is_inside:
                assert is_careful, f"it has to wait, and may not: {read.text}"
                await real.execute("ROLLBACK TO SAVEPOINT simulated")
                backend.now = ""
            raise _Blocked from error
        if read.text == "ROLLBACK":
            backend.now = ""
        backend.has_savepoint &= real.is_in_transaction()
        connection.may_hold = real.is_in_transaction() and (connection.may_hold or read.may_wait)
        return result

    def _others_hold(self, connection: Connection) -> bool:
        return any(one.may_hold for one in self._connections.values() if one is not connection)

    def _undo(self, connection: Connection) -> None:
        """Let go of everything a transaction has, as the server does once it has failed."""
        connection.on_commit.clear()
        backend = connection.backend
        if backend is None or not connection.is_in_transaction:
            return
        if backend.connection.is_in_transaction():
            self._real.run(backend.connection.execute("ROLLBACK"))
        backend.now, backend.has_savepoint = "", False
        connection.begin, connection.may_hold, connection.is_failed = "", False, True
        self._wake()

    def _wake(self) -> None:
        """Have those who wait for a lock try again, in any order."""
        blocked, self._blocked = self._blocked, []
        for request in blocked:
            self._loop.call_soon(self._try_again, request, context=self._context)

    def _try_again(self, request: _Request) -> None:
        if request.is_over:
            return
        if request.connection.backend is None:
            self._answer(request, error=_lost())
        elif not self._carry_out(request):
            self._blocked.append(request)

    def _give_up(self, request: _Request, error: type[asyncpg.PostgresError]) -> None:
        """End a wait; whoever was let in meanwhile has an answer already."""
        if request.is_over or request not in self._blocked:
            return
        self._blocked.remove(request)
        self._note(request.connection, f"waited in vain: {error.__name__}")
        self._undo(request.connection)
        self._reply(request, None, error("canceling statement due to lock timeout"))

    def _look_for_deadlock(self, request: _Request) -> None:
        """End a wait for those who wait themselves; what others hold they may still let go."""
        if request.is_over:
            return
        waiting = [one.connection for one in self._blocked]
        holding = [one for one in self._connections.values() if one.may_hold]
        if request.connection.may_hold and all(one in waiting for one in holding):
            self._give_up(request, asyncpg.DeadlockDetectedError)
        else:
            self._later(_DEADLOCK_SECONDS, self._look_for_deadlock, request)

    def _reply(self, request: _Request, result: object, error: Exception | None) -> None:
        connection = request.connection
        connection.request = None
        if connection.is_closed():  # nobody is there to hear it
            request.is_over = True
            self._end(connection)
            return
        if connection.is_in_transaction and connection.silence is not None:
            connection.idle_timer = self._later(connection.silence, self._cut, connection)
        match request.fate:
            case "answer lost":
                self._silence(connection, "an answer is lost")
                self._cut(connection)
                self._answer_in(self._a_while(), request, error=_lost())
            case "late":
                late = self._plan.lease * self._chance.uniform(0.3, 3.0)
                self._silence(connection, f"an answer is {late:.3f} s late")
                self._answer_in(late, request, result, error)
            case _:
                self._answer_in(request.back, request, result, error)

    def _answer_in(
        self,
        seconds: float,
        request: _Request,
        result: object = None,
        error: Exception | None = None,
    ) -> None:
        request.is_over = True
        self._later(seconds, self._answer, request, result, error)

    def _answer(
        self, request: _Request, result: object = None, error: Exception | None = None
    ) -> None:
        request.is_over = True
        if request.reply.done():
            return
        if error is not None:
            request.reply.set_exception(error)
        else:
            request.reply.set_result(result)

    def _cut(self, connection: Connection) -> None:
        """End a connection from the server's side, or on the way."""
        connection.is_cut = True
        connection.request = None
        self._end(connection)
        for hear in connection.on_end:
            self._loop.call_soon(hear, connection, context=self._context)

    def _end(self, connection: Connection) -> None:
        """Roll back what is not committed, and lend the session to another."""
        backend = connection.backend
        if backend is None:
            return
        self._undo(connection)
        connection.is_cut, connection.backend = True, None
        connection.listeners.clear()
        if connection.idle_timer is not None:
            connection.idle_timer.cancel()
        self._connections.pop(connection.number)
        self._real.take_back(backend, connection.settings)

    def _notify(self, channel: str) -> None:
        for one in self._connections.values():
            for hear in one.listeners.get(channel, ()):
                if self.is_faulty and self._chance.random() < self._plan.lost_notices:
                    continue
                self._later(self._chance.random() * self._plan.latency, self._tell, one, hear)

    def _tell(self, connection: Connection, hear: Callable[..., None]) -> None:
        if not connection.is_closed():
            hear()

    def _silence(self, connection: Connection, why: str) -> None:
        self._history.write(Silenced(at=self._loop.time(), machine=connection.machine, why=why))

    def _note(self, connection: Connection, what: str) -> None:
        self._history.note(self._loop.time(), f"{connection.machine} {what}")

    def _a_while(self) -> float:
        return self._chance.uniform(_LEAST_PATIENCE, _MOST_PATIENCE)

    def _later(self, seconds: float, act: Callable[..., None], *given: Any) -> asyncio.TimerHandle:  # noqa: ANN401 - as the loop has it
        return self._loop.call_later(seconds, act, *given, context=self._context)


class _Blocked(Exception):  # noqa: N818 - it is no error
    """Somebody has the lock that a statement needs."""


def _lost() -> Any:  # noqa: ANN401 - the driver has no types
    return asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
