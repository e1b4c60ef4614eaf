"""What fails of a projection parks its key, however much there is: all else goes on, in order.

With `REDRIVE_TEST_LONG=1` everything has its full size.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from redrive import Event, NewEvent, ReadModel, Redrive, Retry
from redrive.store import ProjectionFigures
from tests.effects.ledger import Entries
from tests.scale import IS_LONG
from tests.servers.proxy import Proxy, proxying
from tests.waiting import eventually, spend

EVENTS, KEYS = (100_000, 500) if IS_LONG else (1_500, 50)
SECONDS = 900 if IS_LONG else 120
PER_CALL = 1_000


class Model:
    """An app whose projection writes down what has happened to each key."""

    def __init__(self, url: str, *, through: str = "") -> None:
        self.app = Redrive(through or url, poll="100ms")
        self.entries = Entries(url)
        self.poison: set[int] = set()
        self._number = 0
        once = Retry(max_attempts=1)

        @self.app.projection("thing.*", name="things", retry=once)
        async def apply(event: Event[Any], model: ReadModel) -> None:
            await self.entries.write(model.connection, event.key or "", event.payload)
            if event.payload in self.poison:
                raise RuntimeError(f"{event.payload} is poison")

    async def publish(self, app: Redrive, count: int, *, keys: int) -> None:
        """Publish as many as asked for, the keys taking turns."""
        for begin in range(self._number, self._number + count, PER_CALL):
            some = range(begin, min(begin + PER_CALL, self._number + count))
            await app.publish_many(
                [NewEvent(type="thing.made", key=f"k{one % keys}", payload=one) for one in some]
            )
        self._number += count

    async def figures(self) -> ProjectionFigures:
        [found] = await self.app.projections.list()
        return found

    async def replay(self) -> None:
        """Replay what has died, and run down."""
        await self.app.operations.replay(await self.app.operations.select(), by="ada", why="mended")
        await self.app.drain()

    async def recount(self) -> dict[str, list[int]]:
        """Return what the log has for each key, in order."""
        found: dict[str, list[int]] = {}
        for one in await self.app.log.read(types="thing.*", limit=10_000_000):
            found.setdefault(one.event.key or "", []).append(one.event.payload)
        return found


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
async def model(url: str) -> AsyncIterator[Model]:
    model = Model(url)
    async with model.app:
        await model.entries.create()
        yield model


@pytest.mark.timeout(3 * SECONDS)
async def test_one_poison_event_of_very_many_parks_its_key_alone(model: Model) -> None:
    model.poison = {EVENTS // 2}
    await model.publish(model.app, EVENTS, keys=KEYS)

    await model.app.drain()

    figures = await model.figures()
    assert (figures.events_behind, figures.parked_keys) == (0, 1)
    assert figures.handed_over == EVENTS // 2 // KEYS
    log, applied = await model.recount(), await model.entries.by_key()
    parked = f"k{EVENTS // 2 % KEYS}"
    assert applied[parked] == [one for one in log[parked] if one < EVENTS // 2]
    assert all(applied[key] == log[key] for key in log if key != parked)

    model.poison.clear()
    await model.replay()

    assert await model.entries.by_key() == log
    assert (await model.figures()).handed_over == 0


@pytest.mark.timeout(3 * SECONDS)
async def test_very_many_that_wait_behind_one_go_on_in_order(model: Model) -> None:
    """More events of the key come while it goes on, and another of its events fails meanwhile."""
    model.poison = {0, EVENTS // 2}
    await model.publish(model.app, EVENTS, keys=1)
    await model.app.drain()
    assert (await model.figures()).handed_over == EVENTS

    model.poison.remove(0)
    going_on = asyncio.create_task(model.replay())
    await model.publish(model.app, 50, keys=1)
    await going_on
    await model.app.drain()

    figures = await model.figures()
    assert (figures.events_behind, figures.parked_keys) == (0, 1)
    assert figures.handed_over == EVENTS - EVENTS // 2 + 50
    model.poison.clear()
    await model.replay()

    assert await model.entries.by_key() == {"k0": list(range(EVENTS + 50))}


async def test_a_store_that_is_away_for_a_while_costs_nothing(postgres_url: str) -> None:
    parts = urlsplit(postgres_url)
    async with proxying(str(parts.hostname), parts.port or 5432) as proxy:
        there = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}")
        model = Model(postgres_url, through=urlunsplit(there))
        direct = Redrive(postgres_url)
        async with direct, model.app:
            await model.entries.create()
            async with model.app.worker():
                await model.publish(direct, 200, keys=20)
                await eventually(lambda: _has_begun(direct), what="it reads", within=SECONDS)
                await _break(proxy, model, direct)
                await eventually(lambda: _is_caught_up(direct), what="all is read", within=SECONDS)
            assert await model.entries.by_key() == await model.recount()


async def _break(proxy: Proxy, model: Model, direct: Redrive) -> None:
    """Cut the lines to the store again and again while events come."""
    for _ in range(3):
        proxy.reset()
        await model.publish(direct, 100, keys=20)
        proxy.stall()
        await spend(0.3)
        proxy.reset()
        proxy.resume()
        await model.publish(direct, 100, keys=20)


async def _has_begun(app: Redrive) -> bool:
    return any(one.checkpoint.count for one in await app.projections.list())


async def _is_caught_up(app: Redrive) -> bool:
    figures = await app.projections.list()
    return bool(figures) and figures[0].is_caught_up and not figures[0].handed_over
