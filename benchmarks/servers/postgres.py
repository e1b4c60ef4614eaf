"""PostgreSQL, from the launcher of the tests, with every commit on disk."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.servers.postgres import DURABLE, Cluster

__all__ = ["Postgres"]

# What the tests make smaller or quicker is put back to what PostgreSQL has by default.
_SETTINGS = {**DURABLE, "shared_buffers": "128MB", "autovacuum_naptime": "1min"}


class Postgres:
    """A server; each run gets a database of its own in it."""

    def __init__(self, stack: ExitStack) -> None:
        self._cluster = Cluster(_SETTINGS)
        stack.callback(self._cluster.remove)
        self._cluster.start()
        self._numbers = itertools.count(1)

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Lend an empty database."""
        name = f"bench_{next(self._numbers)}"
        self._cluster.database.execute(f"CREATE DATABASE {name}")
        # What others have written is flushed in their time, not in this one's.
        self._cluster.database.execute("CHECKPOINT")
        try:
            yield self._cluster.url.replace("/postgres", f"/{name}")
        finally:
            self._cluster.database.execute(f"DROP DATABASE {name} WITH (FORCE)")
