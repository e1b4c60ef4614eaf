"""The schema of the PostgreSQL store: forward-only migrations, safe when many start at once."""

from __future__ import annotations

from importlib import resources
from typing import Any

import asyncpg

from redrive.errors import SchemaError, StoreUnavailableError
from redrive.stores.postgres.connection import Address, named

__all__ = [
    "LATEST",
    "OLDEST_SERVER",
    "check_server",
    "current_version",
    "has_schema",
    "keep_log_growing",
    "migrate",
]

OLDEST_SERVER = 13
"""The first PostgreSQL whose transaction numbers never start again."""

_MIGRATIONS: tuple[tuple[str, int], ...] = (
    ("0001_initial.sql", 1),
    ("0002_groups.sql", 1),
    ("0003_unreadable.sql", 1),
    # What code of the last release registers is in force until a worker looks again.
    ("0004_declarations.sql", 1),
    ("0005_dead_letters.sql", 1),
    ("0006_waiting.sql", 1),
    ("0007_uniques.sql", 1),
    ("0008_schedules.sql", 1),
    ("0009_counts.sql", 1),
    # Code that does not know of overrides and shared rates keeps to what else is declared.
    ("0010_limits.sql", 1),
    ("0011_projections.sql", 1),
    ("0012_access.sql", 1),
    ("0013_trends.sql", 1),
    ("0014_versions_of_projections.sql", 1),
    ("0015_rebuilds.sql", 1),
    ("0016_secrets.sql", 1),
    # Code of the last release gives services nothing; they are made when it has gone.
    ("0017_services.sql", 1),
    ("0018_causes.sql", 1),
    ("0019_addressees.sql", 1),
    ("0020_request_log.sql", 1),
    # Code of the last release hands an erased event over with nothing for its payload.
    ("0021_erasures.sql", 1),
    ("0022_encryption.sql", 1),
)
"""Each migration's script, and the oldest version of the code that can work with its result.

A migration that only adds things names an older version, so that workers of the last release go
on while a new one is rolled out.
"""

LATEST = len(_MIGRATIONS)
_MIGRATION_SECONDS = 3600.0
"""How long a script, or waiting for who is just running one, may take: tables may be large."""

_IS_THERE = "SELECT to_regclass($1) IS NOT NULL"
_READ = "SELECT version, oldest_code FROM redrive.schema"


_HOW_FAR = """
SELECT coalesce(
           (SELECT max(xid) FROM redrive.events), (SELECT max(xid) FROM redrive.keys), 0
       ) AS logged,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next,
       (SELECT value FROM redrive.counters WHERE name = 'log_offset') AS log_offset
"""
_HIGHEST = """
SELECT greatest(max(xid), (SELECT max(xid) FROM redrive.keys)) FROM redrive.events
"""
_RAISE = """
UPDATE redrive.counters SET value = greatest(value, $1) WHERE name = 'log_offset'
"""


def check_server(version: asyncpg.types.ServerVersion, address: Address) -> None:
    """Refuse a server that is too old."""
    if version.major < OLDEST_SERVER:
        raise StoreUnavailableError(
            f"The server of {address.name} is PostgreSQL {version.major}; Redrive needs "
            f"{OLDEST_SERVER} or newer."
        )


async def keep_log_growing(connection: asyncpg.Connection[Any], address: Address) -> None:
    """See to it that what is published next comes last in the log.

    A server into which a dump was restored may have counted fewer transactions than the one it
    came from; the difference is made good once, in the open transaction.
    """
    schema = address.schema
    logged, upcoming, offset = await connection.fetchrow(named(_HOW_FAR, schema))
    if logged < upcoming + offset:
        return
    highest = await connection.fetchval(named(_HIGHEST, schema))
    await connection.execute(named(_RAISE, schema), highest + 1 - upcoming)


async def has_schema(connection: asyncpg.Connection[Any], address: Address) -> bool:
    """Tell whether there are tables of ours."""
    return bool(await connection.fetchval(_IS_THERE, f"{address.schema}.schema"))


async def current_version(connection: asyncpg.Connection[Any], address: Address) -> int | None:
    """Return the version of the schema, or `None` if it is still to be brought up to date."""
    if not await has_schema(connection, address):
        return None
    version, oldest_code = await connection.fetchrow(named(_READ, address.schema))
    if version < LATEST:
        return None
    _check(version, oldest_code, address)
    return int(version)


async def migrate(connection: asyncpg.Connection[Any], address: Address) -> None:
    """Bring the schema up to date; concurrent calls take turns.

    Runs in the open transaction: all of it happens, or none.
    """
    schema = address.schema
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtext('redrive migration'), hashtext($1))",
        schema,
        timeout=_MIGRATION_SECONDS,
    )
    if not await has_schema(connection, address):
        # Even IF NOT EXISTS asks for the right to create one, which its owner may not have.
        if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", schema):
            await connection.execute(f"CREATE SCHEMA {schema}")
        await connection.execute(
            f"CREATE TABLE {schema}.schema (version integer NOT NULL, oldest_code integer NOT NULL)"
        )
        await connection.execute(f"INSERT INTO {schema}.schema VALUES (0, 0)")
    version, oldest_code = await connection.fetchrow(named(_READ, schema))
    found = version
    try:
        for number, (script, needs) in enumerate(_MIGRATIONS, start=1):
            if number > version:
                await connection.execute(named(_script(script), schema), timeout=_MIGRATION_SECONDS)
                version, oldest_code = number, max(oldest_code, needs)
                await connection.execute(
                    named("UPDATE redrive.schema SET version = $1, oldest_code = $2", schema),
                    number,
                    oldest_code,
                )
    except asyncpg.InsufficientPrivilegeError as error:
        if not found:
            raise
        raise SchemaError(
            f"The store {address.name} has schema version {found}, this Redrive needs {LATEST}, "
            f"and this user may not change it ({error}). Run `redrive init` of this version once "
            "as the owner of the schema."
        ) from error
    _check(version, oldest_code, address)


def _check(version: int, oldest_code: int, address: Address) -> None:
    if oldest_code > LATEST:
        raise SchemaError(
            f"The store {address.name} has schema version {version}, made by a newer Redrive; this "
            f"one works with versions up to {LATEST}. Upgrade with: pip install --upgrade redrive"
        )


def _script(name: str) -> str:
    return resources.files(__package__).joinpath("sql", name).read_text("utf-8")
