"""The memory store keeps the contract, on any thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from redrive.stores.memory import MemoryStore
from redrive.testing.clock import FakeClock
from tests.conformance import MakeStore, StoreConformance, World
from tests.conformance.world import an_event, ids_of
from tests.waiting import PATIENCE_SECONDS


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return MemoryStore


async def test_a_publish_on_another_thread_ends_the_wait() -> None:
    async with World.opened(MemoryStore, history=20) as world:
        waiting = asyncio.ensure_future(world.store.wait(at_most=timedelta(hours=1)))
        await world.clock.sleep(0)

        await asyncio.to_thread(lambda: asyncio.run(world.publish(an_event())))

        async with asyncio.timeout(PATIENCE_SECONDS):
            await waiting


async def test_threads_never_lease_the_same_delivery() -> None:
    async with World.opened(MemoryStore, history=20) as world:
        ids = await world.publish(*[an_event() for _ in range(60)])

        with ThreadPoolExecutor(6) as threads:
            claims = list(threads.map(lambda _: asyncio.run(world.claim(total=10)), range(6)))

        assert sorted(one for claim in claims for one in ids_of(claim)) == sorted(ids)


async def test_closing_ends_every_wait() -> None:
    store = MemoryStore(FakeClock())
    waiting = asyncio.ensure_future(store.wait(at_most=timedelta(hours=1)))
    await FakeClock().sleep(0)

    await store.close()

    async with asyncio.timeout(PATIENCE_SECONDS):
        await waiting
