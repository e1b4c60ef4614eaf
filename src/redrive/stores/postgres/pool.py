"""The pool: connections at hand, each with one caller at a time, and statements on them."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from redrive.stores.postgres.connection import LOST, Address, Connection, named
from redrive.stores.sealed import Codec

__all__ = [
    "CONNECT_SECONDS",
    "PLANS",
    "Link",
    "Pool",
    "connect",
    "drop",
    "first_connection",
    "session_settings",
    "stand_in",
]

CONNECT_SECONDS = 10.0
_FAREWELL_SECONDS = 5.0
_REST_SECONDS = 30.0
_NAME = "application_name"
_STATEMENTS = 100

# Our statements are few, and written for one plan each: planning them anew takes longer than to
# carry them out, and so does compiling them. A table that was empty a moment ago looks small to the
# planner, who would then read all of it.
PLANS = {"plan_cache_mode": "force_generic_plan", "jit": "off", "enable_seqscan": "off"}
_SET = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in PLANS.items())
_PLAN_IF_DIRECT = f"SELECT {_SET} WHERE pg_backend_pid() = {{}}"
_ONE_ROW = "SELECT 1"


def session_settings(address: Address) -> dict[str, str]:
    """Return what every session is told: who is there, unless the URL says it."""
    return {} if _NAME in parse_qs(urlsplit(address.dsn).query) else {_NAME: "redrive"}


async def connect(
    address: Address, settings: Mapping[str, str], *, statements: int = _STATEMENTS
) -> Connection:
    """Open a connection that keeps so many prepared statements."""
    connection: Connection = await asyncpg.connect(
        address.dsn,
        connection_class=Connection,
        timeout=CONNECT_SECONDS,
        statement_cache_size=statements,
        server_settings=settings,
    )
    return connection


async def first_connection(address: Address) -> tuple[Connection, bool]:
    """Open a connection for a pool; tell whether a pooling proxy is between.

    One statement asks for that, and sets how plans are made only where there is none: sessions
    behind a proxy are shared with others.
    """
    connection = await connect(address, session_settings(address))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            # A proxy answers with a process number of its own making.
            server = connection.get_server_pid()
            if await connection.execute(_PLAN_IF_DIRECT.format(server)) == _ONE_ROW:
                return connection, False
    except BaseException:
        drop(connection)
        raise
    drop(connection)
    return await connect(address, session_settings(address), statements=0), True


class Pool:
    """At most `address.pool` connections, opened when they are needed.

    An idle one is handed out without a turn of the event loop; whoever has to wait gets one in
    the order of asking. One that nobody needed for half a minute is closed.
    """

    def __init__(self, address: Address, *, is_proxied: bool) -> None:
        self._address = address
        self._statements = 0 if is_proxied else _STATEMENTS
        self._settings = session_settings(address) | ({} if is_proxied else PLANS)
        self._idle: list[Connection] = []
        self._trusted: dict[Connection, bool] = {}
        self._opening = 0
        self._queue: deque[asyncio.Future[Connection | None]] = deque()
        self._unused = 0
        self._rest: asyncio.TimerHandle | None = None
        self._returned = asyncio.Event()
        self._is_closed = False
        self._loop = asyncio.get_running_loop()

    @property
    def is_orphaned(self) -> bool:
        """Whether the event loop has ended on which they were opened, so that none can be used."""
        return self._loop.is_closed()

    def hang_up(self) -> None:
        """Let the server know at once, without the event loop; nobody can close them any more."""
        self._is_closed = True
        for connection in self._trusted:
            with suppress(OSError):
                connection._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)  # noqa: SLF001

    def keep(self, connection: Connection) -> None:
        """Have one that is open already."""
        self._trusted[connection] = True
        self.release(connection)

    async def acquire(self) -> Connection:
        """Return a connection that nobody else has until `release`."""
        while self._idle:
            connection = self._idle.pop()
            self._unused = min(self._unused, len(self._idle))
            if not connection.is_closed():
                return connection
            self._forget(connection)
        if self._is_closed:
            raise asyncpg.InterfaceError("it has been closed")
        if len(self._trusted) + self._opening < self._address.pool:
            self._opening += 1
            return await self._connect()
        return await self._wait()

    async def acquire_begun(self, begin: Callable[[Connection], Awaitable[object]]) -> Connection:
        """Return a connection on which something has begun; one that died unnoticed is replaced."""
        for tries in range(self._address.pool + 1):
            connection = await self.acquire()
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await begin(connection)
            except BaseException as error:
                self.distrust(error)
                drop(connection)
                self.release(connection)
                is_dead = isinstance(error, LOST) and not isinstance(error, TimeoutError)
                if not is_dead or tries == self._address.pool:
                    raise
            else:
                return connection
        raise AssertionError("unreachable")

    def release(self, connection: Connection) -> None:
        """Hand it to the first who waits, or keep it at hand."""
        if self._is_closed:
            self._idle.append(connection)
            self._returned.set()
        elif connection.is_closed() or not self._trusted.get(connection):
            drop(connection)
            self._forget(connection)
        elif (turn := self._next()) is not None:
            turn.set_result(connection)
        else:
            self._idle.append(connection)
            if self._rest is None:
                self._rest_a_while()

    def distrust(self, error: BaseException) -> None:
        """Replace all connections after one that fell silent: they were as old, or older."""
        if not isinstance(error, TimeoutError):
            return
        self._trusted = dict.fromkeys(self._trusted, False)
        idle, self._idle, self._unused = self._idle, [], 0
        for connection in idle:
            drop(connection)
            self._forget(connection)

    async def close(self) -> None:
        """Wait for what is in use, and say farewell; but not for long."""
        self._is_closed = True
        if self._rest is not None:
            self._rest.cancel()
        while (turn := self._next()) is not None:
            turn.set_exception(asyncpg.InterfaceError("it has been closed"))
        with suppress(*LOST, asyncpg.PostgresError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._part()
        for connection in self._trusted:
            drop(connection)

    async def _part(self) -> None:
        while True:
            self._returned.clear()
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    await connection.close()
                del self._trusted[connection]
            if not self._trusted and not self._opening:
                return
            await self._returned.wait()

    async def _connect(self) -> Connection:
        """Open a connection in a place that is kept for it."""
        try:
            connection = await connect(self._address, self._settings, statements=self._statements)
        except BaseException:
            self._leave_place()
            raise
        self._opening -= 1
        self._trusted[connection] = True
        if self._is_closed:
            self.release(connection)
            raise asyncpg.InterfaceError("it has been closed")
        return connection

    async def _wait(self) -> Connection:
        turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await turn
        except BaseException:
            self._give_up(turn)
            raise
        return await self._connect() if connection is None else connection

    def _give_up(self, turn: asyncio.Future[Connection | None]) -> None:
        """Pass on what came too late for who has waited."""
        with suppress(ValueError):
            self._queue.remove(turn)
        if not turn.done() or turn.cancelled() or turn.exception() is not None:
            return
        connection = turn.result()
        if connection is None:
            self._leave_place()
        else:
            self.release(connection)

    def _next(self) -> asyncio.Future[Connection | None] | None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                return turn
        return None

    def _forget(self, connection: Connection) -> None:
        """Leave the place of a connection that is no more."""
        if self._trusted.pop(connection, None) is not None:
            self._opening += 1
            self._leave_place()

    def _leave_place(self) -> None:
        """Let the first who waits open a connection instead."""
        if (turn := self._next()) is not None:
            turn.set_result(None)
        else:
            self._opening -= 1
            self._returned.set()

    def _rest_a_while(self) -> None:
        self._unused = len(self._idle)
        self._rest = asyncio.get_running_loop().call_later(_REST_SECONDS, self._close_unused)

    def _close_unused(self) -> None:
        """Close those that stayed at the bottom since the last time."""
        unused, self._idle = self._idle[: self._unused], self._idle[self._unused :]
        for connection in unused:
            drop(connection)
            self._forget(connection)
        self._rest = None
        if self._idle:
            self._rest_a_while()


class Link:
    """A connection in an open transaction, as our statements use it.

    They speak of the schema `redrive`, whatever its name is, and write `$1` for values.
    """

    def __init__(self, connection: Any, schema: str, codec: Codec) -> None:  # noqa: ANN401 - any driver's own
        self._connection = connection
        self._schema = schema
        self.codec = codec

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        """Return all rows of a statement."""
        rows: list[Any] = await self._connection.fetch(named(statement, self._schema), *values)
        return rows

    async def value(self, statement: str, *values: object) -> Any:  # noqa: ANN401 - any column
        """Return the first column of the first row, or `None`."""
        rows = await self.fetch(statement, *values)
        return rows[0][0] if rows else None


class _Place:
    """What the driver's stand-in for a connection looks for in a pool."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - of the driver's inside
        self._pool = self
        self._drop_statement_cache = connection._drop_local_statement_cache  # noqa: SLF001 - as above
        self._drop_type_cache = connection._drop_local_type_cache  # noqa: SLF001 - as above


@contextmanager
def stand_in(connection: Connection) -> Iterator[Any]:
    """Hand out a connection such that it is of no use to anybody afterwards."""
    proxy = PoolConnectionProxy(_Place(connection), connection)
    try:
        yield proxy
    finally:
        connection._on_release()  # noqa: SLF001 - as its pool does
        proxy._detach()  # noqa: SLF001 - as its pool does


def drop(connection: Any) -> None:  # noqa: ANN401 - or its stand-in
    """Throw a connection away, without waiting for anything."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()
