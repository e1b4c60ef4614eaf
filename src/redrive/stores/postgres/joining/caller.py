"""The caller's connection as our statements use it, and what every driver's adapter needs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from redrive.errors import TransactionError

__all__ = ["Caller", "needs_event_loop", "not_in_transaction", "pyformat"]

_PLACE = re.compile(r"\$(\d+)")


class Caller(Protocol):
    """A connection of the caller's, in a transaction or about to begin one by itself.

    With a driver that is not async, `fetch` never really waits.
    """

    @property
    def connection(self) -> object:
        """The driver's own connection, which stays the same while it leads to one database."""

    async def fetch(self, statement: str, *values: object) -> list[Any]:
        """Run a statement with `$1` for values, and return its rows."""

    def after_commit(self, then: Callable[[], None]) -> None:
        """Call it when the transaction has committed, if this driver tells; never if it has not.

        Once is enough for a transaction that is given the same function several times.
        """


def needs_event_loop(within: object) -> None:
    """Refuse an async connection where no event loop runs, as behind `app.sync`."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise TransactionError(
            f"within= got {_name(within)}, which works on its own event loop only; write "
            "`await app.publish(..., within=...)` there, or pass app.sync a connection that is "
            "not async."
        ) from None


def not_in_transaction(within: object, advice: str) -> TransactionError:
    """Return the error for a connection that would commit each statement by itself."""
    return TransactionError(
        f"within= got {_name(within)} that is not in a transaction, so there is nothing to join; "
        f"{advice}."
    )


def _name(within: object) -> str:
    cls = type(within)
    return f"a {cls.__name__} of {cls.__module__.partition('.')[0]}"


@lru_cache(maxsize=100)
def pyformat(statement: str) -> str:
    """Return a statement with `%(p1)s` in place of `$1`.

    >>> pyformat("SELECT 5 % $1")
    'SELECT 5 %% %(p1)s'
    """
    return _PLACE.sub(r"%(p\1)s", statement.replace("%", "%%"))
