"""The connection that hears of new work: lost, told, made again, and never needed."""

from __future__ import annotations

import asyncio

from redrive import Event, Redrive
from redrive.clock import SystemClock
from redrive.observer import ListeningBack, ListeningLost
from tests.app.recorder import Recorder
from tests.servers.postgres import Database
from tests.waiting import PATIENCE_SECONDS, eventually

POLL_SECONDS = 4.0
"""So long that even on a busy machine it takes less to hear of something."""
_LISTENERS = """
SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND query LIKE '%' || $1 || '%'
"""
clock = SystemClock()


class Shop:
    """A worker, and somebody else who publishes; each event is told when it has arrived."""

    def __init__(self, url: str, *, poll: float = POLL_SECONDS) -> None:
        self.worker_app = Redrive(url, poll=f"{poll}s")
        self.publisher = Redrive(url)
        self.recorder = Recorder()
        self.worker_app.observe(self.recorder)
        self.arrived: asyncio.Queue[float] = asyncio.Queue()

        @self.worker_app.handler("order.*")
        async def bill(_: Event[None]) -> None:
            self.arrived.put_nowait(clock.monotonic())

    async def seconds_of_one(self) -> float:
        """Publish an event, and return how long it took to arrive."""
        begun = clock.monotonic()
        await self.publisher.publish("order.paid")
        return await self.arrived.get() - begun


async def test_a_lost_listening_connection_is_told_and_made_again(
    postgres_url: str, database: Database
) -> None:
    shop = Shop(postgres_url)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        shop.worker_app,
        shop.publisher,
        shop.worker_app.worker(),
    ):
        await shop.seconds_of_one()
        listener = await _listener(database, postgres_url)

        database.execute("SELECT pg_terminate_backend($1)", listener)
        lost = await shop.recorder.wait_for(ListeningLost)
        await shop.seconds_of_one()
        await shop.recorder.wait_for(ListeningBack)
        other = await _listener(database, postgres_url)
        afterwards = min([await shop.seconds_of_one() for _ in range(5)])

    assert "127.0.0.1" in lost.store
    assert other != listener
    assert afterwards < POLL_SECONDS / 2


async def test_without_a_listening_connection_work_is_found_by_polling(
    postgres_url: str, database: Database
) -> None:
    """The password may have changed, or the server may be full: the poll is the truth."""
    shop = Shop(postgres_url, poll=0.2)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        shop.worker_app,
        shop.publisher,
        shop.worker_app.worker(),
    ):
        await shop.seconds_of_one()
        for _ in range(4):
            listener = await _listener(database, postgres_url, at_once=True)
            if listener is not None:
                database.execute("SELECT pg_terminate_backend($1)", listener)
            await shop.seconds_of_one()


async def _listener(database: Database, url: str, *, at_once: bool = False) -> int | None:
    schema = url.rpartition("=")[2]
    if not at_once:
        await eventually(lambda: database.value(_LISTENERS, schema) is not None, what="listening")
    found = database.value(_LISTENERS, schema)
    return None if found is None else int(found)
