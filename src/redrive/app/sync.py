"""The synchronous door: publish and operate from code without an event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from redrive.app.calling import RequestOptions
from redrive.app.log import Types
from redrive.calling.response import Response
from redrive.errors import StoreUnavailableError, TransactionError, UsageError, not_found
from redrive.model.duration import Duration
from redrive.model.event import EventAttributes, NewEvent, Receipt
from redrive.model.position import LOG_START, LogPosition
from redrive.operations import Operations
from redrive.store import LoggedEvent, open_transaction

if TYPE_CHECKING:
    from redrive.app.redrive import Redrive
    from redrive.stores.sqlite import SqliteTransaction

__all__ = ["SyncApp", "SyncLog"]

T = TypeVar("T")
P = ParamSpec("P")
_CLOSE_SECONDS = 5.0


class SyncApp:
    """Publishing and operating that block until done, from any thread.

    Everything runs on one background event loop, started with the first call; but what joins a
    transaction of yours runs in your own thread, to which the connection may belong.
    """

    def __init__(self, app: Redrive) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._under_way: set[asyncio.Task[Any]] = set()

    def publish(
        self,
        event_type: str,
        payload: object = None,
        *,
        within: object = None,
        **attributes: Unpack[EventAttributes],
    ) -> Receipt:
        """Publish an event; returns when it and its deliveries are durable.

        With `within`, it joins that transaction and is durable when you commit.
        """
        if within is None:
            return self._run(self._app.publish(event_type, payload, **attributes))
        publisher = self._run(self._app.publisher())
        event = publisher.new_event(event_type, payload, attributes)
        return _run_here(publisher.publish(event, within=within))

    def publish_many(
        self, events: Sequence[NewEvent], *, within: object = None
    ) -> Sequence[Receipt]:
        """Publish all of the events, or none."""
        if within is None:
            return self._run(self._app.publish_many(events))
        publisher = self._run(self._app.publisher())
        return _run_here(publisher.publish_many(events, within=within))

    def request(
        self, service: str, payload: object = None, **options: Unpack[RequestOptions]
    ) -> Response:
        """Ask a service, or an HTTP destination of the code, and return what it answers.

        See `Redrive.request`.
        """
        return self._run(self._app.request(service, payload, **options))

    def wake(self) -> None:
        """Have workers look for work now, as after a commit that its driver does not tell of."""
        self._run(self._app.wake())

    @property
    def log(self) -> SyncLog:
        """The events that were published, for who reads them in order."""
        return SyncLog(self._app, self._run)

    def result(self, receipt: Receipt, destination: str, *, timeout: Duration = "30s") -> Any:  # noqa: ANN401 - JSON
        """Wait until an event is delivered there, and return what the handler returned.

        See `Receipt.result`.
        """
        if destination not in receipt.destinations:
            raise not_found(destination, receipt.destinations, what="destination of this event")
        return self.operate(Operations.result, receipt.event_id, destination, timeout=timeout)

    def operate(
        self,
        operation: Callable[Concatenate[Operations, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Do what `Operations` offers: `app.sync.operate(Operations.replay, [7], by="ann")`."""

        async def act() -> T:
            doing = operation(self._app.operations, *args, **kwargs)
            if not isinstance(doing, Awaitable):
                name = getattr(operation, "__name__", repr(operation))
                raise UsageError(
                    f"app.sync.operate waits for one answer, and Operations.{name} gives many, one "
                    "by one; ask for them page by page, such as "
                    "app.sync.operate(Operations.export_page, query, cursor=page.next_cursor)."
                )
            return await doing

        return self._run(act())

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        """Open a transaction for your own tables and `publish(within=...)`."""
        opening = self._app.transaction()
        transaction = self._run(opening.__aenter__())
        open_transaction.set(transaction)
        try:
            yield transaction
        except BaseException as error:
            self._run(opening.__aexit__(type(error), error, error.__traceback__))
            raise
        finally:
            open_transaction.set(None)
        self._run(opening.__aexit__(None, None, None))

    def close(self) -> None:
        """Close the store and end the background loop; a later call starts them again.

        What other threads have under way is finished first. What takes longer than a few seconds
        is given up, and raises a `StoreUnavailableError` there.
        """
        with self._lock:
            loop, thread, under_way = self._loop, self._thread, self._under_way
            self._loop = self._thread = None
            self._under_way = set()
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._close(under_way), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _close(self, under_way: set[asyncio.Task[Any]]) -> None:
        try:
            if under_way:
                _, late = await asyncio.wait(list(under_way), timeout=_CLOSE_SECONDS)
                for one in late:
                    one.cancel()
                if late:
                    await asyncio.wait(late, timeout=_CLOSE_SECONDS)
        finally:
            await self._app.close()

    def forget_parent(self) -> None:
        """After a fork: the background loop runs in the parent only, and the lock may be held."""
        self._lock = threading.Lock()
        self._loop = self._thread = None
        self._under_way = set()

    def _run(self, call: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        self._refuse_running_loop(call)
        with self._lock:
            # Within the lock: whoever closes the loop must find the call on it, or leave it alone.
            asked = asyncio.run_coroutine_threadsafe(
                self._track(call, self._under_way), self._background()
            )
        try:
            return asked.result()
        except concurrent.futures.CancelledError:
            raise StoreUnavailableError(
                "app.sync was closed by another thread while this call was under way, and it did "
                "not end in time; it may or may not have been carried out. Close app.sync when "
                "nobody uses it any more."
            ) from None

    async def _track(self, call: Awaitable[T], under_way: set[asyncio.Task[Any]]) -> T:
        task = asyncio.current_task()
        if task is not None:
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        return await call

    def _refuse_running_loop(self, call: object) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        close = getattr(call, "close", None)
        if close is not None:
            close()
        raise UsageError(
            "app.sync would block the event loop that runs here; await the call on the app itself, "
            "such as `await app.publish(...)`."
        )

    def _background(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="redrive-sync", daemon=True
            )
            self._thread.start()
        return self._loop


class SyncLog:
    """Reading the log from code without an event loop; `app.log` can follow it as well."""

    def __init__(self, app: Redrive, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._app = app
        self._run = run

    def read(
        self, *, after: LogPosition | str = LOG_START, types: Types = (), limit: int = 100
    ) -> Sequence[LoggedEvent]:
        """Return the first events behind a position; fewer than `limit` are all there are."""
        found: Sequence[LoggedEvent] = self._run(
            self._app.log.read(after=after, types=types, limit=limit)
        )
        return found

    def history(self, key: str, *, after: int = 0, types: Types = ()) -> Sequence[LoggedEvent]:
        """Return every event of a key behind a version, in their order."""
        found: Sequence[LoggedEvent] = self._run(
            self._app.log.history(key, after=after, types=types)
        )
        return found

    def end(self) -> LogPosition:
        """Return where the log ends now."""
        end: LogPosition = self._run(self._app.log.end())
        return end


def _run_here(call: Coroutine[Any, Any, T]) -> T:
    """Run a call to its end in this very thread; it has no event loop to wait on."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    call.close()
    raise TransactionError(
        "within= got something that has to be waited for; write `await app.publish(...)` with it, "
        "or pass app.sync a connection that is not async."
    )
