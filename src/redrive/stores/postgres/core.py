"""The connections that the roles of the store share, and the notifications for who waits."""

from __future__ import annotations

import asyncio
import atexit
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import asyncpg

from redrive.clock import Clock, is_of_machine
from redrive.errors import StoreError, StoreUnavailableError
from redrive.observer import Observer
from redrive.stores.postgres.connection import LOST, Address, Connection, named, translated
from redrive.stores.postgres.facts import Duties, Facts
from redrive.stores.postgres.notifications import Notifications
from redrive.stores.postgres.pool import (
    CONNECT_SECONDS,
    Link,
    Pool,
    drop,
    first_connection,
    session_settings,
)
from redrive.stores.postgres.schema import (
    check_server,
    current_version,
    keep_log_growing,
    migrate,
)
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.postgres.single_statement.duties import DUTIES, LOOK_AGAIN
from redrive.stores.sealed import READ_ENCRYPTION, Codec
from redrive.stores.sql.session import Either
from redrive.stores.sql.store import SqlStore

__all__ = ["BEGIN", "Core", "Job"]

T = TypeVar("T")
Job = Callable[[PostgresSession, datetime], Awaitable[T]]
TurnJob = Callable[[PostgresSession], Awaitable[T]]
"""What reads the present itself, if it needs it: in a turn, each trip to the server counts."""

_ANSWER_SECONDS = 60.0
_LEAST_PATIENCE_SECONDS = 5.0
_MOST_TRIES = 5
_DUTIES_SECONDS = 0.2
_LAST_WORDS_SECONDS = 2.0

# What another try may heal. A unique violation is a statement of ours whose answer was lost and
# which took effect meanwhile: the next try sees it.
_PASSING = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.UniqueViolationError,
)

# Whoever falls silent in the middle of a transaction, frozen or cut off, holds locks that others
# wait for; the server ends such a transaction.
_SILENCE = "SET LOCAL idle_in_transaction_session_timeout = '5s'"
BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; {_SILENCE}"
_BEGIN_READING = f"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; {_SILENCE}"


