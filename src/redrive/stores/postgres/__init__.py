"""The store in a PostgreSQL schema: many workers on many machines, in the app's own database."""

from __future__ import annotations

from importlib.util import find_spec

from redrive.errors import ConfigurationError

if find_spec("asyncpg") is None:
    raise ConfigurationError(
        "The store is PostgreSQL, which needs the driver asyncpg: pip install 'redrive[postgres]'"
    )

from redrive.stores.postgres.connection import read_address
from redrive.stores.postgres.store import PostgresStore, is_there

__all__ = ["PostgresStore", "is_there", "read_address"]
