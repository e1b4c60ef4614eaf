"""PostgreSQL for the tests: clusters of our own, or the one that the environment names."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import asyncpg

from redrive.clock import SystemClock
from redrive.stores.postgres import PostgresStore
from tests.servers.daemon import Daemon, a_folder, free_port, run
from tests.servers.programs import postgres_programs
from tests.waiting import PATIENCE_SECONDS

__all__ = ["DURABLE", "QUICK", "Cluster", "Database", "the_database"]

T = TypeVar("T")
Settings = dict[str, str]

_SMALL: Settings = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "autovacuum_naptime": "10s",
    "log_min_messages": "warning",
}
QUICK: Settings = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_wal_size": "2GB",
}
"""A crash of the machine may lose everything: good enough for tests that do not crash it."""

DURABLE: Settings = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = $1"
_SEQUENCES = "SELECT sequencename FROM pg_sequences WHERE schemaname = $1"
_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""

_HAS_GROWN = """
SELECT bool_or(pg_relation_size(oid) > 500000) FROM pg_class
WHERE relkind = 'r' AND relnamespace = $1::text::regnamespace
"""

_RELATIONS = "SELECT count(*) FROM pg_class WHERE relnamespace = $1::text::regnamespace"

_numbers = itertools.count(1)


class _Spare(NamedTuple):
    """A schema with the tables of a new store, and how it is brought back to that."""

    name: str
    relations: int
    empty: str


def _a_name() -> str:
    return f"test_{os.getpid()}_{next(_numbers)}"


class Database:
    """A database that the tests may use; each gets a schema of its own in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        # A loop on a thread of its own: some tests have a loop, and some have none.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection: asyncpg.Connection[Any] | None = None
        self._spares: list[_Spare] = []

    @contextmanager
    def schema(self) -> Iterator[str]:
        """Lend a schema that does not exist yet; yields the URL of a store in it."""
        name = _a_name()
        yield self._store_url(name)
        self.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")

    @contextmanager
    def empty_store(self) -> Iterator[str]:
        """Lend a schema with the tables of a new store; yields its URL.

        Making one takes longer than most tests, so it is emptied and lent again, unless somebody
        may still be at work in it; or it has tables that the test has made; or its tables have
        grown: vacuumed, they would look empty to the planner of the next test, however much that
        stores.
        """
        spare = self._spares.pop() if self._spares else self._run(self._make())
        yield self._store_url(spare.name)
        has_more = self.value(_RELATIONS, spare.name) != spare.relations
        if has_more or self.value(_OTHERS) or self.value(_HAS_GROWN, spare.name):
            self.execute(f"DROP SCHEMA {spare.name} CASCADE")
        else:
            self.execute(spare.empty)
            self._spares.append(spare)

    def execute(self, statement: str, *values: object) -> None:
        """Run a statement beside the tests."""
        self._run(self._execute(statement, *values))

    def value(self, statement: str, *values: object) -> Any:  # noqa: ANN401 - any column
        """Return the first column of the first row."""
        return self._run(self._value(statement, *values))

    def tidy(self) -> None:
        """Remove what is left in it."""
        for spare in self._spares:
            self.execute(f"DROP SCHEMA {spare.name} CASCADE")

    def close(self) -> None:
        """Let go of it for good."""
        self.disconnect()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def disconnect(self) -> None:
        """Let go of the connection; the next call makes another."""
        self._run(self._disconnect())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def _execute(self, statement: str, *values: object) -> None:
        await (await self._connected()).execute(statement, *values)

    async def _value(self, statement: str, *values: object) -> Any:  # noqa: ANN401 - any column
        return await (await self._connected()).fetchval(statement, *values)

    async def _make(self) -> _Spare:
        name = _a_name()
        store = PostgresStore(self._store_url(name), clock=SystemClock())
        await store.open()
        await store.close()
        connection = await self._connected()
        tables = [f"{name}.{table}" for (table,) in await connection.fetch(_TABLES, name)]
        # In one statement, so that it is no matter which table refers to which.
        deletes = [f"d{n} AS (DELETE FROM {table})" for n, table in enumerate(tables)]
        # Twice, because triggers write down what is deleted.
        empty = [f"WITH {', '.join(deletes)} SELECT;"] * 2
        for table in tables:
            rows = await connection.fetchval(f"SELECT json_agg(t)::text FROM {table} t")
            if rows is not None:
                given = f"json_populate_recordset(NULL::{table}, $${rows}$$)"
                empty.append(f"INSERT INTO {table} SELECT * FROM {given};")
        sequences = await connection.fetch(_SEQUENCES, name)
        empty += [f"SELECT setval('{name}.{one}', 1, false);" for (one,) in sequences]
        relations = await connection.fetchval(_RELATIONS, name)
        return _Spare(name, relations, " ".join(empty))

    def _store_url(self, schema: str) -> str:
        return f"{self.url}{'&' if '?' in self.url else '?'}schema={schema}"

    async def _connected(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self.url, statement_cache_size=0)
        return self._connection


