"""Threads of an open store: one that writes with group commit, and those that read.

Each call is a function of a connection. The writer runs everything that waits in one transaction
and answers after its one commit; a call that fails is undone alone.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

import apsw

from redrive.errors import StoreUnavailableError
from redrive.executor import ThreadExecutor, disregard
from redrive.stores.sqlite.connection import Place, connect, let_go, rollback, translated
from redrive.stores.sqlite.forking import undisturbed

__all__ = ["Reader", "Threads", "Writer"]

T = TypeVar("T")
P = ParamSpec("P")
_MOST_PER_COMMIT = 256


class _Call:
    """A function to run on the connection, and the future that waits for it."""

    __slots__ = ("error", "function", "future", "loop", "result")

    def __init__(self, function: Callable[[apsw.Connection], Any]) -> None:
        self.function = function
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: object = None
        self.error: BaseException | None = None


class _ConnectionThread(ABC):
    """A thread that owns one connection and runs calls on it, in the order they came."""

    def __init__(self, path: Path, *, name: str) -> None:
        self._path = path
        self._name = name
        self._calls: SimpleQueue[list[_Call] | None] = SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
        self._connection: apsw.Connection | None = None
        self._lock = threading.Lock()
        self._is_open = False
        self._thread: threading.Thread | None = None
        self.place: Place | None = None
        """Where the file is to lie when something is committed to it."""

    def start(self) -> None:
        self._is_open = True
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[[apsw.Connection], T]) -> T:
        if not self._is_open:
            raise self._closed()
        call = _Call(function)
        gathered = self._gathered.get(call.loop)
        if gathered is None:
            self._gathered[call.loop] = gathered = []
            # Handed over when this round of the event loop ends, so that calls made side by side
            # arrive, and are committed, together.
            call.loop.call_soon(self._hand_over, call.loop)
        gathered.append(call)
        result: T = await call.future
        return result

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        calls = self._gathered.pop(loop)
        with self._lock:
            if self._is_open:
                self._calls.put(calls)
                return
        for call in calls:  # closed since: nobody would ever answer them
            call.error = self._closed()
        _resolve(calls)

    def _closed(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"The store {self._path} is closed; open it with `async with app:` first."
        )

    def stop(self) -> None:
        """Let what was handed over finish, then end the thread and close the connection."""
        with self._lock:
            self._is_open = False
            thread, self._thread = self._thread, None
            if thread is not None:
                self._calls.put(None)
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        running = True
        while running:
            calls, running = self._next_calls()
            if calls:  # who was never called opens no connection, only to close it
                with undisturbed():
                    self._serve(calls)
        with undisturbed():
            self._let_go()

    def _serve(self, calls: list[_Call]) -> None:
        """Run calls that came together, and answer them."""
        try:
            with translated(self._path):
                self._connection = self._connection or self._connect()
                self._perform(self._connection, calls)
        except BaseException as error:  # noqa: BLE001 - every waiting caller must hear of it
            for call in calls:
                call.error = error
        _answer(calls)

    def _connect(self) -> apsw.Connection:
        return connect(self._path)

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            let_go(connection)

    def _next_calls(self) -> tuple[list[_Call], bool]:
        """Wait for calls, take all there are, and tell whether more may come."""
        calls: list[_Call] = []
        while True:
            more = self._calls.get()
            if more is None:
                return calls, False
            calls += more
            if len(calls) >= _MOST_PER_COMMIT or self._calls.empty():
                return calls, True

    @abstractmethod
    def _perform(self, connection: apsw.Connection, calls: list[_Call]) -> None:
        """Run the calls, keeping each one's result or error on it."""


class Reader(_ConnectionThread):
    """Runs each call in a read transaction of its own: one consistent view."""

    def _perform(self, connection: apsw.Connection, calls: list[_Call]) -> None:
        for call in calls:
            try:
                with translated(self._path):
                    connection.execute("BEGIN")
                    call.result = call.function(connection)
                    connection.execute("COMMIT")
            except Exception as error:  # noqa: BLE001 - handed to the caller
                rollback(connection)
                call.error = error


class Writer(_ConnectionThread):
    """Runs all waiting calls in one immediate transaction with one commit."""

    def _connect(self) -> apsw.Connection:
        """Open the file to write: SQLite lets a transaction begin that could change nothing."""
        connection = super()._connect()
        if connection.readonly("main"):
            let_go(connection)
            raise apsw.ReadOnlyError("it was opened for reading only")
        return connection

    def _perform(self, connection: apsw.Connection, calls: list[_Call]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if self.place is not None:
                self.place.check()
            if len(calls) == 1:
                calls[0].result = calls[0].function(connection)
            else:
                for call in calls:
                    self._perform_apart(connection, call)
            connection.execute("COMMIT")
        except BaseException:
            rollback(connection)
            raise

    def _perform_apart(self, connection: apsw.Connection, call: _Call) -> None:
        """Run one call of several so that its failure undoes nothing but itself."""
        connection.execute("SAVEPOINT one")
        try:
            with translated(self._path):
                call.result = call.function(connection)
        except Exception as error:
            if not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO one")
            call.error = error
        connection.execute("RELEASE one")


def _answer(calls: list[_Call]) -> None:
    """Hand the results over, with one wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
    for call in calls:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, answered in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, answered)
        except RuntimeError:  # the loop is closed: nobody waits any more
            continue


def _resolve(calls: list[_Call]) -> None:
    for call in calls:
        if call.future.done():
            continue
        if call.error is not None:
            call.future.set_exception(call.error)
        else:
            call.future.set_result(call.result)


# Not the event loop's own pool: who waits for the write lock could fill it, and who has the lock
# would find no thread there to commit on.
_executor = ThreadExecutor()


class Threads:
    """Where an open store runs what blocks: on threads of its own, but in a simulation."""

    def writer(self, path: Path) -> Writer:
        """Return what writes to the file, still to be started."""
        return Writer(path, name="redrive-writer")

    def reader(self, path: Path) -> Reader:
        """Return what reads the file, still to be started."""
        return Reader(path, name="redrive-reader")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function, and to its end: a connection left in mid-use cannot be used."""
        caller = threading.get_ident()

        def run() -> T:
            with undisturbed(of=caller):
                return function(*args, **kwargs)

        running = _executor.submit(run)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            disregard(running)
            await asyncio.wait([running])
            raise
