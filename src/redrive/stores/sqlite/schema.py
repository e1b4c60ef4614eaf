"""The schema of the SQLite store: forward-only migrations, safe when many start at once."""

from __future__ import annotations

from contextlib import closing
from importlib import resources
from pathlib import Path

import apsw

from redrive.errors import SchemaError

__all__ = ["LATEST", "is_foreign", "migrate", "schema_version"]

_MIGRATIONS: tuple[tuple[str, int], ...] = (
    ("0001_initial.sql", 1),
    ("0002_holding.sql", 1),
    # Code that does not know of edits would send what a person has corrected.
    ("0003_replays.sql", 3),
    # Code that does not know of pruning would take a key that outlives its event for a new one.
    ("0004_keeping.sql", 4),
    ("0005_fairness.sql", 4),
    ("0006_letters.sql", 4),
    # Code that does not know of versions would publish events that are not counted.
    ("0007_versions.sql", 7),
    ("0008_inbox.sql", 7),
    # Code that does not take what is delivered out of its lane makes lanes longer, not wrong.
    ("0009_lanes.sql", 7),
    ("0010_groups.sql", 7),
    # What code of the last release registers is in force until a worker looks again.
    ("0011_declarations.sql", 7),
    ("0012_waiting.sql", 7),
    ("0013_uniques.sql", 7),
    ("0014_schedules.sql", 7),
    ("0015_counts.sql", 7),
    # Code that does not know of overrides and shared rates keeps to what else is declared.
    ("0016_limits.sql", 7),
    ("0017_projections.sql", 7),
    ("0018_access.sql", 7),
    ("0019_trends.sql", 7),
    ("0020_versions_of_projections.sql", 7),
    ("0021_rebuilds.sql", 7),
    ("0022_secrets.sql", 7),
    # Code of the last release gives services nothing; they are made when it has gone.
    ("0023_services.sql", 7),
    ("0024_causes.sql", 7),
    ("0025_addressees.sql", 7),
    ("0026_request_log.sql", 7),
    # Code of the last release hands an erased event over with nothing for its payload.
    ("0027_erasures.sql", 7),
    ("0028_encryption.sql", 7),
)
"""Each migration's script, and the oldest version of the code that can work with its result.

A migration that only adds things names an older version, so that workers of the last release go
on while a new one is rolled out.
"""

LATEST = len(_MIGRATIONS)
_PATIENCE = 5_000


def migrate(connection: apsw.Connection, *, name: str) -> int:
    """Bring the schema up to date and return its version; concurrent calls take turns."""
    version, oldest_code = _read(connection)
    if version >= LATEST:
        _check(version, oldest_code, name=name)
        return version
    connection.execute("BEGIN IMMEDIATE")
    try:
        version, oldest_code = _read(connection)
        if version == 0:
            connection.execute(
                "CREATE TABLE redrive_schema "
                "(version INTEGER NOT NULL, oldest_code INTEGER NOT NULL)"
            )
            connection.execute("INSERT INTO redrive_schema VALUES (0, 0)")
        for number, (script, needs) in enumerate(_MIGRATIONS, start=1):
            if number > version:
                connection.execute(_script(script))
                connection.execute(
                    "UPDATE redrive_schema SET version = ?, oldest_code = max(oldest_code, ?)",
                    (number, needs),
                )
        version, oldest_code = _read(connection)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    _check(version, oldest_code, name=name)
    return version


def schema_version(connection: apsw.Connection) -> int:
    """Return the version of the schema; 0 when there is none."""
    return _read(connection)[0]


def is_foreign(path: Path) -> bool:
    """Tell whether a file is a database without a schema of ours; it is only read.

    What cannot be read is left to whoever opens it, who says why.
    """
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            connection.set_busy_timeout(_PATIENCE)
            return schema_version(connection) == 0
    except apsw.Error:
        return False


def _read(connection: apsw.Connection) -> tuple[int, int]:
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'redrive_schema'").get is None:
        return 0, 0
    version, oldest_code = connection.execute("SELECT version, oldest_code FROM redrive_schema").get
    return int(version), int(oldest_code)


def _check(version: int, oldest_code: int, *, name: str) -> None:
    if oldest_code > LATEST:
        raise SchemaError(
            f"The store {name} has schema version {version}, made by a newer Redrive; this one "
            f"works with versions up to {LATEST}. Upgrade with: pip install --upgrade redrive"
        )


def _script(name: str) -> str:
    return resources.files("redrive.stores.sqlite").joinpath("sql", name).read_text("utf-8")
