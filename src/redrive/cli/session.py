"""How a command gets an app: by the store's address, or by the app of the user's that knows it."""

from __future__ import annotations

import getpass
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from redrive.app.config import Settings
    from redrive.app.redrive import Redrive
    from redrive.store import Query

__all__ = [
    "app_at",
    "chosen_store",
    "current_user",
    "in_session",
    "knowing",
    "refuse_empty",
    "store_name",
]

T = TypeVar("T")
_known_settings: ContextVar[Callable[[], Settings] | None] = ContextVar(
    "known_settings", default=None
)


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


def in_session(
    work: Callable[[Redrive], Awaitable[T]],
    *,
    store: str | None,
    creates: bool = False,
    app: Redrive | None = None,
    query: Query | None = None,
) -> T:
    """Open the app of a store, do the work, close it; only with `creates` may the store be new.

    An `app` of the user's own keeps its settings. A destination or a group of the `query`
    that the store does not know is refused: a slip in a filter must not look as if all were well.
    """
    import asyncio

    opened = app or app_at(store)

    async def session() -> T:
        await refuse_empty(opened.settings.store, creates=creates)
        try:
            await opened.open()
            if query is not None:
                await _refuse_slips(opened, query)
            return await work(opened)
        finally:
            await opened.close()

    return asyncio.run(session())


def current_user() -> str:
    """Return the name of the operating system's user, for the audit log."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return f"uid {os.getuid()}"


def store_name(store: str) -> str:
    """Return the address of a store as people may see it, without a password."""
    from redrive.app.config import parse_store

    address = parse_store(store)
    if address.scheme == "postgresql":
        from redrive.stores.postgres import read_address

        return read_address(store).name
    return store if address.path is None else str(address.path.resolve())


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


async def _refuse_slips(app: Redrive, query: Query) -> None:
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
