"""What leaves the scope of an act while that waits for its row is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from redrive import Event, Operations, Redrive, Retry
from redrive.errors import EditConflictError, NotFoundError
from redrive.model.access import Scope
from redrive.stores.postgres.connection import read_address
from tests.servers.waiting import until_somebody_waits

_MOVE = """
UPDATE deliveries SET destination = (SELECT id FROM destinations WHERE name = 'mail')
WHERE destination = (SELECT id FROM destinations WHERE name = 'billing')
"""
Act = Callable[[Operations, int], Awaitable[object]]


async def _edit(operations: Operations, letter: int) -> object:
    try:
        return await operations.edit(letter, {}, by="ada", why="a slip")
    except (EditConflictError, NotFoundError):
        return []


@pytest.mark.parametrize(
    "act",
    [
        lambda operations, letter: operations.replay([letter], by="ada"),
        lambda operations, letter: operations.delete([letter], by="ada", why="of no use"),
        _edit,
    ],
    ids=["replay", "delete", "edit"],
)
async def test_what_is_moved_while_an_act_waits_for_it_is_left_alone(
    postgres_url: str, act: Act
) -> None:
    app = Redrive(postgres_url)
    for name in ("billing", "mail"):

        @app.handler(f"{name}.*", name=name, retry=Retry(max_attempts=1))
        async def fail(event: Event[int]) -> None:
            raise ConnectionError("it is down")

    address = read_address(postgres_url)
    async with asyncio.timeout(60), app:
        await app.publish("billing.due", 1)
        await app.drain()
        [letter] = await app.operations.select()
        shop = await asyncpg.connect(address.dsn)
        await shop.execute(f"SET search_path = {address.schema}")

        async with shop.transaction():
            await shop.execute(_MOVE)
            theirs = app.operations.within(Scope(destinations=("billing",)))
            acting = asyncio.ensure_future(act(theirs, letter))
            await until_somebody_waits(shop)
        await shop.close()

        assert await acting == []
        story = await app.operations.show(letter)
        assert (story.delivery.destination, story.delivery.is_dead_letter) == ("mail", True)
