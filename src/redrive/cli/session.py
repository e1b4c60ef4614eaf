"""How a command gets an app: by the store's address alone, without any of the user's code."""

from __future__ import annotations

import getpass
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from redrive.app import Redrive

__all__ = ["current_user", "in_session", "refuse_empty"]

T = TypeVar("T")


def in_session(
    work: Callable[[Redrive], Awaitable[T]],
    *,
    store: str | None,
    creates: bool = False,
    app: Redrive | None = None,
) -> T:
    """Open the app of a store, do the work, close it; only with `creates` may the file be new.

    An `app` of the user's own keeps its settings.
    """
    import asyncio

    from redrive.app import Redrive

    opened = app or Redrive(store)
    refuse_empty(opened.settings.store, creates=creates)

    async def session() -> T:
        try:
            await opened.open()
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


def refuse_empty(store: str, *, creates: bool) -> None:
    """Refuse a store that is not there; a mistyped address must not look as if all were well."""
    from redrive.config import parse_store
    from redrive.errors import StoreUnavailableError, UsageError

    path = parse_store(store).path
    if path is None:
        raise UsageError(
            f"The store {store} lives inside one process, so a command finds it empty; "
            "name a file, such as --store sqlite:///shop.db."
        )
    if not creates and not path.exists():
        raise StoreUnavailableError(
            f"There is no store at {path}; create it with `redrive init --store {store}`, "
            "or name another with --store or REDRIVE_STORE."
        )
    if not creates:
        _refuse_foreign(path, store)


def _refuse_foreign(path: Path, store: str) -> None:
    """Refuse a database of somebody else's: opening it would put our tables into it."""
    from redrive.errors import StoreUnavailableError
    from redrive.stores.sqlite.schema import is_foreign

    if is_foreign(path):
        raise StoreUnavailableError(
            f"{path} is a database, but no store of Redrive; `redrive init --store {store}` makes "
            "one of it, or name another with --store or REDRIVE_STORE."
        )
