"""How a command gets an app: by the store's address alone, without any of the user's code."""

from __future__ import annotations

import getpass
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from redrive.app import Redrive

__all__ = ["current_user", "in_session", "refuse_empty", "store_name"]

T = TypeVar("T")


def in_session(
    work: Callable[[Redrive], Awaitable[T]],
    *,
    store: str | None,
    creates: bool = False,
    app: Redrive | None = None,
    destination: str | None = None,
) -> T:
    """Open the app of a store, do the work, close it; only with `creates` may the store be new.

    An `app` of the user's own keeps its settings. A `destination` that the store does not know is
    refused: a slip in a filter must not look as if all were well.
    """
    import asyncio

    from redrive.app import Redrive

    opened = app or Redrive(store)

    async def session() -> T:
        await refuse_empty(opened.settings.store, creates=creates)
        try:
            await opened.open()
            if destination is not None:
                await _refuse_unknown(opened, destination)
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
    from redrive.config import parse_store

    address = parse_store(store)
    if address.scheme == "postgresql":
        from redrive.stores.postgres import read_address

        return read_address(store).name
    return store if address.path is None else str(address.path.resolve())


async def refuse_empty(store: str, *, creates: bool) -> None:
    """Refuse a store that is not there; a mistyped address must not look as if all were well."""
    from redrive.config import parse_store
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


async def _refuse_unknown(app: Redrive, destination: str) -> None:
    from redrive.errors import not_found

    known = [one.destination for one in await app.operations.gates()]
    if destination not in known:
        raise not_found(destination, known, what="destination")


def _refuse_foreign(path: Path, store: str) -> None:
    """Refuse a database of somebody else's: opening it would put our tables into it."""
    from redrive.errors import StoreUnavailableError
    from redrive.stores.sqlite.schema import is_foreign

    if is_foreign(path):
        raise StoreUnavailableError(
            f"{path} is a database, but no store of Redrive; `redrive init --store {store}` makes "
            "one of it, or name another with --store or REDRIVE_STORE."
        )
