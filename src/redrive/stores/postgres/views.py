"""Views of read models in PostgreSQL, replaced with all that hangs on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from redrive.errors import UsageError
from redrive.model.projection import table_of
from redrive.stores.postgres.pool import Link
from redrive.stores.sql.views import (
    BusyTablesError,
    cannot_drop,
    cannot_keep,
    is_no_view,
    quoted,
)

__all__ = ["drop_tables", "missing_tables", "point_views"]

_PATIENCE = "100ms"
"""How long readers may have to wait behind a change, at most."""
_MISSING = "SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NULL"
_RELATION = """
SELECT oid::bigint, relkind::text, coalesce(reloptions, '{}'), pg_get_userbyid(relowner)::text,
       has_table_privilege(relowner, $2::regclass, 'SELECT')
FROM pg_class WHERE oid = to_regclass($1)
"""
_COLUMNS = """
SELECT attname::text, format_type(atttypid, atttypmod) || ' ' || attcollation FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_HANGING = """
SELECT 'the right ' || a.privilege_type || ' of '
       || CASE a.grantee WHEN 0 THEN 'everybody' ELSE pg_get_userbyid(a.grantee)::text END
FROM pg_class c CROSS JOIN aclexplode(c.relacl) AS a
WHERE c.oid = $1::bigint::oid AND a.grantee <> c.relowner
UNION SELECT 'a right on the column ' || attname FROM pg_attribute
WHERE attrelid = $1::bigint::oid AND attacl IS NOT NULL
UNION SELECT 'a comment' FROM pg_description
WHERE objoid = $1::bigint::oid AND classoid = 'pg_class'::regclass
UNION SELECT 'the trigger ' || tgname FROM pg_trigger
WHERE tgrelid = $1::bigint::oid AND NOT tgisinternal
UNION SELECT 'the rule ' || rulename FROM pg_rewrite
WHERE ev_class = $1::bigint::oid AND rulename <> '_RETURN'
UNION SELECT 'the view ' || v.oid::regclass FROM pg_depend d
JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class v ON v.oid = r.ev_class
WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
  AND d.refobjid = $1::bigint::oid AND v.oid <> $1::bigint::oid
"""


class _View(NamedTuple):
    """A view that is there: its number, and the options that it has."""

    oid: int
    options: list[str]


async def missing_tables(link: Link, names: Sequence[str]) -> list[str]:
    """Return those names that no table or view has."""
    found = await link.fetch(_MISSING, [quoted(one) for one in names])
    missing = {name for (name,) in found}
    return [one for one in names if quoted(one) in missing]


async def point_views(link: Link, tables: Sequence[str], version: int) -> None:
    """Put each view on the table of a version, or say what would be lost by it."""
    await _hurry(link)
    try:
        for name in tables:
            await _point(link, name, version)
    except asyncpg.LockNotAvailableError as error:
        raise BusyTablesError from error


async def drop_tables(link: Link, names: Sequence[str]) -> None:
    """Drop tables that nothing uses, or say what does."""
    await _hurry(link)
    for name in names:
        try:
            await link.fetch(f"DROP TABLE IF EXISTS {quoted(name)}")
        except asyncpg.DependentObjectsStillExistError as error:
            raise cannot_drop(name, (error.detail or str(error)).splitlines()) from error
        except asyncpg.LockNotAvailableError as error:
            raise BusyTablesError from error


async def _hurry(link: Link) -> None:
    await link.fetch("SELECT set_config('lock_timeout', $1, true)", _PATIENCE)


async def _point(link: Link, name: str, version: int) -> None:
    source = quoted(table_of(name, version))
    view = await _view(link, name, version)
    columns = dict(await link.fetch(_COLUMNS, source))
    if view is None:
        await link.fetch(_create(name, source, columns))
        return
    known = dict(await link.fetch(_COLUMNS, quoted(name)))
    if all(columns.get(column) == kind for column, kind in known.items()):
        # With the old columns first, the view stays what it is, and what hangs on it, too.
        in_order = [*known, *(column for column in columns if column not in known)]
        await link.fetch(_create(name, source, in_order, view.options, replaces=True))
        return
    if hanging := [one for (one,) in await link.fetch(_HANGING, view.oid)]:
        raise cannot_keep(name, hanging)
    try:
        await link.fetch(f"DROP VIEW {quoted(name)}")
    except asyncpg.DependentObjectsStillExistError as error:
        raise cannot_keep(name, (error.detail or str(error)).splitlines()) from error
    await link.fetch(_create(name, source, columns, view.options))


async def _view(link: Link, name: str, version: int) -> _View | None:
    """Return the view that readers use, if it is there; it must be one, and may read the table."""
    table = table_of(name, version)
    rows = await link.fetch(_RELATION, quoted(name), quoted(table))
    if not rows:
        return None
    oid, kind, options, owner, may_read = rows[0]
    if kind != "v":
        raise is_no_view(name, version)
    if not may_read:
        raise UsageError(
            f"{owner}, who owns the view {name}, may not read {table}, so that readers would see "
            f"an error; let it with: GRANT SELECT ON {table} TO {quoted(owner)};"
        )
    return _View(oid, list(options))


def _create(
    name: str,
    source: str,
    columns: Sequence[str] | dict[str, str],
    options: Sequence[str] = (),
    *,
    replaces: bool = False,
) -> str:
    listed = ", ".join('"{}"'.format(column.replace('"', '""')) for column in columns)
    create = "CREATE OR REPLACE VIEW" if replaces else "CREATE VIEW"
    having = f" WITH ({', '.join(options)})" if options else ""
    return f"{create} {quoted(name)}{having} AS SELECT {listed} FROM {source}"
