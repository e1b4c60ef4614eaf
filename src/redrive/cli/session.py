"""How a command gets what it works on: an app of a store, or a client of a server.

The store is named by its address, or by the app of the user's that knows it; a server by its URL.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, TypeVar, Unpack

if TYPE_CHECKING:
    from pathlib import Path

    from redrive.app.config import Settings
    from redrive.app.redrive import Redrive
    from redrive.client import AsyncClient
    from redrive.errors import UsageError
    from redrive.model.event import EventAttributes, Receipt
    from redrive.operations import Operations
    from redrive.store import Query

__all__ = [
    "Operated",
    "app_at",
    "chosen_store",
    "connect",
    "current_user",
    "in_session",
    "knowing",
    "operated_at",
    "refuse_empty",
    "settings_of",
    "store_name",
]

T = TypeVar("T")
_SCHEMES = ("http://", "https://")
_PATIENCE = "3s"
"""Who types a command would rather know that nobody answers."""
_is_remote: ContextVar[bool] = ContextVar("is_remote", default=False)
_known_settings: ContextVar[Callable[[], Settings] | None] = ContextVar(
    "known_settings", default=None
)


class Operated(Protocol):
    """What commands work on, which need not know whether it is an app or a client."""

    @property
    def operations(self) -> Operations:
        """Everything a person may do."""

    async def publish(
        self, event_type: str, payload: object = None, **attributes: Unpack[EventAttributes]
    ) -> Receipt:
        """Publish an event; returns when it and its deliveries are durable."""

    async def open(self) -> object:
        """Open what it needs."""

    async def close(self) -> None:
        """Let go of it."""


@contextmanager
def knowing(settings: Callable[[], Settings]) -> Iterator[None]:
    """Let commands that name no store take these settings, as those of `manage.py` do."""
    token = _known_settings.set(settings)
    try:
        yield
    finally:
        _known_settings.reset(token)


def chosen_store(target: str | None, store: str | None) -> str | None:
    """Return the store of a command that may be told the app alone, without an option."""
    from redrive.errors import UsageError

    if target is not None and store is not None:
        raise UsageError(f"The store is named twice; leave {target!r} or the option out.")
    return store if target is None else target


def app_at(store: str | None) -> Redrive:
    """Return an app of a store; where `module:name` names one of the user's, of its settings.

    It declares nothing, so that whoever only looks changes nothing.
    """
    from redrive.app.redrive import Redrive

    if _server_of(store) is not None:
        raise _no_store("This needs the store itself")
    known = _known_settings.get()
    settings = None
    if store is not None and ":" in store and "://" not in store:
        from redrive.cli.target import load_app

        settings = load_app(store).settings
    elif store is None and known is not None:
        settings = known()
    if settings is None:
        return Redrive(store)
    app = Redrive(settings.store)
    app.settings = settings
    return app


def operated_at(store: str | None) -> Operated:
    """Return a client of the server that is named, or an app of the store."""
    server = _server_of(store)
    return app_at(store) if server is None else connect(server)


def connect(server: str) -> AsyncClient:
    """Return a client of a server; its token is that of REDRIVE_TOKEN."""
    from redrive.client import AsyncClient
    from redrive.client.asynchronous import address_of
    from redrive.client.connections.standard import StandardConnection
    from redrive.clock import ThreadClock

    # A command waits for one answer at a time, so it can do without aiohttp.
    clock = ThreadClock()
    connection = StandardConnection(address_of(server), timeout=35, clock=clock)
    return AsyncClient(server, connection=connection, clock=clock, patience=_PATIENCE)


def settings_of(app: Operated) -> Settings | None:
    """Return the settings of an app; those of a server are its own business."""
    settings: Settings | None = getattr(app, "settings", None)
    return settings


def _server_of(store: str | None) -> str | None:
    """Return the server that a command is told, by its option or the environment."""
    from redrive.errors import UsageError

    if store is not None:
        return store if store.startswith(_SCHEMES) else None
    server = os.environ.get("REDRIVE_SERVER")
    if not server or _known_settings.get() is not None:
        return None
    if os.environ.get("REDRIVE_STORE"):
        raise UsageError(
            "REDRIVE_SERVER and REDRIVE_STORE are both set; unset one of them, or say which is "
            "meant with --server or --store."
        )
    return server


def in_session(
    work: Callable[[Operated], Awaitable[T]],
    *,
    store: str | None,
    creates: bool = False,
    app: Operated | None = None,
    query: Query | None = None,
) -> T:
    """Open what is operated on, do the work, close it; only with `creates` may the store be new.

    An `app` of the user's own keeps its settings. A destination or a group of the `query`
    that the store does not know is refused: a slip in a filter must not look as if all were well.
    """
    import asyncio

    opened = app or operated_at(store)
    settings = settings_of(opened)
    if settings is None and creates:
        raise _no_store("A store is made where it is")

    async def session() -> T:
        if settings is not None:
            await refuse_empty(settings.store, creates=creates)
        try:
            await opened.open()
            if query is not None:
                await _refuse_slips(opened, query)
            return await work(opened)
        finally:
            await opened.close()

    known = _is_remote.set(settings is None)
    try:
        return asyncio.run(session())
    finally:
        _is_remote.reset(known)


def _no_store(why: str) -> UsageError:
    from redrive.errors import UsageError

    return UsageError(
        f"{why}, and a server was named; run it there, with the store's URL: --store, or "
        "REDRIVE_STORE in place of REDRIVE_SERVER."
    )


def current_user() -> str:
    """Return the name of the operating system's user, for the audit log.

    Through a server it is nobody: that knows who acts by the token.
    """
    if _is_remote.get():
        return ""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return f"uid {os.getuid()}"


def store_name(store: str) -> str:
    """Return the address of a store as people may see it, without a password."""
    from redrive.app.store_factory import store_name

    return store_name(store)


async def refuse_empty(store: str, *, creates: bool) -> None:
    """Refuse a store that is not there; a mistyped address must not look as if all were well."""
    from redrive.app.config import parse_store
    from redrive.errors import StoreUnavailableError, UsageError

    address = parse_store(store)
    if address.scheme == "memory":
        raise UsageError(
            f"The store {store} lives inside one process, so a command finds it empty; "
            "name a file, such as --store sqlite:///shop.db."
        )
    if creates:
        return
    if address.path is not None:
        is_there, name, url = address.path.exists(), str(address.path), store
    else:
        from redrive.stores import postgres

        is_there, name, url = await postgres.is_there(store), store_name(store), "postgresql://…"
    if not is_there:
        raise StoreUnavailableError(
            f"There is no store at {name}; create it with `redrive init --store {url}`, "
            "or name another with --store or REDRIVE_STORE."
        )
    if address.path is not None:
        _refuse_foreign(address.path, store)


async def _refuse_slips(app: Operated, query: Query) -> None:
    from redrive.errors import NotFoundError, not_found
    from redrive.model.delivery import Status
    from redrive.store import Query

    if query.destination is not None:
        known = [one.destination for one in await app.operations.gates()]
        if query.destination not in known:
            raise not_found(query.destination, known, what="destination")
    if query.group is not None:
        # Only dead letters have a group; one whose letters are resolved is shown with those alone.
        is_resolved_too = query.with_resolved or query.status is not Status.FAILED
        members = Query(group=query.group, with_resolved=is_resolved_too)
        if not (await app.operations.deliveries(members, limit=1)).deliveries:
            raise NotFoundError(
                f"No dead letter is in group {query.group!r}; see them with: redrive dlq groups"
            )


def _refuse_foreign(path: Path, store: str) -> None:
    """Refuse a database of somebody else's: opening it would put our tables into it."""
    from redrive.errors import StoreUnavailableError
    from redrive.stores.sqlite.schema import is_foreign

    if is_foreign(path):
        raise StoreUnavailableError(
            f"{path} is a database, but no store of Redrive; `redrive init --store {store}` makes "
            "one of it, or name another with --store or REDRIVE_STORE."
        )
