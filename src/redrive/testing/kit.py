"""The test kits: your own app on the real code path, in memory, at the time you say it is."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import gettempdir
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

import msgspec

from redrive.app.config import Settings, parse_store
from redrive.app.declaration import Ports
from redrive.app.redrive import Redrive
from redrive.app.store_factory import StoreFactory
from redrive.errors import UsageError, refuse_unknown
from redrive.model.delivery import Delivery, Status
from redrive.model.duration import Duration, duration
from redrive.model.event import Event, NewEvent
from redrive.model.pattern import matches
from redrive.model.position import LOG_START
from redrive.observer import Observers
from redrive.operations import Operations
from redrive.operations.context import MOST_PER_PAGE
from redrive.policies.payload import encode_payload
from redrive.store import Page, Query, Store, open_transaction
from redrive.testing.clock import FakeClock
from redrive.testing.fakes import CountingIds, InlineExecutor, SeededRng
from redrive.testing.schema import OwnSchema
from redrive.testing.scripted import ScriptedDestination, Step
from redrive.testing.transactions import TransactionalMemory
from redrive.worker import Tally

__all__ = ["ConnectKit", "ConnectSyncKit", "Kit", "SyncKit"]

T = TypeVar("T")
P = ParamSpec("P")
_PER_PAGE = 1_000


class _Wiring:
    """What both kits are: an app on other ports, and looks at what came of it."""

    def __init__(self, app: Redrive, *, store: str = "memory://", seed: int = 0) -> None:
        self.clock = FakeClock()
        self._tracked: list[Event[msgspec.Raw]] = []
        self._app = app
        self._url = store
        self._is_in_memory = parse_store(store).scheme == "memory"
        self._schema: OwnSchema | None = None
        self._ports = Ports(
            clock=self.clock,
            ids=CountingIds(),
            rng=SeededRng(seed),
            executor=InlineExecutor(),
            # A clock that jumps makes a worker look wedged, and a test outlives that.
            end_process=lambda: None,
            journal=Path(gettempdir()) / f"redrive-kit-{os.getpid()}-{id(self):x}",
            tracks_inline=True,
        )
        self._ports = msgspec.structs.replace(self._ports, on_tracked=self._tracked.append)
        self._apps: list[Redrive] = []
        self._stores: list[Store] = []
        self._wiring = ExitStack()
        self._stand_in: Callable[[str, Any], None] | None = None

    def open(self) -> None:
        """Connect the app; the block does so for you."""
        if parse_store(self._url).scheme == "postgresql":
            self._schema = OwnSchema(self._url)
            self._url = self._schema.url
            _elsewhere(self._schema.claim)
        self._stand_in = self._connect(self._app)
        if not self._is_in_memory and self._look(lambda operations: operations.events(limit=1)):
            self.close()
            raise UsageError(
                "The store of this kit holds events already; a kit needs an empty one, "
                "such as a new file in a temporary folder."
            )

    def close(self) -> None:
        """Connect the app to where it was before; the block does so for you."""
        self._wiring.close()
        if self._ports.journal is not None:
            shutil.rmtree(self._ports.journal, ignore_errors=True)
        stores, self._stores = self._stores, []
        for store in stores:
            _elsewhere(store.close)
        if self._schema is not None:
            _elsewhere(self._schema.drop)

    def connect(self, app: Redrive) -> None:
        """Let one more app share the store and the clock, such as one that only publishes."""
        self._connect(app)

    def script(
        self, destination: str, script: Sequence[Step] = (), *, repeats: bool = False
    ) -> ScriptedDestination:
        """Put a scripted destination in the place of a declared one, for the rest of the block."""
        if self._stand_in is None:
            raise UsageError("The kit is not open; script destinations within `async with Kit`.")
        scripted = ScriptedDestination(destination, script, repeats=repeats)
        self._stand_in(destination, scripted)
        return scripted

    def published(self, event_type: str | None = None, **attributes: object) -> list[Event[Any]]:
        """Return the events that were published, in order, with their payloads decoded.

        `event_type` may be a glob such as `"order.*"`; attributes are those of the event:
        `payload`, `key`, `tenant` and so on.
        """
        return _chosen(self._events(), event_type, attributes)

    def assert_published(
        self, event_type: str, *, times: int | None = None, **attributes: object
    ) -> list[Event[Any]]:
        """Fail unless such events were published, `times` times or at least once; return them."""
        found = self.published(event_type, **attributes)
        return _counted(found, times, event_type, attributes, self._listing)

    def tracked(self, event_type: str | None = None, **attributes: object) -> list[Event[Any]]:
        """Return the events that code tracked, in order, whatever has become of them.

        They are chosen as those of `published`. Nobody has to flush before.
        """
        decoded = [
            msgspec.structs.replace(one, payload=msgspec.json.decode(one.payload))
            for one in self._tracked
        ]
        return _chosen(decoded, event_type, attributes)

    def assert_tracked(
        self, event_type: str, *, times: int | None = None, **attributes: object
    ) -> list[Event[Any]]:
        """Fail unless such events were tracked, `times` times or at least once; return them."""
        found = self.tracked(event_type, **attributes)
        return _counted(
            found, times, event_type, attributes, lambda: _list("tracked", self.tracked())
        )

    def assert_nothing_published(self) -> None:
        """Fail if any event was published."""
        if self.published():
            raise AssertionError(f"Expected no event. {self._listing()}")

    def dead_letters(self) -> list[Delivery]:
        """Return the deliveries that failed for good and wait for a person, the latest first."""
        return self._look(lambda operations: _all_deliveries(operations, Status.FAILED))

    def _connect(self, app: Redrive) -> Callable[[str, Any], None]:
        if self._is_in_memory and not self._stores:
            self._stores.append(TransactionalMemory(self.clock, app.settings.history))
        self._apps.append(app)
        history = app.settings.history
        return self._wiring.enter_context(
            app.rewired(self._ports, lambda: self._make_store(history))
        )

    def _make_store(self, history: int) -> Store:
        if self._is_in_memory:
            return self._stores[0]
        maker = StoreFactory(self._ports, Observers(), lambda: "")
        store = maker.make(Settings(store=self._url, history=history))
        self._stores.append(store)
        return store

    def _events(self) -> list[Event[Any]]:
        return self._look(_all_events)

    async def _drain(self, until: Duration | None) -> Tally:
        for app in self._apps:
            await app.flush()
        tally = await self._app.drain()
        if until is not None:
            end = self.clock.now() + duration(until, name="until")
            while (due := await self._next_due()) is not None and due <= end:
                self.clock.advance(due - self.clock.now())
                tally = _sum(tally, await self._app.drain())
        return tally

    async def _run_for(self, span: Duration) -> Tally:
        end = self.clock.now() + duration(span, name="span")
        tally = await self._drain(span)
        self.clock.advance(max(timedelta(0), end - self.clock.now()))
        return tally

    async def _next_due(self) -> datetime | None:
        """Return when the next thing happens by itself."""
        now = self.clock.now()
        pending = await _all_deliveries(self._app.operations, Status.PENDING)
        instants = [
            instant
            for one in pending
            for instant in (one.due if one.behind is None else None, one.deadline)
        ]
        held = await _all_deliveries(self._app.operations, Status.IN_FLIGHT)
        instants += [one.lease_until for one in held]
        for gate in await self._app.operations.gates():
            if any(one.destination == gate.destination for one in pending):
                instants += [gate.until, gate.gate.next_check]
        instants += [one.next_at for one in await self._app.operations.replays(limit=1_000)]
        dead = {
            one.destination for one in await _all_deliveries(self._app.operations, Status.FAILED)
        }
        instants += [
            one.next_at
            for one in await self._app.operations.auto_replays()
            if one.destination in dead
        ]
        instants += [one.next_at for one in await self._app.operations.schedules()]
        tenants = await self._app.operations.tenants(limit=MOST_PER_PAGE)
        instants += [one.until for one in tenants if one.pending]
        return min((one for one in instants if one is not None and one > now), default=None)

    def _look(self, question: Callable[[Operations], Coroutine[Any, Any, T]]) -> T:
        """Answer without `await`: an assertion that nobody awaited would pass for ever."""
        transaction = open_transaction.get()
        if transaction is not None and transaction.is_open:
            raise UsageError(
                "A transaction of app.transaction() is open here and holds the write lock; "
                "look at what was published after the block."
            )

        async def ask() -> T:
            try:
                return await question(self._app.operations)
            finally:
                await self._app.close()

        return _elsewhere(ask)

    def _listing(self) -> str:
        return _list("published", self.published())


class Kit(_Wiring):
    """Connects your app to an empty store in memory and a clock that obeys, for one block.

    Nothing of the app is replaced but its ports: it publishes, routes, retries and dead-letters
    as it does in production, with its own handlers.

    >>> from redrive import Redrive
    >>> app = Redrive("sqlite:///shop.db")
    >>> @app.handler("order.*")
    ... async def bill(event):
    ...     await app.publish("invoice.sent", event.payload, key=event.key)
    >>> async def test_an_order_is_billed():
    ...     async with Kit(app) as kit:
    ...         await app.publish("order.paid", {"order": 42}, key="order-42")
    ...         await kit.drain()
    ...         kit.assert_published("invoice.sent", key="order-42", times=1)
    >>> asyncio.run(test_an_order_is_billed())

    `publish(within=...)` takes a SQLAlchemy or Django transaction and a `FakeTransaction`: commit
    publishes, rollback does not. Code that uses `app.transaction()` or a transactional handler
    needs a database: pass `store`, the URL of a SQLite file that is still to be created, or of a
    PostgreSQL database, in which the kit has a schema of its own and drops it in the end. Looking
    (`published`, `dead_letters` and the assertions) needs no `await`.
    """

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for app in self._apps:  # on their own event loop, to which connections belong
                await app.close()
        finally:
            self.close()

    @property
    def operations(self) -> Operations:
        """Everything a person may do."""
        return self._app.operations

    async def drain(self, *, until: Duration | None = None) -> Tally:
        """Deliver everything that is due, and tell what came of it.

        With `until`, such as `"1h"`, the clock goes on to whatever comes due within that time,
        retries and delayed events, one after the other.
        """
        return await self._drain(until)

    async def given(self, *events: NewEvent) -> Tally:
        """Publish what has happened, in this order, and have it projected and delivered."""
        await self._app.publish_many(events)
        return await self.drain()

    async def select(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query, such as of a read model; the kit needs a database for it."""
        if self._is_in_memory:
            raise UsageError(
                "A kit without a database has no tables to look at; pass store=, the URL of a "
                "SQLite file that is still to be created, or of a PostgreSQL database."
            )
        if self._schema is not None:
            return await self._schema.select(statement)
        async with self._app.transaction() as transaction:
            return [tuple(row) for row in transaction.execute(statement)]

    async def run_for(self, span: Duration) -> Tally:
        """Let that much time pass, delivering everything when it comes due."""
        return await self._run_for(span)


