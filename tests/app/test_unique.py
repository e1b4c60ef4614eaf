"""Events that are to be unique for a while: the same is not stored twice within that time."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from redrive import ConfigurationError, NewEvent, Redrive
from redrive.stores.postgres.connection import read_address
from redrive.testing import Kit, ScriptedDestination


def shop() -> Redrive:
    app = Redrive("memory://")
    app.handler("report.*")(ScriptedDestination("printer"))
    return app


async def test_the_same_within_its_time_is_told_and_not_stored(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        first = await app.publish("report.due", {"day": 1}, key="acme", unique_for="10m")
        same = await app.publish("report.due", {"day": 1}, key="acme", unique_for="10m")
        other = await app.publish("report.due", {"day": 2}, key="acme", unique_for="10m")
        kit.clock.advance("10m")
        again = await app.publish("report.due", {"day": 1}, key="acme", unique_for="10m")

        assert (same.event_id, same.is_duplicate) == (first.event_id, True)
        assert (same.destinations, same.version) == (("printer",), 1)
        assert [one.is_duplicate for one in (first, other, again)] == [False] * 3
        assert (await kit.drain()).delivered == 3


async def test_what_is_the_same_can_be_named(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        many = await app.publish_many(
            [
                NewEvent(type="report.due", payload=number, unique_for="10m", unique_by=name)
                for number, name in enumerate(["acme", "acme", "zoe"])
            ]
        )

        assert [one.is_duplicate for one in many] == [False, True, False]
        assert [one.payload for one in kit.published()] == [0, 2]


async def test_of_many_at_once_one_is_stored(postgres_url: str) -> None:
    one, two = Redrive(postgres_url), Redrive(postgres_url)
    async with one, two:
        receipts = await asyncio.gather(
            *[
                app.publish("report.due", number, unique_for="10m", unique_by="acme")
                for number in range(10)
                for app in (one, two)
            ]
        )

        assert len({receipt.event_id for receipt in receipts}) == 1
        assert sum(not receipt.is_duplicate for receipt in receipts) == 1
        assert len(await one.operations.events()) == 1


async def test_only_who_needs_the_same_unique_key_waits_for_a_transaction(
    postgres_url: str,
) -> None:
    app = Redrive(postgres_url)
    async with app:
        connection = await asyncpg.connect(read_address(postgres_url).dsn)
        try:
            transaction = connection.transaction()
            await transaction.start()
            undone = await app.publish("report.due", 1, unique_for="10m", within=connection)
            same = asyncio.create_task(app.publish("report.due", 1, unique_for="10m"))
            other = await app.publish("report.due", 2, unique_for="10m")
            await transaction.rollback()
        finally:
            await connection.close()
        stored = await same

        assert not other.is_duplicate
        assert not stored.is_duplicate
        assert stored.event_id != undone.event_id


async def test_a_transaction_on_sqlite_keeps_its_unique_key(sqlite: str) -> None:
    app = Redrive(sqlite)
    async with app:
        async with app.transaction() as transaction:
            first = await app.publish("report.due", unique_for="10m", within=transaction)
            inside = await app.publish("report.due", unique_for="10m", within=transaction)
        after = await app.publish("report.due", unique_for="10m")

        assert [one.event_id for one in (inside, after)] == [first.event_id] * 2


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"unique_by": "acme"}, "nothing says for how long"),
        ({"unique_for": "0s"}, "unique_for is 0s"),
        ({"unique_for": "31d"}, "at most 30d"),
        ({"unique_for": "soon"}, "not a duration"),
        ({"unique_for": "10m", "unique_by": " "}, "unique_by is blank"),
    ],
)
async def test_what_cannot_be_meant_is_refused(attributes: dict[str, str], words: str) -> None:
    app = shop()
    async with Kit(app):
        with pytest.raises(ConfigurationError, match=words):
            await app.publish("report.due", **attributes)  # type: ignore[arg-type]  # wrong on purpose
