"""Views of read models in SQLite, where who reads has what there was when they began."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from redrive.model.projection import table_of
from redrive.stores.sql.views import cannot_drop, cannot_keep, is_no_view, quoted

__all__ = ["drop_tables", "missing_tables", "point_views"]

_KIND = "SELECT type FROM sqlite_master WHERE name = ? AND type IN ('table', 'view')"
_TRIGGERS = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
_VIEWS = "SELECT name FROM sqlite_master WHERE type = 'view' AND name NOT GLOB 'redrive_*'"


def missing_tables(connection: apsw.Connection, names: Sequence[str]) -> list[str]:
    """Return those names that no table or view has."""
    return [name for name in names if _kind(connection, name) is None]


def point_views(connection: apsw.Connection, tables: Sequence[str], version: int) -> None:
    """Put each view on the table of a version, or say what would be lost by it."""
    before = _broken(connection)
    for name in tables:
        if _kind(connection, name) == "table":
            raise is_no_view(name, version)
        plain = name.rpartition(".")[2]
        triggers = [sql for (sql,) in connection.execute(_TRIGGERS, (plain,))]
        connection.execute(f"DROP VIEW IF EXISTS {quoted(name)}")
        source = quoted(table_of(name, version))
        connection.execute(f"CREATE VIEW {quoted(name)} AS SELECT * FROM {source}")
        for trigger in triggers:
            connection.execute(trigger)
    if hanging := _broken(connection) - before:
        raise cannot_keep(", ".join(tables), [f"the view {one}" for one in hanging])


def drop_tables(connection: apsw.Connection, names: Sequence[str]) -> None:
    """Drop tables that nothing uses, or say what does."""
    before = _broken(connection)
    for name in names:
        connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
        if hanging := _broken(connection) - before:
            raise cannot_drop(name, [f"the view {one}" for one in hanging])


def _kind(connection: apsw.Connection, name: str) -> str | None:
    found: str | None = connection.execute(_KIND, (name.rpartition(".")[2],)).get
    return found


def _broken(connection: apsw.Connection) -> set[str]:
    """Return the views that cannot be read: nothing says so until somebody tries."""
    found: set[str] = set()
    names: list[str] = [str(name) for (name,) in connection.execute(_VIEWS)]
    for name in names:
        escaped = name.replace('"', '""')
        try:
            connection.execute(f'SELECT * FROM "{escaped}" LIMIT 0')
        except apsw.SQLError:
            found.add(name)
    return found
