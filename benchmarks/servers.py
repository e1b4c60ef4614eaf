"""The servers of the arenas: durable, as they are by default, and the same for everyone."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, Self

from benchmarks.contender import Arena, Place
from tests.servers.postgres import DURABLE, Cluster

__all__ = ["Servers"]

# What the tests make smaller or quicker is put back to what PostgreSQL has by default.
_POSTGRES = {**DURABLE, "shared_buffers": "128MB", "autovacuum_naptime": "1min"}


class _Server(Protocol):
    def database(self) -> Iterator[str]: ...


class _Postgres:
    def __init__(self, stack: ExitStack) -> None:
        self._cluster = Cluster(_POSTGRES)
        stack.callback(self._cluster.remove)
        self._cluster.start()
        self._numbers = itertools.count(1)

    def database(self) -> Iterator[str]:
        name = f"bench_{next(self._numbers)}"
        self._cluster.database.execute(f"CREATE DATABASE {name}")
        # What others have written is flushed in their time, not in this one's.
        self._cluster.database.execute("CHECKPOINT")
        yield self._cluster.url.replace("/postgres", f"/{name}")
        self._cluster.database.execute(f"DROP DATABASE {name} WITH (FORCE)")


_KINDS = {Arena.POSTGRES: _Postgres}


class Servers:
    """Starts each server when it is first needed, and stops all of them at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._started: dict[Arena, _Server] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def place(self, arena: Arena) -> Iterator[Place]:
        """Lend an empty folder, and an empty database if the arena has a server."""
        with tempfile.TemporaryDirectory(prefix="bench-", dir=self._folder) as folder:
            if arena not in _KINDS:
                yield Place(folder=Path(folder))
                return
            if arena not in self._started:
                self._started[arena] = _KINDS[arena](self._stack)
            with contextmanager(self._started[arena].database)() as url:
                yield Place(folder=Path(folder), url=url)
