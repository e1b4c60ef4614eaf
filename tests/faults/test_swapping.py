"""Versions of a projection, built beside and swapped: readers never see a part of one.

With `REDRIVE_TEST_LONG=1` everything has its full size.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from redrive import Event, NewEvent, ReadModel, Redrive
from tests.faults.swapping import PER_SECOND, Readers, declare, make_anew, poll
from tests.scale import IS_LONG, scaled
from tests.waiting import eventually, spend, spend_at_once

EVENTS = scaled("EVENTS", usually=200_000 if IS_LONG else 2_000)
KILLS = scaled("KILLS", usually=15 if IS_LONG else 2)
SECONDS = 900 if IS_LONG else 120
STORES = ["sqlite_url", "postgres_url"] if IS_LONG else ["sqlite_url"]
BATCH = 500
FEW = 5
"""How many are published at a time beside a version that is built."""


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


async def publish(app: Redrive, numbers: range) -> None:
    """Publish an event for each number."""
    for begin in range(numbers.start, numbers.stop, BATCH):
        some = range(begin, min(begin + BATCH, numbers.stop))
        await app.publish_many(
            [NewEvent(type="thing.made", key=f"k{n % 50}", payload={"n": n}) for n in some]
        )


async def publish_until(app: Redrive, numbers: count[int], stopped: asyncio.Event) -> int:
    """Publish a few at a time until it is enough; returns how many there are then."""
    first = next(numbers)
    while not stopped.is_set():
        await publish(app, range(first, first + FEW))
        first += FEW
        await spend(0.01)
    return first


@pytest.mark.timeout(3 * SECONDS)
async def test_who_reads_never_sees_a_part_of_a_version(url: str) -> None:
    app, stopped = Redrive(url), threading.Event()
    readers, seen = Readers(url), list[int]()
    declare(app, readers.table, 1)
    async with app:
        await publish(app, range(EVENTS))
        await app.drain()
    second = Redrive(url)
    declare(second, readers.table, 1, 2)
    async with second, readers:
        polling = asyncio.create_task(asyncio.to_thread(poll, url, seen, stopped))
        try:
            swapped = asyncio.Event()
            publishing = asyncio.create_task(publish_until(second, count(EVENTS), swapped))
            async with second.worker():

                async def has_begun() -> bool:
                    return len(await second.projections.list()) > 1

                await eventually(has_begun, what="the new version is built", within=SECONDS)
                await second.projections.swap("things", by="ada", version=2, timeout=f"{SECONDS}s")
                at_the_swap = seen[-1]
                await spend(0.1)
                swapped.set()
                last = await publishing - 1
                await eventually(
                    lambda: polling.done() or seen[-1] == last,
                    what="nothing is lost",
                    within=SECONDS,
                )
                [_, figures] = await second.projections.list()
        finally:
            stopped.set()
            by_the_second = await polling
        counted = await readers.count()
        await readers.clear()

    assert by_the_second >= PER_SECOND * 0.9
    assert seen[0] >= EVENTS - 1
    assert seen == sorted(seen)
    assert EVENTS - 1 <= at_the_swap <= seen[-1] == last
    assert counted == last + 1
    assert figures.is_serving


@pytest.mark.timeout(3 * SECONDS)
@pytest.mark.parametrize("store", STORES)
def test_whoever_is_killed_readers_have_all_of_a_version(
    store: str, request: pytest.FixtureRequest
) -> None:
    url = str(request.getfixturevalue(store))
    chance = random.Random(7)  # noqa: S311 - no secret
    many = EVENTS // 10
    readers = Readers(url)

    async def begin() -> None:
        app = Redrive(url)
        declare(app, readers.table, 1, 2)
        async with app:
            await publish(app, range(many))
            await app.drain()

    async def look() -> int:
        async with readers:
            return await readers.count()

    asyncio.run(begin())
    for _ in range(KILLS):
        command = [sys.executable, "-m", "tests.faults.swapping", url]
        child = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        spend_at_once(1.0 + 1.5 * chance.random())
        child.kill()
        child.wait()
        assert asyncio.run(look()) == many

    before, after = asyncio.run(make_anew(url))
    assert before != after
    assert asyncio.run(look()) == many

    async def clear() -> None:
        async with readers:
            await readers.clear()

    asyncio.run(clear())


@pytest.mark.parametrize("nonsense", [7, "done", ["a"], {"b": 1}])
async def test_what_a_function_returns_is_of_no_account(nonsense: object, tmp_path: Path) -> None:
    app = Redrive(f"sqlite:///{tmp_path}/redrive.db")

    @app.projection("thing.*", name="things")
    async def apply(event: Event[Any], model: ReadModel) -> object:
        return nonsense

    async with app:
        await publish(app, range(2))
        await app.drain()
        [one] = await app.projections.list()

    assert (one.checkpoint.count, one.handed_over) == (2, 0)
