"""The store in one SQLite file: durable, shared by processes, for one machine."""

from __future__ import annotations

from redrive.stores.sqlite.store import SqliteStore
from redrive.stores.sqlite.transaction import SqliteTransaction

__all__ = ["SqliteStore", "SqliteTransaction"]