class Cluster:
    """A server of our own, in a folder of its own, on a port of its own."""

    def __init__(self, settings: Settings) -> None:
        self._programs = postgres_programs()
        # It has no certificate; drivers make ready for one with every connection.
        os.environ.setdefault("PGSSLMODE", "disable")
        self.folder = a_folder("postgres")
        self.port = free_port()
        self.url = f"postgresql://redrive@127.0.0.1:{self.port}/postgres"
        self.local_url = f"postgresql://redrive@/postgres?host={self.folder}&port={self.port}"
        """The same without a network between."""
        self.database = Database(self.url)
        self._settings = {
            **_SMALL,
            **settings,
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
        }
        self._server: Daemon | None = None
        run(
            [
                *(str(self._programs / "initdb"), "-D", str(self.folder / "data")),
                *("-U", "redrive", "-A", "trust", "-E", "UTF8", "--locale=C"),
                *("--no-sync", "--no-instructions"),
            ],
            folder=self.folder,
        )

    def start(self, **settings: str) -> None:
        """Start it, with these settings too, and wait until it takes connections."""
        if self._server is not None:
            return
        given = {**self._settings, **settings}
        options = [text for name, value in given.items() for text in ("-c", f"{name}={value}")]
        self._server = Daemon(
            [str(self._programs / "postgres"), "-D", str(self.folder / "data"), *options],
            folder=self.folder,
            end=signal.SIGQUIT,
        )
        self._server.until(self._is_ready, within=PATIENCE_SECONDS, what="it takes connections")

    def program(self, name: str) -> str:
        """Return the path of a program that came with the server, such as `pg_dump`."""
        return str(self._programs / name)

    def stop(self, *, is_crash: bool = False) -> None:
        """Stop it; an immediate stop is what a crash looks like."""
        self.database.disconnect()
        server, self._server = self._server, None
        if server is not None:
            server.stop(None if is_crash else signal.SIGINT)

    def remove(self) -> None:
        """Stop it for good, and remove its files."""
        self.stop(is_crash=True)
        self.database.close()
        shutil.rmtree(self.folder)

    def _is_ready(self) -> bool:
        status = self.folder / "data" / "postmaster.pid"
        try:
            lines = status.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return False
        assert self._server is not None
        return len(lines) > 7 and lines[0] == str(self._server.pid) and "ready" in lines[7]


@contextmanager
def the_database() -> Iterator[Database]:
    """Lend the database that the environment names, or one on a quick server of our own."""
    if named := os.environ.get("REDRIVE_TEST_POSTGRES_URL"):
        database = Database(named)
        yield database
        database.tidy()
        database.close()
        return
    cluster = Cluster(QUICK)
    try:
        cluster.start()
        yield cluster.database
    finally:
        cluster.remove()
