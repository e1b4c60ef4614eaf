"""The servers of the arenas: as they are by default, durable, and the same for everyone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, Self

from benchmarks.contender import Arena, Place
from benchmarks.servers.http import Receiver
from benchmarks.servers.postgres import Postgres
from benchmarks.servers.redis import Redis

__all__ = ["Servers"]


class _Server(Protocol):
    def lend(self) -> AbstractContextManager[str]:
        """Lend something empty in it, by its address."""


_KINDS: dict[Arena, Callable[[ExitStack], _Server]] = {
    Arena.POSTGRES: Postgres,
    Arena.REDIS: Redis,
    Arena.HTTP: Receiver,
}


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
            with self._started[arena].lend() as url:
                yield Place(folder=Path(folder), url=url)
