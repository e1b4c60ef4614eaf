"""Redrive, the front door: declares destinations, publishes, works, operates.

The composition root: with `store_factory.py`, the only module that names concrete classes.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

import msgspec

from redrive.app.calling import CallingDesk, CallingDoor
from redrive.app.config import AppOptions, Settings, parse_store, read_settings
from redrive.app.declaration import (
    Declaration,
    DestinationOptions,
    HandlerOptions,
    NamedOptions,
    Ports,
    check_handler_options,
    declare_destination,
    declare_handler,
    in_environment,
)
from redrive.app.hooking import HookingDoor
from redrive.app.log import Log
from redrive.app.projecting import (
    ProjectionOptions,
    Projections,
    check_projection,
    declare_projection,
)
from redrive.app.scheduling import Compute, ScheduleOptions, computed_by, declare_schedule
from redrive.app.serving import ServerOptions, make_health, make_server
from redrive.app.session import Session, Sessions
from redrive.app.store_factory import StoreFactory, forget_parent
from redrive.app.tracking import AppParts, TrackingDesk, TrackingDoor, make_preparer
from redrive.app.working import make_drafter, make_secrets, session_worker
from redrive.archive import open_archive
from redrive.errors import ConfigurationError, TransactionError, not_found, refuse_unknown
from redrive.executor import Executor
from redrive.model.duration import Duration
from redrive.model.event import Event, EventAttributes, EventId, NewEvent, Receipt, new_event
from redrive.model.pattern import check_pattern
from redrive.observer import DeclarationChanged, Observer, Observers
from redrive.observers.hooks import Hooks
from redrive.operations import Operations
from redrive.pipeline.publish import Publisher
from redrive.policies.upcasting import Upcast, Upcasts
from redrive.sealing import Secrets
from redrive.store import Declarer, Store, open_transaction, refuse_in_transaction
from redrive.transport import Way
from redrive.transports.function import Handler
from redrive.worker import PlannedSchedule, Tally, Worker

if TYPE_CHECKING:
    from redrive.app.sync import SyncApp
    from redrive.stores.sqlite import SqliteTransaction
    from redrive.tracking.terms import Tracking
    from redrive.web.guard import Guard
    from redrive.worker.health import HealthEndpoint

__all__ = ["Redrive"]

H = TypeVar("H", bound=Handler)
S = TypeVar("S", bound=Callable[[Event[Any]], object])
M = TypeVar("M", bound=Callable[[list[Event[Any]]], object])
E = TypeVar("E", bound=Callable[[Event[Any], Any], object])
U = TypeVar("U", bound=Upcast)
J = TypeVar("J", bound=Callable[..., Any])


class Redrive(TrackingDoor, HookingDoor, CallingDoor):
    """An app: its store, its destinations, and everything you do with them.

    >>> app = Redrive("memory://")
    >>> @app.handler("order.*", retry=Retry(max_attempts=5, base="1s"))
    ... async def bill(event):
    ...     print(event.payload["order"])
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        tracking: Tracking | None = None,
        **options: Unpack[AppOptions],
    ) -> None:
        self.settings_read = read_settings({"store": store, **options})
        self.settings: Settings = self.settings_read.settings
        self._ports = Ports()
        self._declared: dict[str, Declaration] = {}
        self._schedules: dict[str, PlannedSchedule] = {}
        self._upcasts = Upcasts()
        self._observers = Observers()
        self._hooks = Hooks(self._observers)
        self._sessions = self._make_sessions()
        self._stores = StoreFactory(self._ports, self._observers, lambda: self.settings.keys_file)
        # Settings may still be replaced, as `redrive worker` and Django do.
        self._make_store: Callable[[], Store] = lambda: self._stores.make(self.settings)
        self._tracking_desk = TrackingDesk(
            tracking, parts=self._parts_of_tracking, open_store=self._open_registered
        )
        self._calling_desk = CallingDesk(
            self._session,
            self._parts_of_tracking,
            secrets=lambda: self.secrets,
            wait=self._wait_for_result,
        )
        _apps.add(self)

    @overload
    def handler(
        self, *patterns: str, batch: int, **options: Unpack[NamedOptions]
    ) -> Callable[[M], M]: ...

    @overload
    def handler(
        self, *patterns: str, transactional: Literal[True], **options: Unpack[NamedOptions]
    ) -> Callable[[E], E]: ...

    @overload
    def handler(
        self, *patterns: str, transactional: Literal[False] = ..., **options: Unpack[NamedOptions]
    ) -> Callable[[S], S]: ...

    def handler(self, *patterns: str, **options: Unpack[HandlerOptions]) -> Callable[[H], H]:
        """Declare a function as a destination for events whose type fits one of the patterns.

        It may be sync or async, takes the event (with `batch`, a list of events), and is called
        at least once for each. It may return `Snooze` or `Cancel`, and raise `Terminal` or
        `Transient` to say what kind of failure it met. With `transactional` it also takes a
        connection, and what it does with that happens exactly once.
        """
        check_handler_options(patterns, options)

        chosen = in_environment(options, self.settings.environment)

        def declare(function: H) -> H:
            self._declare(declare_handler(function, patterns, chosen, self._ports, self._upcasts))
            return function

        return declare

    def destination(
        self, name: str, *patterns: str, transport: Way, **options: Unpack[DestinationOptions]
    ) -> None:
        """Declare a destination that is reached by `http(...)` or by a transport of yours."""
        chosen = in_environment(options, self.settings.environment)
        self._declare(declare_destination(name, patterns, transport, chosen))

    @overload
    def schedule(
        self, cron: str, type: str, *, timezone: str = ..., **options: Unpack[ScheduleOptions]
    ) -> Callable[[Compute], Compute]: ...

    @overload
    def schedule(
        self, *, every: Duration, type: str, **options: Unpack[ScheduleOptions]
    ) -> Callable[[Compute], Compute]: ...

    def schedule(
        self,
        cron: str | None = None,
        type: str | None = None,  # noqa: A002 - as an event calls it
        *,
        every: Duration | None = None,
        timezone: str = "UTC",
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[Compute], Compute]:
        """Publish an event at the times of a cron expression, or every so often.

        Each tick is published once, whichever workers run. What is returned may decorate a
        function that takes the time of a tick and returns its payload. `missed` says what becomes
        of ticks that no worker was there for, and `overlap` of those that come while deliveries of
        the last one are still under way.

        >>> app = Redrive("memory://")
        >>> _ = app.schedule("0 2 * * *", "report.due", timezone="Europe/Berlin")
        >>> @app.schedule(every="30s", type="queue.checked")
        ... def at_that_time(at):
        ...     return {"at": at.isoformat()}
        """
        planned = declare_schedule(type, options, cron=cron, every=every, timezone=timezone)
        name = planned.schedule.name
        if name in self._schedules:
            raise ConfigurationError(
                f"There are two schedules named {name!r}; give one of them another name with name=."
            )
        self._schedules[name] = planned

        def declare(function: Compute) -> Compute:
            self._schedules[name] = computed_by(planned, function)
            return function

        return declare

    def projection(self, *patterns: str, **options: Unpack[ProjectionOptions]) -> Callable[[J], J]:
        """Declare a function, or a class of `Projection`, that makes a read model of the log.

        It is async, takes an event and a `ReadModel`, and is given every event whose type fits, in
        the order of each key. What it writes with the connection is committed together with how
        far it has come, so that each event counts once. An event that fails is tried again as the
        `retry` says, while later ones of its key wait and all others go on; then `on_failure`
        says whether its key is parked, the projection halts, or the event is skipped.
        """
        check_projection(patterns, options)

        def declare(target: J) -> J:
            self._declare(declare_projection(target, patterns, options, self._ports, self._upcasts))
            return target

        return declare

    def upcast(self, *patterns: str) -> Callable[[U], U]:
        """Declare a function that brings payloads of these types up to date before they are read.

        It takes the payload as it was published, decoded, and returns it in its present shape,
        whichever it has. Handlers and readers of the log get what it returns; the log stays as it
        is.
        """
        for pattern in patterns:
            check_pattern(pattern)
        if not patterns:
            raise ConfigurationError(
                'An upcast is of some type of events; name it, as in @app.upcast("order.paid").'
            )

        def declare(function: U) -> U:
            for pattern in patterns:
                self._upcasts.add(pattern, function)
            return function

        return declare

    def observe(self, observer: Observer) -> None:
        """Let an observer hear every fact of this app."""
        self._observers.add(observer)

    def run_handlers_in(self, executor: Executor) -> None:
        """Let this executor run the handlers that are plain functions, as a framework may need."""
        self._ports = msgspec.structs.replace(self._ports, executor=executor)

    async def publish(
        self,
        event_type: str,
        payload: object = None,
        *,
        within: object = None,
        journal: bool = False,
        **attributes: Unpack[EventAttributes],
    ) -> Receipt:
        """Publish an event; returns when it and its deliveries are durable.

        With `within`, it joins that transaction and is durable when you commit. With `journal`, it
        is written to this machine's journal if the store does not answer, and the receipt
        `is_journaled`: the store gets it later, and whom it is for is found out then.
        """
        event = new_event(event_type, payload, attributes, now=self._ports.clock.now())
        if journal:
            receipt = await self._tracking_desk.publish_or_journal(event, self.publisher, within)
        else:
            receipt = await (await self.publisher()).publish(event, within=within)
        receipt.__dict__["wait"] = self._wait_for_result
        return receipt

    async def publish_many(
        self, events: Sequence[NewEvent], *, within: object = None
    ) -> Sequence[Receipt]:
        """Publish all of the events, or none."""
        receipts = await (await self.publisher()).publish_many(events, within=within)
        for one in receipts:
            one.__dict__["wait"] = self._wait_for_result
        return receipts

    async def wake(self) -> None:
        """Have workers look for work now, in this process and in others.

        Call it after the commit of a transaction that you have published within, if its driver
        does not tell of it: asyncpg and psycopg. Without it they look by themselves, soon.
        """
        (await self._store()).wake()

    async def publisher(self) -> Publisher:
        """Return what publishes on this event loop, with the store open."""
        return (await self._session()).publisher

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SqliteTransaction]:
        """Open a transaction on the store's file for your own tables and `publish(within=...)`.

        It commits at the end of the block; an exception rolls everything back.
        """
        from redrive.stores.sqlite import SqliteStore  # noqa: PLC0415 - only who uses it pays

        refuse_in_transaction("open another one")
        store = await self._store()
        if not isinstance(store, SqliteStore):
            raise TransactionError(
                f"A store of {parse_store(self.settings.store).scheme}:// opens no transaction for "
                "your own tables: app.transaction() needs sqlite:///… With PostgreSQL, open your "
                "own and publish(within=connection)."
            )
        async with store.transaction() as transaction:
            open_transaction.set(transaction)
            try:
                yield transaction
            finally:
                open_transaction.set(None)

    @cached_property
    def sync(self) -> SyncApp:
        """The door for code without an event loop: Django, Flask, scripts."""
        from redrive.app.sync import SyncApp  # noqa: PLC0415 - only who uses it pays

        return SyncApp(self)

    @property
    def operations(self) -> Operations:
        """Everything a person may do."""
        return Operations(
            self._store,
            self._observers,
            to_change=self._store_to_change,
            payload_limit=self.settings.payload_limit,
            retention=self.settings.retention,
            archive=open_archive(
                self.settings.export_folder, is_needed=False, seal=self._stores.seal
            ),
            executor=self._ports.executor,
            redaction=self.settings.redaction,
            clock=self._ports.clock,
            entropy=self._ports.entropy,
            keys_file=self.settings.keys_file,
            drafter=make_drafter,
            testing=self._calling_desk,
            journal=self._tracking_desk.place,
        )

    @cached_property
    def secrets(self) -> Secrets:
        """What `secret:NAME`, `env:NAME` and `file:/path` stand for, looked up when needed."""
        return make_secrets(self._store, self.settings, self._ports)

    @property
    def is_encrypted(self) -> bool:
        """Whether payloads are encrypted at rest, as far as is known; logs then keep them out."""
        return bool(self._stores.seal.key_id)

    @property
    def projections(self) -> Projections:
        """The projections of the store: how far they are, waiting for one, beginning anew."""
        return Projections(self.operations)

    @property
    def log(self) -> Log:
        """The events that were published, for who reads them in order."""
        return Log(
            self._store, clock=self._ports.clock, poll=self.settings.poll, upcasts=self._upcasts
        )

    async def _wait_for_result(
        self,
        event_id: EventId,
        destination: str,
        *,
        timeout: Duration,  # noqa: ASYNC109 - as asked
    ) -> object:
        return await self.operations.result(event_id, destination, timeout=timeout)

    async def drain(self, *, services: bool = False) -> Tally:
        """Deliver everything that is due now, here, and tell what came of it."""
        tally = await (await self.make_worker(services=services)).run(until_idle=True)
        await self._hooks.finish()
        return tally

    @asynccontextmanager
    async def worker(
        self,
        *,
        only: Collection[str] = (),
        except_: Collection[str] = (),
        services: bool = False,
    ) -> AsyncIterator[Worker]:
        """Run a worker beside the block, on this event loop, for all destinations or for some."""
        worker = await self.make_worker(only=only, except_=except_, services=services)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await running

    async def make_worker(
        self,
        *,
        only: Collection[str] = (),
        except_: Collection[str] = (),
        services: bool = False,
    ) -> Worker:
        """Return a worker for this app's destinations, or some of them; `run` starts it.

        Another worker has to serve the others, or their events wait. With `services` it also
        serves those that the store describes.
        """
        if not (self._declared or self._schedules or services):
            raise ConfigurationError(
                "This app has no destination and no schedule, so a worker has nothing to do; "
                "declare one with @app.handler(...)."
            )
        refuse_in_transaction("run a worker")
        served = self._served(only=only, except_=except_, services=services)
        settings = self.settings
        session = await self._session()
        return session_worker(
            session,
            settings,
            self._ports,
            endpoints=[
                one.endpoint(self._ports, session.store, lease=settings.lease) for one in served
            ],
            open_store=self._open_store,
            observer=self._observers,
            schedules=tuple(self._schedules.values()),
            services=self.secrets if services else None,
            seal=self._stores.seal,
        )

    def _served(
        self, *, only: Collection[str], except_: Collection[str], services: bool
    ) -> list[Declaration]:
        only, except_ = (
            (names,) if isinstance(names, str) else tuple(names) for names in (only, except_)
        )
        for name in (*only, *except_):
            if name not in self._declared:
                raise not_found(name, sorted(self._declared), what="destination")
        served = [
            one
            for name, one in self._declared.items()
            if name not in except_ and (name in only or not only)
        ]
        if not (served or self._schedules or services):
            raise ConfigurationError(
                "Every destination of this app is left out, so a worker has nothing to do; "
                "leave out fewer."
            )
        return served

    def make_health(
        self,
        worker: Worker,
        *,
        port: int,
        host: str = "127.0.0.1",
        longest_silence: Duration = "60s",
    ) -> HealthEndpoint:
        """Return the port on which a worker that is still to be run tells of its health.

        It answers while its `async with` block lasts. `/metrics` needs `redrive[metrics]`.
        """
        return make_health(self, worker, self._ports, (host, port), longest_silence)

    def asgi(self, **options: Unpack[ServerOptions]) -> Guard:
        """Return the HTTP API as an ASGI app, to mount in yours or to serve alone.

        It opens the store when it is first needed. It needs `redrive[web]`.
        """
        return make_server(self, options, self._ports.clock)

    async def open(self) -> None:
        """Open the store and add destinations and patterns it lacks; every call does when needed.

        Only a worker changes what else there is of a destination.
        """
        (await self._session()).is_kept = True

    async def close(self) -> None:
        """Let go of what this event loop has opened; it closes when no worker runs on it."""
        await self._tracking_desk.close()
        session = self._sessions.current()
        if session is not None:
            await session.let_go()

    async def __aenter__(self) -> Self:
        (await self._session(is_kept=False)).blocks += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        session = self._sessions.current()
        if session is not None:
            if session.blocks <= 1:
                await self._tracking_desk.close()
            await session.leave_block()

    @contextmanager
    def rewired(
        self, ports: Ports, make_store: Callable[[], Store]
    ) -> Iterator[Callable[[str, Handler], None]]:
        """Connect the app to other ports and stores for a while, as tests do.

        Yields a function that lets a handler stand in for a declared destination.
        """
        before = self._ports, self._make_store, self._sessions, self._declared, self._tracking_desk
        self._ports, self._make_store = ports, make_store
        self._sessions, self._declared = self._make_sessions(), dict(self._declared)
        self._tracking_desk = self._tracking_desk.anew()
        try:
            yield self._stand_in
        finally:
            self._ports, self._make_store, self._sessions, self._declared = before[:4]
            self._tracking_desk = before[4]

    def _declare(self, declaration: Declaration) -> None:
        name = declaration.destination.name
        if name in self._declared:
            raise ConfigurationError(
                f"There are two destinations named {name!r}; give one another name with name=."
            )
        declaration.check_export(self.settings.export_folder)
        declaration.check_shared_rate(self._declared.values())
        self._declared[name] = declaration

    def _stand_in(self, name: str, handler: Handler) -> None:
        refuse_unknown([name], self._declared, what="destination")
        self._declared[name] = self._declared[name].served_by(handler, self._upcasts)

    async def _session(self, *, is_kept: bool = True) -> Session:
        return await self._sessions.get(is_kept=is_kept)

    def _make_sessions(self) -> Sessions:
        return Sessions(
            open_store=self._open_registered,
            make_publisher=self._make_publisher,
            before_closing=self._hooks.finish,
        )

    def _make_publisher(self, store: Store) -> Publisher:
        return Publisher(
            store, preparer=make_preparer(self.settings, self._ports), observer=self._observers
        )

    def _parts_of_tracking(self) -> AppParts:
        return AppParts(
            settings=self.settings,
            ports=self._ports,
            declared=self._declared,
            observer=self._observers,
            seal=self._stores.seal,
        )

    def _forget_parent(self) -> None:
        """After a fork: the child has the parent's memory, and none of its threads."""
        self._sessions = self._make_sessions()
        self._tracking_desk.forget_parent()
        if "sync" in self.__dict__:
            self.sync.forget_parent()
        forget_parent(self.settings)

    async def _store(self) -> Store:
        return (await self._session()).store

    async def _store_to_change(self) -> Store:
        refuse_in_transaction("do this")
        return await self._store()

    async def _open_store(self) -> Store:
        store = self._make_store()
        await store.open()
        return store

    async def _open_registered(self) -> Store:
        store = await self._open_store()
        try:
            declared = [one.destination for one in self._declared.values()]
            registered = await store.register(declared, by=Declarer(host=self._ports.host))
        except BaseException:
            await store.close()
            raise
        for one in registered.changes:
            self._observers.notice(DeclarationChanged(worker="", change=one))
        return store


_apps: weakref.WeakSet[Redrive] = weakref.WeakSet()


def _forget_parents() -> None:
    for app in _apps:
        app._forget_parent()  # noqa: SLF001 - this module's own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