class _WaitingJob:
    """A job that shares the next transaction, and the future that waits for it."""

    __slots__ = ("future", "job")

    def __init__(self, job: TurnJob[Any]) -> None:
        self.job = job
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Core(SqlStore):
    """An open database: connections on one event loop.

    Times come from the server's clock, so that workers whose machines' clocks differ agree. A
    clock that is no machine's, as tests have, is asked instead.
    """

    def __init__(
        self, address: Address, *, clock: Clock, history: int, observer: Observer, codec: Codec
    ) -> None:
        self.address = address
        self.codec = codec
        self.schema_version = 0
        self._clock = clock
        self._history = history
        self._uses_server_clock = is_of_machine(clock)
        self._pool: Pool | None = None
        self._is_proxied = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notifications = Notifications(address, clock=clock, observer=observer)
        self._waiting: list[_WaitingJob] = []
        self._together: set[asyncio.Task[None]] = set()
        self._beside: set[asyncio.Future[None]] = set()
        self.facts = Facts(clock, codec)
        # Half of the connections stay free for claims, settlements and whoever publishes.
        self._effects = asyncio.Semaphore(address.pool // 2)
        self._patient = asyncio.Semaphore(max(1, address.pool // 4))

    async def open(self) -> None:
        if self._pool is not None:
            return
        with translated(self.address):
            self._pool = await self._prepare()
        self._loop = asyncio.get_running_loop()
        notify = None if self._is_proxied else partial(self._notify_others, self._pool)
        self._notifications.start(notify)
        _opened[self] = os.getpid()

    async def _prepare(self) -> Pool:
        """Bring the schema up to date; return a pool that has the connection which saw to it."""
        connection, self._is_proxied = await first_connection(self.address)
        try:
            check_server(connection.get_server_version(), self.address)
            while not await self._is_current(connection):
                await self._migrate()
        except BaseException:
            drop(connection)
            raise
        pool = Pool(self.address, is_proxied=self._is_proxied)
        pool.keep(connection)
        return pool

    async def _is_current(self, connection: Connection) -> bool:
        """Tell whether the schema is up to date; if so, learn what has to be known of it."""
        async with asyncio.timeout(_ANSWER_SECONDS):
            await connection.execute("BEGIN")  # not the driver's own block, as in `_transaction`
            version = await current_version(connection, self.address)
            if version is not None:
                await keep_log_growing(connection, self.address)
                read = named(READ_ENCRYPTION, self.address.schema)
                self.codec.learn(await connection.fetchval(read))
                self.schema_version = version
            await connection.execute("COMMIT")
        return version is not None

    async def _migrate(self) -> None:
        """Bring the schema up to date, on a connection that may take an hour for a statement."""
        connection = await asyncpg.connect(
            self.address.dsn,
            timeout=CONNECT_SECONDS,
            command_timeout=_ANSWER_SECONDS,
            statement_cache_size=0,
            server_settings=session_settings(self.address),
        )
        try:
            await connection.execute("BEGIN")
            await migrate(connection, self.address)
            await connection.execute("COMMIT")
        finally:
            connection.terminate()

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        _opened.pop(self, None)
        if pool.is_orphaned:  # all that ran on its event loop has ended with it
            pool.hang_up()
            self._notifications.forget()
            return
        await self._notifications.stop()
        for task in tuple(self._together):
            await asyncio.wait([task])
        await pool.close()

    async def wait(self, *, at_most: timedelta, since: object = None) -> None:
        await self._notifications.wait(at_most, since)

    def mark(self) -> object:
        return self._notifications.heard

    def wake(self) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it is closed, and the poll finds what there is
                loop.call_soon_threadsafe(self._notifications.notify)

    def finish_notifying(self) -> None:
        """Send what is unsent, while the event loop runs on in another thread."""
        loop = self._loop
        if loop is not None and loop.is_running():
            sending = asyncio.run_coroutine_threadsafe(self._notifications.finish(), loop)
            sending.result(_LAST_WORDS_SECONDS)

    async def _read(
        self,
        job: Job[T],
        *,
        is_prompt: bool = False,
        is_wide: bool = False,  # noqa: ARG002 - each job has a connection of its own
    ) -> T:
        """Run a job that only looks, on one consistent view."""
        within = self.facts.patience if is_prompt else _ANSWER_SECONDS
        return await self._run_with_now(job, begin=_BEGIN_READING, within=within)

    async def _write(
        self,
        job: Job[T],
        *,
        notifies: bool = False,
        is_prompt: bool = False,
        within: float = _ANSWER_SECONDS,
    ) -> T:
        """Run a job in a transaction of its own; it is committed when this returns."""
        within = self.facts.patience if is_prompt else within
        result = await self._run_with_now(job, within=within)
        if notifies:
            self._notify()
        return result

    def _notify(self) -> None:
        self._notifications.notify()

    def _look_anew(self) -> None:
        self._notifications.clear()

    async def _idle(self, duty: str) -> datetime | None:
        duties = await self._duties()
        return None if getattr(duties, duty) else duties.now

    @property
    def _given_now(self) -> datetime | None:
        """The present for a statement that reads the server's clock itself unless it is given."""
        return None if self._uses_server_clock else self._clock.now()

    def _expect_turns_within(self, lease: timedelta) -> None:
        """Give up a turn of the worker that takes longer than its leases last."""
        self.facts.patience = max(_LEAST_PATIENCE_SECONDS, lease.total_seconds())

    async def _share(self, job: TurnJob[T]) -> T:
        """Run a job in one transaction with those that are shared at the same moment."""
        waiting = _WaitingJob(job)
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            # Begun when this round of the event loop ends, so that calls made side by side are
            # committed together.
            asyncio.get_running_loop().call_soon(self._begin_together)
        result: T = await waiting.future
        return result

    @property
    def _is_shared(self) -> bool:
        """Whether somebody waits for the next shared transaction, which is to come first."""
        return bool(self._waiting)

    def _begin_together(self) -> None:
        gathered, self._waiting = self._waiting, []
        task = asyncio.get_running_loop().create_task(self._run_together(gathered))
        self._together.add(task)
        task.add_done_callback(self._together.discard)

    async def _run_together(self, gathered: list[_WaitingJob]) -> None:
        async def everything(link: PostgresSession) -> list[Any]:
            return [await one.job(link) for one in gathered]

        try:
            results = await self._run(everything, within=self.facts.patience)
        except Exception as error:  # noqa: BLE001 - every waiting caller must hear of it
            if len(gathered) > 1 and not isinstance(error, StoreError):
                for one in gathered:  # one of them cannot be done: it must fail alone
                    await self._run_together([one])
                return
            for one in gathered:
                if not one.future.done():
                    one.future.set_exception(error)
            return
        for one, result in zip(gathered, results, strict=True):
            if not one.future.done():
                one.future.set_result(result)

    async def _run_with_now(
        self, job: Job[T], *, begin: str = BEGIN, within: float = _ANSWER_SECONDS
    ) -> T:
        async def told(link: PostgresSession) -> T:
            link.now = link.present = await self._now(link)
            return await job(link, link.now)

        return await self._run(told, begin=begin, within=within)

    async def _run(
        self, job: TurnJob[T], *, begin: str = BEGIN, within: float = _ANSWER_SECONDS
    ) -> T:
        if begin is not _BEGIN_READING:
            self.facts.changed()
        for tries in range(1, _MOST_TRIES + 1):
            with translated(self.address):
                try:
                    async with self._transaction(begin, within) as link:
                        return await job(link)
                except _PASSING:
                    if tries == _MOST_TRIES:
                        raise
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _transaction(self, begin: str, within: float) -> AsyncIterator[PostgresSession]:
        """Acquire a connection for a transaction, which is committed at the end of the block.

        The driver's own blocks wait without end for the answer to a rollback or to a cancelled
        statement, which a connection that went silent never gives.
        """
        pool = self._opened()
        connection = await self._begun(begin)
        begun = self._clock.monotonic()
        try:
            async with asyncio.timeout(within):
                yield PostgresSession(connection, self.address.schema, self.codec)
                await connection.execute("COMMIT")
            now = self._clock.monotonic()
            connection.took(now - begun, now=now)
        except Exception as error:
            pool.distrust(error)
            await _roll_back(connection, error)
            raise
        except BaseException:
            drop(connection)
            raise
        finally:
            pool.release(connection)

    async def _query(
        self, statement: str | Either, *values: object, is_prompt: bool = False
    ) -> list[Any]:
        """Run one statement in one trip to the server, whose clock it asks unless told the time."""
        text = statement.postgres if isinstance(statement, Either) else statement
        within = self.facts.patience if is_prompt else _ANSWER_SECONDS
        return await self._statement(text, self._given_now, *values, within=within, changes=False)

    async def _statement(
        self,
        statement: str,
        *values: object,
        within: float = _ANSWER_SECONDS,
        changes: bool = True,
    ) -> list[Any]:
        """Run one statement that is a transaction of its own, again if others stood in its way."""
        for tries in range(1, _MOST_TRIES + 1):
            with translated(self.address):
                try:
                    return await self._statement_once(
                        statement, *values, within=within, changes=changes
                    )
                except _PASSING:
                    if tries == _MOST_TRIES:
                        raise
        raise AssertionError("unreachable")

    async def _statement_once(
        self, statement: str, *values: object, within: float, changes: bool = True
    ) -> list[Any]:
        """Run one statement that is a transaction of its own; errors are the driver's."""
        if changes:
            self.facts.changed()
        pool = self._opened()
        connection = await pool.acquire()
        try:
            async with asyncio.timeout(within):
                return await Link(connection, self.address.schema, self.codec).fetch(
                    statement, *values
                )
        except asyncpg.PostgresError as error:
            if isinstance(error, LOST):
                drop(connection)
            raise
        except BaseException as error:
            pool.distrust(error)
            drop(connection)
            raise
        finally:
            pool.release(connection)

    async def _duties(self) -> Duties:
        """Tell which duties may have something to do.

        All duties of a round share one answer, unless this process has changed something since.
        """
        if (known := self.facts.duties) is not None:
            return known
        began = self._clock.monotonic()
        with translated(self.address):
            # A connection that has gone silent is not to keep the worker from its other duties.
            (row,) = await self._statement_once(
                DUTIES, self._given_now, within=_LEAST_PATIENCE_SECONDS, changes=False
            )
            duties = Duties(*row)
            if duties.is_misjudged:
                await self._statement_once(LOOK_AGAIN, within=_ANSWER_SECONDS, changes=False)
        self._keep_duties(duties, since=began, lasts=_DUTIES_SECONDS)
        return duties

    def _keep_duties(self, duties: Duties, *, since: float, lasts: float) -> None:
        if self._uses_server_clock:  # with any other, time may pass in leaps
            self.facts.keep_duties(duties, since=since, lasts=lasts)

    async def _notify_others(self, pool: Pool, statement: str) -> None:
        """Run one statement outside any transaction, also while the store is being closed."""
        with translated(self.address):
            pool.release(await pool.acquire_begun(lambda one: one.execute(statement)))

    async def _begun(self, begin: str) -> Connection:
        """Take a connection and begin."""
        return await self._taken(lambda connection: connection.execute(begin))

    async def _taken(self, begin: Callable[[Connection], Awaitable[object]]) -> Connection:
        """Take a connection and begin, if need be with new plans."""

        async def begin_anew(connection: Connection) -> None:
            await begin(connection)
            if connection.wants_new_plans and not self._is_proxied:
                connection.wants_new_plans = False
                await connection.execute("DISCARD PLANS")

        return await self._opened().acquire_begun(begin_anew)

    def _opened(self) -> Pool:
        if self._pool is None:
            raise StoreUnavailableError(
                f"The store {self.address.name} is closed; open it with `async with app:` first."
            )
        return self._pool

    async def _now(self, link: Link) -> datetime:
        if not self._uses_server_clock:
            return self._clock.now()
        now: datetime = await link.value("SELECT clock_timestamp()")
        return now


_opened: weakref.WeakKeyDictionary[Core, int] = weakref.WeakKeyDictionary()
"""The stores that are open, and the process that opened each."""


@atexit.register
def _finish_notifying() -> None:
    """Let the last publish be heard of where nobody closes the store, as behind `app.sync`."""
    for store, process in list(_opened.items()):
        if process == os.getpid():
            with suppress(Exception):  # the poll finds what there is
                store.finish_notifying()


async def _roll_back(connection: Connection, error: Exception) -> None:
    """Undo what was done, so that the connection can be used again; else throw it away."""
    if isinstance(error, LOST):
        drop(connection)
        return
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.execute("ROLLBACK")
    except BaseException as late:
        drop(connection)
        if not isinstance(late, LOST):
            raise
