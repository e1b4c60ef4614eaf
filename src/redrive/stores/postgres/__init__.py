"""The store in a PostgreSQL schema: many workers on many machines, in the app's own database."""

from __future__ import annotations

from redrive.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
