"""The SQLite store: the contract's calls, each handed to the thread that carries it out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from redrive.clock import Clock
from redrive.errors import TransactionError
from redrive.model.audit import Actor, AuditEntry
from redrive.model.delivery import Delivery, DeliveryId, Lease
from redrive.model.destination import Destination, Routes
from redrive.model.event import Event, EventId
from redrive.model.gate import BreakerChange, GateFigures
from redrive.store import (
    Append,
    Blame,
    Capabilities,
    Claim,
    ClaimRequest,
    Entry,
    Figures,
    Finding,
    Group,
    LaneFigures,
    LoggedEvent,
    Overdue,
    Page,
    Query,
    Report,
    Rescue,
    RoutesChanged,
    Settled,
)
from redrive.stores.sqlite import (
    auditing,
    claiming,
    gating,
    inspection,
    intervention,
    log,
    settling,
)
from redrive.stores.sqlite.checkup import check_up
from redrive.stores.sqlite.connection import connect, rollback, translated
from redrive.stores.sqlite.schema import migrate
from redrive.stores.sqlite.threads import Reader, Writer, in_thread
from redrive.stores.sqlite.transaction import SqliteTransaction

__all__ = ["SqliteStore"]

T = TypeVar("T")
_TICK_SECONDS = 0.05


class SqliteStore:
    """A store in the file at `path`; `history` bounds what is kept of past tries per delivery."""

    capabilities = Capabilities(
        survives_restart=True, is_shared_by_processes=True, joins_transactions=True
    )

    def __init__(self, path: Path, *, clock: Clock, history: int = 20) -> None:
        self.path = path.absolute()  # once: the working directory may change
        self.schema_version = 0
        self._clock = clock
        self._history = history
        self._writer = Writer(self.path, name="redrive-writer")
        self._reader = Reader(self.path, name="redrive-reader")
        self._bell: apsw.Connection | None = None
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._rings = 0
        self._seen = (0, 0)

    async def open(self) -> None:
        if self._bell is not None:
            return
        self._bell = await in_thread(self._prepare)
        self._writer.start()
        self._reader.start()

    def _prepare(self) -> apsw.Connection:
        connection = connect(self.path)
        try:
            with translated(self.path):
                self.schema_version = migrate(connection, name=str(self.path))
        except BaseException:
            connection.close()
            raise
        return connection

    async def close(self) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            await in_thread(self._writer.stop)
            await in_thread(self._reader.stop)
            bell.close()

    async def check(self) -> Sequence[Finding]:
        return await in_thread(check_up, self.path, now=self._clock.now())

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        routes_version: int,
        all_or_nothing: bool,
        within: object = None,
    ) -> Append:
        def job(connection: apsw.Connection) -> Append:
            return log.append(
                connection,
                entries,
                routes_version=routes_version,
                all_or_nothing=all_or_nothing,
                now=self._clock.now(),
            )

        if within is not None:
            return self._join(within, job)
        appended = await self._writer.call(job)
        if not isinstance(appended, RoutesChanged):
            self._ring()
        return appended

    def _join(self, within: object, job: Callable[[apsw.Connection], T]) -> T:
        if not isinstance(within, SqliteTransaction):
            raise TransactionError(_refusal(within))
        if not within.is_open:
            raise TransactionError(
                "within= got a transaction that is over; nothing was stored. "
                "Publish inside its `async with app.transaction()` block."
            )
        connection = within.connection
        if not self.path.samefile(connection.filename):
            raise TransactionError(
                f"within= got a transaction on {connection.filename}, but this app keeps its "
                f"events in {self.path}; open the transaction with the same app."
            )
        connection.execute("SAVEPOINT redrive")
        try:
            with translated(self.path):
                result = job(connection)
        except BaseException:
            connection.execute("ROLLBACK TO redrive")
            raise
        finally:
            connection.execute("RELEASE redrive")
        return result

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SqliteTransaction]:
        """Open a transaction; it commits at the end of the block, or rolls back on an error."""
        connection = await in_thread(connect, self.path)
        try:
            await in_thread(self._execute, connection, "BEGIN IMMEDIATE")
            yield SqliteTransaction(connection)
            await in_thread(self._execute, connection, "COMMIT")
        finally:
            rollback(connection)
            connection.close()
        self._ring()

    def _execute(self, connection: apsw.Connection, statement: str) -> None:
        with translated(self.path):
            connection.execute(statement)

    async def read_events(self, *, after: int = 0, limit: int = 100) -> Sequence[LoggedEvent]:
        return await self._reader.call(lambda c: log.read_events(c, after=after, limit=limit))

    async def find_event(self, event_id: EventId) -> Event[msgspec.Raw] | None:
        return await self._reader.call(lambda c: log.find_event(c, event_id))

    async def register(self, destinations: Sequence[Destination]) -> Routes:
        if not destinations:  # whoever only looks must not wait for the write lock
            return await self.routes()
        return await self._writer.call(lambda c: log.register(c, destinations))

    async def routes(self) -> Routes:
        return await self._reader.call(log.read_routes)

    async def claim(self, request: ClaimRequest) -> Claim:
        self._seen = self._changes()
        return await self._write(lambda c, now: claiming.claim(c, request, now=now))

    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        return await self._write(
            lambda c, now: settling.settle(c, batch, now=now, history=self._history)
        )

    async def report(self, batch: Sequence[Report], *, chance: float) -> Sequence[BreakerChange]:
        return await self._write(lambda c, now: gating.report(c, batch, chance=chance, now=now))

    async def gates(self) -> Sequence[GateFigures]:
        now = self._clock.now()
        return await self._reader.call(lambda c: gating.figures(c, now=now))

    async def pause(self, destination: str, *, actor: Actor) -> bool:
        return await self._write(lambda c, now: gating.pause(c, destination, actor=actor, now=now))

    async def resume(self, destination: str, *, actor: Actor) -> bool:
        return await self._write(
            lambda c, now: gating.resume(c, destination, actor=actor, now=now), rings=True
        )

    async def open_breaker(
        self, destination: str, *, until: datetime | None, actor: Actor
    ) -> BreakerChange:
        return await self._write(
            lambda c, now: gating.open_breaker(c, destination, until=until, actor=actor, now=now)
        )

    async def reset_breaker(self, destination: str, *, actor: Actor) -> BreakerChange:
        return await self._write(
            lambda c, now: gating.reset_breaker(c, destination, actor=actor, now=now), rings=True
        )

    async def release(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        return await self._write(lambda c, now: settling.release(c, leases, now=now), rings=True)

    async def heartbeat(
        self, worker: str, leases: Sequence[Lease], *, lease: timedelta
    ) -> Sequence[Lease]:
        return await self._write(
            lambda c, now: settling.heartbeat(c, worker, leases, now=now, lease=lease)
        )

    async def retire(self, worker: str) -> None:
        await self._writer.call(
            lambda c: c.execute("DELETE FROM redrive_workers WHERE id = ?", (worker,)).close()
        )

    async def overdue(self, *, limit: int = 100) -> Sequence[Overdue]:
        now = self._clock.now()
        return await self._reader.call(lambda c: settling.overdue(c, now=now, limit=limit))

    async def rescue(self, batch: Sequence[Rescue]) -> Sequence[Lease]:
        return await self._write(lambda c, now: settling.rescue(c, batch, now=now), rings=True)

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        now = self._clock.now()
        if not await self._reader.call(lambda c: intervention.has_expired(c, now=now)):
            return ()
        return await self._write(
            lambda c, now: intervention.expire(c, blame=blame, now=now, limit=limit)
        )

    async def wait(self, *, at_most: timedelta) -> None:
        event = asyncio.Event()
        waiter = (asyncio.get_running_loop(), event)
        self._waiters.append(waiter)
        ringing = asyncio.ensure_future(event.wait())
        rest = at_most.total_seconds()
        try:
            while rest > 0 and self._changes() == self._seen:
                step = min(rest, _TICK_SECONDS)
                tick = asyncio.ensure_future(self._clock.sleep(step))
                try:
                    await asyncio.wait([ringing, tick], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    tick.cancel()
                rest -= step
        finally:
            ringing.cancel()
            self._waiters.remove(waiter)

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page:
        return await self._reader.call(
            lambda c: inspection.find(c, query, cursor=cursor, limit=limit)
        )

    async def find_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        found = await self._reader.call(
            lambda c: inspection.find_deliveries(c, "WHERE d.id = ?", (delivery_id,))
        )
        return found[0] if found else None

    async def lanes(self, *, limit: int = 50) -> Sequence[LaneFigures]:
        return await self._reader.call(lambda c: inspection.lanes(c, limit=limit))

    async def groups(self, query: Query, *, limit: int = 50) -> Sequence[Group]:
        return await self._reader.call(lambda c: inspection.groups(c, query, limit=limit))

    async def figures(self) -> Figures:
        now = self._clock.now()
        return await self._reader.call(lambda c: inspection.figures(c, now=now))

    async def replay(
        self, ids: Sequence[DeliveryId], *, actor: Actor, generation: str | None = None
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.replay(
                c, ids, actor=actor, generation=generation, now=now, history=self._history
            ),
            rings=True,
        )

    async def delete(self, ids: Sequence[DeliveryId], *, actor: Actor) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.delete(c, ids, actor=actor, now=now), rings=True
        )

    async def resolve(self, ids: Sequence[DeliveryId], *, actor: Actor) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.resolve(c, ids, actor=actor, now=now), rings=True
        )

    async def cancel(
        self, ids: Sequence[DeliveryId], *, blame: Blame, actor: Actor
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.cancel(c, ids, blame=blame, actor=actor, now=now)
        )

    async def reschedule(
        self, ids: Sequence[DeliveryId], *, due: datetime, actor: Actor
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.reschedule(c, ids, due=due, actor=actor, now=now),
            rings=True,
        )

    async def prioritise(
        self, ids: Sequence[DeliveryId], *, priority: int, actor: Actor
    ) -> Sequence[DeliveryId]:
        return await self._write(
            lambda c, now: intervention.prioritise(c, ids, priority=priority, actor=actor, now=now)
        )

    async def audit(self, *, before: int | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        return await self._reader.call(lambda c: auditing.read_audit(c, before=before, limit=limit))

    async def _write(
        self, job: Callable[[apsw.Connection, datetime], T], *, rings: bool = False
    ) -> T:
        """Run the job on the writer; the present is read when it holds the write lock."""
        result = await self._writer.call(lambda connection: job(connection, self._clock.now()))
        if rings:
            self._ring()
        return result

    def _ring(self) -> None:
        self._rings += 1
        for loop, event in self._waiters:
            loop.call_soon_threadsafe(event.set)

    def _changes(self) -> tuple[int, int]:
        """Return what differs once anybody, in this process or another, may have added work."""
        if self._bell is None:
            return self._rings, -1
        with translated(self.path):
            return self._rings, int(self._bell.execute("PRAGMA data_version").get)


def _refusal(within: object) -> str:
    if type(within).__module__.startswith("sqlite3"):
        return (
            "within= got a connection of the standard library's sqlite3. Two SQLite libraries in "
            "one process break each other's file locks and can lose committed events, so Redrive "
            "refuses it; use `async with app.transaction() as tx` for your own tables."
        )
    return (
        f"within= got {type(within).__name__}; on SQLite only a transaction from "
        "`app.transaction()` can be joined."
    )
