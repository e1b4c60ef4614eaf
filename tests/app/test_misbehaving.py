"""Functions of projections that misbehave: their event parks its key, and all others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from redrive import Event, NewEvent, ReadModel, Redrive, Retry
from tests.effects.ledger import Entries

BAD = 5
Misbehave = Callable[[ReadModel], Awaitable[None]]


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


async def run(model: ReadModel, statement: str) -> None:
    done = model.connection.execute(statement)
    if hasattr(done, "__await__"):
        await done


async def commits(model: ReadModel) -> None:
    await run(model, "COMMIT")


async def rolls_back(model: ReadModel) -> None:
    await run(model, "ROLLBACK")


async def awaits_what_was_cancelled(_model: ReadModel) -> None:
    task = asyncio.ensure_future(asyncio.Event().wait())
    task.cancel()
    await task


async def is_cancelled_at_once(_model: ReadModel) -> None:
    raise asyncio.CancelledError


async def exits(_model: ReadModel) -> None:
    raise SystemExit(3)


async def swallows(model: ReadModel) -> None:
    with suppress(Exception):
        await run(model, "INSERT INTO nowhere VALUES (1)")


async def play(url: str, misbehave: Misbehave, *, batch: bool) -> tuple[int, int, dict[str, Any]]:
    """Project events of three keys, one of them bad; return what is behind, parked and applied."""
    app, entries = Redrive(url), Entries(url)

    async def apply(event: Event[int], model: ReadModel) -> None:
        if event.payload == BAD:
            await misbehave(model)
        await entries.write(model.connection, event.key or "", event.payload)

    async def apply_all(events: list[Event[int]], model: ReadModel) -> None:
        for event in events:
            await apply(event, model)

    declared = app.projection("thing.*", name="things", retry=Retry(max_attempts=1), batch=batch)
    declared(apply_all if batch else apply)
    async with app:
        await app.operations.status()
        await entries.create()
        await app.publish_many(
            [NewEvent(type="thing.made", key=f"k{one % 3}", payload=one) for one in range(12)]
        )
        await app.drain()
        [figures] = await app.projections.list()
        return figures.events_behind, figures.parked_keys, await entries.by_key()


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("misbehave", [awaits_what_was_cancelled, is_cancelled_at_once, exits])
async def test_one_that_is_broken_off_parks_its_key(
    url: str, misbehave: Misbehave, *, batch: bool
) -> None:
    behind, parked, applied = await play(url, misbehave, batch=batch)

    assert (behind, parked) == (0, 1)
    assert applied == {"k0": [0, 3, 6, 9], "k1": [1, 4, 7, 10], "k2": [2]}


@pytest.mark.parametrize("batch", [False, True])
async def test_one_that_swallows_what_the_database_says_parks_its_key(
    postgres_url: str, *, batch: bool
) -> None:
    behind, parked, applied = await play(postgres_url, swallows, batch=batch)

    assert (behind, parked) == (0, 1)
    assert applied == {"k0": [0, 3, 6, 9], "k1": [1, 4, 7, 10], "k2": [2]}


@pytest.mark.parametrize("misbehave", [commits, rolls_back])
async def test_one_that_ends_the_transaction_parks_its_key(url: str, misbehave: Misbehave) -> None:
    """What it has committed by itself is not undone; what comes later is there once."""
    behind, parked, applied = await play(url, misbehave, batch=False)

    assert (behind, parked) == (0, 1)
    assert applied["k0"][-2:] == [6, 9]
    assert applied["k1"][-2:] == [7, 10]
    assert not {8, 11} & set(applied["k2"])
    assert misbehave is commits or applied["k0"] == [0, 3, 6, 9]
