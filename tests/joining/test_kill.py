"""`kill -9` of a publisher at any point of its transaction: both are there, or neither."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from redrive.stores.postgres.connection import read_address
from tests.joining.drivers import (
    Asyncpg,
    Django,
    Psycopg,
    Shop,
    SqlalchemyAsyncSession,
    SqlalchemySession,
)
from tests.scale import IS_LONG, scaled
from tests.waiting import eventually, spend

ROOT = Path(__file__).parents[2]
KILLS = scaled("KILLS", usually=50 if IS_LONG else 5)
DRIVERS = (Asyncpg, Psycopg, SqlalchemySession, SqlalchemyAsyncSession, Django)
ORDERS_AT_ONCE = 100_000


@pytest.mark.timeout(60 + KILLS * 10)
@pytest.mark.parametrize("shop", [Asyncpg], indirect=True, ids=["each-driver-in-turn"])
async def test_a_killed_publisher_leaves_the_row_and_the_event_or_neither(shop: Shop) -> None:
    pauses = random.Random(7)  # noqa: S311 - a choice, no secret

    for kill in range(KILLS):
        before = await count(shop, "order_row")
        driver = DRIVERS[kill % len(DRIVERS)]
        with publishing(shop, driver, first=kill * ORDERS_AT_ONCE) as publisher:
            await eventually(partial(_has_taken, shop, before + 3, publisher), what="3 more orders")
            await spend(pauses.uniform(0, 0.02))
            publisher.kill()
        assert await count(shop, "lonely") == 0

    taken = await count(shop, "order_row")
    assert taken >= 3 * KILLS
    assert await count(shop, "event_row") == taken
    assert (await shop.app.drain()).delivered == taken


async def _has_taken(shop: Shop, orders: int, publisher: subprocess.Popen[bytes]) -> bool:
    assert publisher.poll() is None
    return await count(shop, "order_row") >= orders


async def count(shop: Shop, what: str) -> int:
    """Count orders, events, or those of either that miss the other, all at one moment."""
    schema = read_address(shop.app.settings.store).schema
    rows = await shop.ask(
        f"""
        SELECT count(order_row) AS order_row, count(event_row) AS event_row,
               count(*) FILTER (WHERE order_row IS NULL OR event_row IS NULL) AS lonely
        FROM (SELECT id AS order_row FROM {shop.name}.orders) AS orders
        FULL JOIN (
            SELECT (document::json -> 'payload' ->> 'order')::integer AS event_row
            FROM {schema}.events
        ) AS events ON event_row = order_row
        """
    )
    return int(rows[0][what])


@contextmanager
def publishing(shop: Shop, driver: type[Shop], *, first: int) -> Iterator[subprocess.Popen[bytes]]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.joining.publisher"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": path,
            "REDRIVE_TEST_URL": shop.app.settings.store,
            "REDRIVE_TEST_DRIVER": driver.__name__,
            "REDRIVE_TEST_SHOP": shop.name,
            "REDRIVE_TEST_FIRST": str(first),
        },
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)