class SyncKit(_Wiring):
    """The same kit for tests without an event loop, as with Flask and Django.

    >>> from redrive import Redrive
    >>> app = Redrive("sqlite:///shop.db")
    >>> @app.handler("order.*")
    ... def bill(event):
    ...     app.sync.publish("invoice.sent", event.payload)
    >>> with SyncKit(app) as kit:
    ...     receipt = app.sync.publish("order.paid", {"order": 42})
    ...     tally = kit.drain()
    ...     found = kit.assert_published("invoice.sent", times=1)

    Handlers run in the thread of the test.
    """

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Connect the app to where it was before; the block does so for you."""
        for app in self._apps:
            app.sync.close()
        super().close()

    def operate(
        self,
        operation: Callable[Concatenate[Operations, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Do what a person may do: `kit.operate(Operations.replay, [7], by="ann")`."""
        return self._app.sync.operate(operation, *args, **kwargs)

    def drain(self, *, until: Duration | None = None) -> Tally:
        """Deliver everything that is due, and tell what came of it.

        With `until`, such as `"1h"`, the clock goes on to whatever comes due within that time.
        """
        return self._finish(lambda: self._drain(until))

    def run_for(self, span: Duration) -> Tally:
        """Let that much time pass, delivering everything when it comes due."""
        return self._finish(lambda: self._run_for(span))

    def _finish(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call in this thread, to which connections of handlers may belong."""
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise UsageError(
                "SyncKit is for tests without an event loop, and one runs here; "
                "write `async with Kit(app) as kit:`."
            )

        async def finish() -> T:
            try:
                return await call()
            finally:
                await self._app.close()

        return asyncio.run(finish())


class ConnectKit(Protocol):
    """What the fixture `redrive_kit` is: connects an app until the test ends."""

    async def __call__(self, app: Redrive, *, store: str = ..., seed: int = ...) -> Kit:
        """Return the kit that the app is now connected to."""


class ConnectSyncKit(Protocol):
    """What the fixture `redrive_sync_kit` is: connects an app until the test ends."""

    def __call__(self, app: Redrive, *, store: str = ..., seed: int = ...) -> SyncKit:
        """Return the kit that the app is now connected to."""


def _elsewhere(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a call to its end on an event loop in another thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(call())).result()


async def _all_events(operations: Operations) -> list[Event[Any]]:
    events: list[Event[Any]] = []
    position = LOG_START
    while page := await operations.events(after=position, limit=_PER_PAGE):
        position = page[-1].position
        events += [
            msgspec.structs.replace(one.event, payload=msgspec.json.decode(one.event.payload))
            for one in page
        ]
    return events


async def _all_deliveries(operations: Operations, status: Status) -> list[Delivery]:
    page = Page(deliveries=(), next_cursor=None)
    found: list[Delivery] = []
    while True:
        page = await operations.deliveries(
            Query(status=status), cursor=page.next_cursor, limit=_PER_PAGE
        )
        found += page.deliveries
        if page.next_cursor is None:
            return found


def _sum(one: Tally, other: Tally) -> Tally:
    return Tally(*(getattr(one, name) + getattr(other, name) for name in Tally.__struct_fields__))


def _chosen(
    events: Sequence[Event[Any]], event_type: str | None, attributes: Mapping[str, object]
) -> list[Event[Any]]:
    refuse_unknown(attributes, Event.__struct_fields__, what="event attribute")
    wanted = dict(attributes)
    if "payload" in wanted:
        wanted["payload"] = msgspec.json.decode(encode_payload(wanted["payload"]))
    return [
        event
        for event in events
        if (event_type is None or matches(event_type, event.type))
        and all(getattr(event, name) == value for name, value in wanted.items())
    ]


def _counted(
    found: list[Event[Any]],
    times: int | None,
    event_type: str,
    attributes: Mapping[str, object],
    listing: Callable[[], str],
) -> list[Event[Any]]:
    if len(found) == times or (times is None and found):
        return found
    wish = "".join(f", {name}={value!r}" for name, value in attributes.items())
    number = "at least one" if times is None else times
    raise AssertionError(
        f"Expected {number} of {event_type!r}{wish}, and found {len(found)}. {listing()}"
    )


def _list(what: str, events: Sequence[Event[Any]]) -> str:
    if not events:
        return f"Nothing was {what}."
    return "\n  ".join([f"{what.capitalize()} were:", *map(_line, events)])


def _line(event: Event[Any]) -> str:
    shown = ("payload", "key", "tenant", "source", "idempotency_key")
    given = [(name, getattr(event, name)) for name in shown]
    rest = "".join(f", {name}={value!r}" for name, value in given if value not in (None, ""))
    return f"{event.type!r}{rest}"
