"""The PostgreSQL server of simulated processes: a real one, asked while their loop stands still."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from functools import cache
from multiprocessing.util import Finalize
from typing import Any, TypeVar

import asyncpg

from redrive.clock import Clock, SystemClock
from redrive.stores.postgres import PostgresStore
from tests.servers.postgres import QUICK, Cluster

__all__ = ["Backend", "RealServer", "real_server"]

T = TypeVar("T")

# Nothing may happen on the server but what a simulated process does: the log is read up to the
# first transaction that is open, whoever has it.
_ALONE = {"autovacuum": "off"}
# A function of this name before the server's own: it is what the simulated time is.
_CLOCK = """
CREATE SCHEMA IF NOT EXISTS simulated;
CREATE OR REPLACE FUNCTION simulated.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
AS $$ SELECT current_setting('simulated.now')::timestamptz $$;
"""
# Whoever has a lock stands still while another waits for it, so nobody gets one by waiting.
_SETTINGS = {"search_path": "simulated, pg_catalog", "lock_timeout": "1ms"}
_TABLES = """
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' ORDER BY 1
"""
_TRANSACTION = """
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + value
FROM {schema}.counters WHERE name = 'log_offset'
"""
_SEQUENCES = "SELECT sequencename FROM pg_sequences WHERE schemaname = $1 ORDER BY 1"


class Backend:
    """A connection to the server that one simulated connection after the other has."""

    def __init__(self, connection: asyncpg.Connection[Any], number: int) -> None:
        self.connection = connection
        self.number = number
        self.now = ""
        """What the session believes the time is."""
        self.has_savepoint = False


class RealServer:
    """A server of its own for this process, with one store that is emptied for each world."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._cluster: Cluster | None = None
        url = os.environ.get("REDRIVE_TEST_POSTGRES_URL")
        if url is None:
            self._cluster = Cluster(QUICK | _ALONE)
            self._cluster.start()
            url = self._cluster.local_url
        self._dsn = url
        # Beside others, on a server that is not our own.
        schema = "redrive" if self._cluster else f"simulated_{os.getpid()}"
        self.url = f"{url}{'&' if '?' in url else '?'}schema={schema}"
        self._lent = 0
        self._free: dict[frozenset[tuple[str, str]], list[Backend]] = {}
        self._own: asyncpg.Connection[Any] = self.run(asyncpg.connect(url))
        self._schema = schema
        self._empty = self.run(self._prepare())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something for real, in no time of the loop that is running."""
        outer = asyncio._get_running_loop()  # noqa: SLF001 - for those who make event loops
        asyncio._set_running_loop(None)  # noqa: SLF001 - as above
        try:
            return self._loop.run_until_complete(work)
        finally:
            asyncio._set_running_loop(outer)  # noqa: SLF001 - as above

    def store(self, clock: Clock) -> PostgresStore:
        """Return an open store on the real connections: it sees what there is, and no trouble."""
        store = PostgresStore(f"{self.url}&pool=2", clock=clock)
        self.run(store.open())
        return store

    def fetch(self, statement: str, *values: object) -> list[Any]:
        """Look at what the store has."""
        return self.run(self._own.fetch(statement, *values))

    def transaction(self) -> int:
        """Return the number that the log will have for the next transaction."""
        [(number,)] = self.fetch(_TRANSACTION.format(schema=self._schema))
        return int(number)

    def empty(self) -> None:
        """Make the store as new, down to where its rows lie, and forget what sessions have planned.

        Two worlds of one seed are to find everything in the same order.
        """
        self.run(self._own.execute(self._empty))
        for backends in self._free.values():
            backends.sort(key=lambda one: one.number)
            for backend in backends:
                self.run(backend.connection.execute("DISCARD PLANS"))

    def lend(self, settings: Mapping[str, str]) -> Backend:
        """Lend a session with these settings, one that was made before if there is any."""
        free = self._free.setdefault(frozenset(settings.items()), [])
        if free:
            return free.pop(0)
        self._lent += 1
        connecting = asyncpg.connect(
            self._dsn,
            server_settings={**settings, **_SETTINGS},
            # A plan that is made anew after so many statements, or seconds, may be another.
            statement_cache_size=10_000,
            max_cached_statement_lifetime=0,
        )
        return Backend(self.run(connecting), self._lent)

    def take_back(self, backend: Backend, settings: Mapping[str, str]) -> None:
        self._free[frozenset(settings.items())].append(backend)

    def remove(self) -> None:
        """End it, with everything on it."""
        if self._cluster is not None:
            self._cluster.remove()
        else:
            self.run(self._own.execute(f"DROP SCHEMA {self._schema} CASCADE"))
        self._loop.close()

    async def _prepare(self) -> str:
        """Make the store; return the statements that bring it back to how it was."""
        await self._own.execute(_CLOCK)
        store = PostgresStore(self.url, clock=SystemClock())
        await store.open()
        await store.close()
        tables = [name for (name,) in await self._own.fetch(_TABLES, self._schema)]
        empty = [f"TRUNCATE {', '.join(tables)};"]
        for table in tables:
            rows = await self._own.fetchval(f"SELECT json_agg(t)::text FROM {table} t")  # noqa: S608 - a name
            if rows is not None:
                given = f"json_populate_recordset(NULL::{table}, $${rows}$$)"
                empty.append(f"INSERT INTO {table} SELECT * FROM {given};")  # noqa: S608 - as above
        for (name,) in await self._own.fetch(_SEQUENCES, self._schema):
            empty.append(f"ALTER SEQUENCE {self._schema}.{name} RESTART;")
        return " ".join(empty)


@cache
def real_server() -> RealServer:
    """Return the server of this process, which ends with it."""
    server = RealServer()
    Finalize(None, server.remove, exitpriority=1)
    return server
