"""A drain beside somebody who has a hold of what is due."""

from __future__ import annotations

import asyncpg
import pytest

from redrive import Event, ReadModel, Redrive
from redrive.worker import projector, worker

ONE_AND_MANY = pytest.mark.parametrize("destinations", [1, 40])
"""Claims ask a few destinations all at once, and many in turns."""


class Releasing:
    """A clock on which somebody lets go while one waits for them."""

    def __init__(self, holding: asyncpg.transaction.Transaction) -> None:
        self._holding = holding
        self.sleeps = 0

    async def sleep(self, seconds: float) -> None:
        if not self.sleeps:
            await self._holding.rollback()
        self.sleeps += 1


@ONE_AND_MANY
async def test_a_drain_waits_for_what_somebody_has_a_hold_of(
    postgres_url: str,
    person: asyncpg.Connection[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch,
    destinations: int,
) -> None:
    app, received = Redrive(postgres_url), list[int]()
    for number in range(destinations):

        @app.handler(f"step.{number}", name=f"shop-{number}")
        async def shop(event: Event[int]) -> None:
            received.append(event.payload)

    async with app:
        for number in range(3):
            await app.publish("step.0", number)
        holding = person.transaction()
        await holding.start()
        await person.execute("SELECT FROM deliveries WHERE id = 2 FOR UPDATE")
        releasing = Releasing(holding)
        monkeypatch.setattr(worker, "_REAL_TIME", releasing)
        await app.drain()

    assert sorted(received) == [0, 1, 2]
    assert releasing.sleeps > 0


async def test_a_drain_waits_until_what_was_published_can_be_read(
    postgres_url: str,
    person: asyncpg.Connection[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It can be once everybody who began before it has ended."""
    app, applied = Redrive(postgres_url), list[int]()

    @app.projection("step", name="steps")
    async def steps(event: Event[int], _: ReadModel) -> None:
        applied.append(event.payload)

    holding = person.transaction()
    async with app:
        await holding.start()
        await person.execute("SELECT pg_current_xact_id()")
        await app.publish("step", 1)
        releasing = Releasing(holding)
        monkeypatch.setattr(projector, "_REAL_TIME", releasing)
        await app.drain()

    assert applied == [1]
    assert releasing.sleeps > 0
