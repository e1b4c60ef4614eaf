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


_DELIVERY = "SELECT FROM deliveries WHERE id = 2 FOR UPDATE"
HOLDS = pytest.mark.parametrize(
    "hold",
    [
        ("kind = kind", _DELIVERY),
        ("kind = 1, is_ready = false", _DELIVERY),
        ("kind = 0, crashes = 2", _DELIVERY),
        ("kind = kind", "SELECT FROM keys WHERE key = 'same' FOR UPDATE"),
    ],
    ids=["ready", "come due", "suspect", "its lane"],
)


@ONE_AND_MANY
@HOLDS
async def test_a_drain_waits_for_what_somebody_has_a_hold_of(
    postgres_url: str,
    person: asyncpg.Connection[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch,
    destinations: int,
    hold: tuple[str, str],
) -> None:
    makes_it, takes_hold = hold
    app, received = Redrive(postgres_url), list[int]()
    is_ordered = "keys" in takes_hold
    for number in range(destinations):

        @app.handler(
            f"step.{number}", name=f"shop-{number}", order="park" if is_ordered else "none"
        )
        async def shop(event: Event[int]) -> None:
            received.append(event.payload)

    async with app:
        for number in range(3):
            await app.publish("step.0", number, key="same")
        await person.execute(f"UPDATE deliveries SET {makes_it} WHERE id = 2")  # noqa: S608 - ours
        holding = person.transaction()
        await holding.start()
        await person.execute(takes_hold)
        releasing = Releasing(holding)
        monkeypatch.setattr(worker, "_REAL_TIME", releasing)
        await app.drain()

    assert sorted(received) == [0, 1, 2]
    assert releasing.sleeps > 0


async def test_a_drain_does_not_wait_for_a_lane_in_which_nothing_waits(
    postgres_url: str, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    app, received = Redrive(postgres_url), list[int]()

    @app.handler("step", order="park")
    async def shop(event: Event[int]) -> None:
        received.append(event.payload)

    async with app:
        await app.publish("step", 1, key="same")
        async with person.transaction():
            await person.execute("SELECT FROM keys FOR UPDATE")
            await app.drain()

    assert received == [1]


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
