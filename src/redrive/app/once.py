"""Which events a read model in another database has: a record of them beside it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from redrive.errors import ConfigurationError, UsageError
from redrive.model.checks import check_instant, check_text
from redrive.model.event import Event

__all__ = ["Once"]

_TABLE = re.compile(r"(?:[a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}")
_LONGEST_NAME = 100
# `{}` is the table, `?` a value in order.
_CREATE = """
CREATE TABLE IF NOT EXISTS {} (
    name VARCHAR(100) NOT NULL, event CHAR(36) NOT NULL, published BIGINT NOT NULL,
    PRIMARY KEY (name, event)
)
"""
_LOOK = "SELECT 1 FROM {} WHERE name = ? AND event = ?"
_NOTE = "INSERT INTO {} (name, event, published) VALUES (?, ?, ?)"
_FORGET = "DELETE FROM {} WHERE name = ?"
_FORGET_OLD = "DELETE FROM {} WHERE name = ? AND published < ?"
_PERCENT = frozenset({"MySQLdb", "aiomysql", "asyncmy", "django", "psycopg", "psycopg2", "pymysql"})


class Once:
    """Tells events that a read model in another database has already, which may come again.

    The record is a table over there, written in your transaction with the read model: both are
    there, or neither is. `within` is a connection or session with a transaction of yours, of
    asyncpg, SQLAlchemy, psycopg or sqlite3, or a cursor of another driver.

    >>> once = Once("totals")
    >>> async def add(event, model):
    ...     async with other.transaction():
    ...         if await once.is_new(event, within=other):
    ...             await other.execute("UPDATE totals SET orders = orders + 1")
    """

    def __init__(self, name: str, *, table: str = "redrive_once") -> None:
        if not check_text("name", name, longest=_LONGEST_NAME).strip():
            raise ConfigurationError(
                "name is blank; write what the read model is called, such as Once('totals')."
            )
        if not isinstance(table, str) or not _TABLE.fullmatch(table):
            raise ConfigurationError(
                f"table is {table!r}; it is small letters, digits and '_', such as "
                "'redrive_once' or 'sales.redrive_once'."
            )
        self._name = name
        self._table = table

    async def create(self, *, within: object) -> None:
        """Make the table of the record, unless it is there."""
        await self._run(within, _CREATE)

    async def is_new(self, event: Event[Any], *, within: object) -> bool:
        """Tell whether the read model does not have an event yet, and note that it has it now."""
        rows = await self._run(within, _LOOK, self._name, event.id)
        if not rows:
            published = int(event.published_at.timestamp())
            await self._run(within, _NOTE, self._name, event.id, published)
        return not rows

    async def forget(self, *, within: object, before: datetime | None = None) -> None:
        """Forget all events, as a `truncate` does, or those that were published before an instant.

        Only what cannot come again may be forgotten: keep those that may still be parked.
        """
        if before is None:
            await self._run(within, _FORGET, self._name)
        else:
            instant = int(check_instant("before", before).timestamp())
            await self._run(within, _FORGET_OLD, self._name, instant)

    async def _run(self, within: Any, statement: str, *values: object) -> Sequence[Any]:  # noqa: ANN401 - of any driver
        statement = statement.format(self._table)
        if hasattr(within, "fetchrow"):
            rows: Sequence[Any] = await within.fetch(_numbered(statement, "${}"), *values)
            return rows
        if not hasattr(within, "execute"):
            raise UsageError(
                f"within= got {type(within).__name__}; pass the connection or session, with a "
                "transaction of yours, that the read model is written by, or its cursor."
            )
        driver = type(within).__module__.partition(".")[0]
        if driver == "sqlalchemy":
            written = sys.modules["sqlalchemy"].text(_numbered(statement, ":p{}"))
            given = {f"p{number}": value for number, value in enumerate(values, start=1)}
            done = await _awaited(within.execute(written, given))
            return list(done) if done.returns_rows else []
        if driver in _PERCENT:
            statement = statement.replace("?", "%s")
        done = await _awaited(within.execute(statement, values))
        if not statement.startswith("SELECT"):
            return []
        # A cursor is what rows come from, where executing returns nothing of use.
        source = done if hasattr(done, "fetchall") else within
        found: Sequence[Any] = await _awaited(source.fetchall())
        return found


def _numbered(statement: str, placeholder: str) -> str:
    """Return a statement with its values numbered from 1."""
    first, *others = statement.split("?")
    parts = [f"{placeholder.format(n)}{part}" for n, part in enumerate(others, start=1)]
    return "".join([first, *parts])


async def _awaited(answer: Any) -> Any:  # noqa: ANN401 - of any driver
    return await answer if inspect.isawaitable(answer) else answer
