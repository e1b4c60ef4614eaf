"""Where stores are put to the proof: fresh data, cheaply, as often as it takes.

A store joins by adding a ground here, and with it everything in this folder that proves a store.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol
from unittest.mock import patch

from redrive.clock import Clock
from redrive.store import Store
from redrive.stores.memory import MemoryStore
from redrive.stores.postgres import PostgresStore
from redrive.stores.sqlite import SqliteStore, counting
from redrive.testing.clock import FakeClock
from tests.servers.postgres import Database, the_database

__all__ = ["GROUNDS", "Ground", "MakeStore", "Site", "opened"]

MakeStore = Callable[[Clock], Store]
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - whatever is proved there does not crash the machine


class Site(NamedTuple):
    """Where stores can be made, all on the same data: by a call here, or by URL elsewhere."""

    url: str
    make: MakeStore


class Ground(Protocol):
    """Lends stores of one kind."""

    compares_every: int
    """After how many steps its stores are compared with the model; each where that is cheap."""
    frees_lanes_by_claims: bool
    """Whether only the next claim finds out who goes first in a lane that changed."""
    ways: Counter[str]
    """How often each act of its stores went which way, where there are several."""

    def fresh(self) -> AbstractContextManager[Site]:
        """Lend a site that is empty at first."""


class Memory:
    """Stores in memory: each site has one."""

    compares_every = 1
    frees_lanes_by_claims = False

    def __init__(self, make_store: MakeStore = MemoryStore) -> None:
        self.ways: Counter[str] = Counter()
        self._make_store = make_store

    @contextmanager
    def fresh(self) -> Iterator[Site]:
        stores: list[Store] = []

        def make(clock: Clock) -> Store:
            if not stores:
                stores.append(self._make_store(clock))
            return stores[0]

        yield Site("memory://", make)


class Sqlite:
    """Stores in a file, copied from one that was made once."""

    compares_every = 1
    frees_lanes_by_claims = False

    def __init__(self, folder: Path) -> None:
        self.ways: Counter[str] = Counter()
        self._folder = folder
        self._template = folder / "template.db"
        self._made = 0

        async def make() -> None:
            store = SqliteStore(self._template, clock=FakeClock())
            await store.open()
            await store.close()

        asyncio.run(make())

    @contextmanager
    def fresh(self) -> Iterator[Site]:
        self._made += 1
        path = self._folder / f"store-{self._made}.db"
        shutil.copyfile(self._template, path)
        # So little is counted at once that there is always something that was, and something not.
        with patch.object(counting, "MUCH", 3):
            yield Site(f"sqlite:///{path}", lambda clock: SqliteStore(path, clock=clock))
        for file in self._folder.glob(f"{path.name}*"):
            file.unlink()


class Postgres:
    """Stores in schemas that are emptied and lent again."""

    compares_every = 5
    frees_lanes_by_claims = True

    def __init__(self, database: Database) -> None:
        self.ways: Counter[str] = Counter()
        self._database = database

    @contextmanager
    def fresh(self) -> Iterator[Site]:
        with self._database.empty_store() as url:
            # Everything on a few connections, so that a test of many examples opens few.
            narrow = f"{url}&pool=2"
            yield Site(narrow, lambda clock: self._make(narrow, clock))

    def _make(self, url: str, clock: Clock) -> Store:
        store = PostgresStore(url, clock=clock)
        store.facts.ways = self.ways
        return store


@contextmanager
def _memory() -> Iterator[Ground]:
    yield Memory()


@contextmanager
def _sqlite() -> Iterator[Ground]:
    where = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="redrive-proof-", dir=where) as folder:
        yield Sqlite(Path(folder))


@contextmanager
def _postgres() -> Iterator[Ground]:
    with the_database() as database:
        yield Postgres(database)


GROUNDS: dict[str, Callable[[], AbstractContextManager[Ground]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgres": _postgres,
}
"""The grounds by the names of the stores; those of servers start one."""


@contextmanager
def opened(*names: str) -> Iterator[dict[str, Ground]]:
    """Open several grounds for as long as the block lasts."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(GROUNDS[name]()) for name in names}
