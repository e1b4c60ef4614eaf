"""One row that cannot be read, whoever wrote it: it fails alone, and everything else goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import asyncpg
import pytest

from redrive import Event, Query, Redrive, Retry
from redrive.model.delivery import Status
from redrive.stores.postgres.connection import read_address

Plant = Callable[[str], Awaitable[None]]
DOCUMENTS = [
    "",
    "garbage",
    "null",
    "[]",
    "{",
    '{"id":"x","type":"order.paid","payload":' + "[" * 50_000 + "]" * 50_000 + "}",
    '{"id":"x","type":"order.paid","payload":1,"headers":7}',
    '{"id":"x","type":"order.paid","payload":{"a":1},"type":"order.forged","published_at":"x"}',
    '{"id":"x","type":"order.paid","payload":1,"published_at":"yesterday","occurred_at":"?"}',
]
documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda text: text[:12] or "empty")


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store whose tables somebody else could write to."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'redrive.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def plant(address: str) -> Plant:
    """Write a document over those of the events with the key `bad`, past everything of ours."""

    async def write(document: str) -> None:
        if address.startswith("sqlite"):
            connection = apsw.Connection(address.removeprefix("sqlite:///"))
            connection.execute(
                "UPDATE redrive_events SET document = ? WHERE key = 'bad'", (document,)
            )
            connection.close()
            return
        given = read_address(address)
        server = await asyncpg.connect(given.dsn)
        await server.execute(
            f"UPDATE {given.schema}.events SET document = $1 WHERE key = 'bad'",  # noqa: S608 - ours
            document,
        )
        await server.close()

    return write


@documents
@pytest.mark.parametrize("batch", [1, 10])
async def test_it_becomes_a_dead_letter_and_the_others_arrive(
    address: str, plant: Plant, document: str, batch: int
) -> None:
    app = Redrive(address)
    got: list[object] = []
    heard: list[str] = []

    if batch == 1:

        @app.handler("order.*", name="billing", retry=Retry(max_attempts=9))
        async def bill(event: Event[object]) -> None:
            got.append(event.payload)

    else:

        @app.handler("order.*", name="billing", batch=batch, retry=Retry(max_attempts=9))
        async def bill_all(events: list[Event[object]]) -> None:
            got.extend(one.payload for one in events)

    app.on_failed(lambda letter: heard.append(letter.event_type))
    async with app:
        for number in range(6):
            await app.publish("order.paid", number, key="bad" if number == 3 else f"k{number}")
        await plant(document)

        tally = await app.drain()
        [letter] = (await app.operations.dead_letters()).deliveries

    assert sorted(map(str, got)) == ["0", "1", "2", "4", "5"]
    assert (tally.delivered, tally.failed) == (5, 1)
    assert letter.reason == "terminal"
    assert letter.fault is not None
    assert "cannot be read" in letter.fault.message
    assert len(heard) == 1


async def test_bytes_that_are_no_text_fail_alone(tmp_path: Path) -> None:
    app = Redrive(f"sqlite:///{tmp_path / 'redrive.db'}")
    app.handler("order.*", name="billing")(lambda _: None)
    async with app:
        for key in ("bad", "good"):
            await app.publish("order.paid", {"note": "ok"}, key=key)
        connection = apsw.Connection(str(tmp_path / "redrive.db"))
        connection.execute(
            "UPDATE redrive_events SET document = CAST(? AS TEXT) WHERE key = 'bad'",
            (b'{"id":"x","type":"order.paid","payload":"\xff"}',),
        )
        connection.close()

        tally = await app.drain()

        assert (tally.delivered, tally.failed) == (1, 1)
        [letter] = [one async for one in app.operations.export()]
        assert letter.event.type == "order.paid"
        await app.operations.show(letter.delivery.id)


@documents
async def test_every_look_survives_it(address: str, plant: Plant, document: str) -> None:
    app = Redrive(address)
    app.handler("order.*", name="billing")(lambda _: None)
    async with app:
        await app.publish("order.paid", {"note": "find me"}, key="bad")
        await plant(document)
        await app.drain()
        operations = app.operations
        [letter] = (await operations.dead_letters()).deliveries

        story = await operations.show(letter.id)
        assert story.event.id == letter.event_id
        assert story.payload is not None
        assert [one.event.id for one in await operations.events()] == [letter.event_id]
        assert len(await operations.groups()) == 1
        await operations.dead_letters(Query(text="find me"))
        exported = [one async for one in operations.export()]
        assert [one.event.id for one in exported] == [letter.event_id]
        assert (await operations.status()).destinations[0].failed == 1
        await operations.examine()

        await operations.edit(letter.id, {"order": 7}, by="ada", why="it was broken")
        assert (await app.drain()).delivered == 1
        found = await operations.deliveries(Query(status=Status.DELIVERED))
        assert [one.id for one in found.deliveries] == [letter.id]


@pytest.mark.parametrize(
    "change", ["due = 'infinity'", "deadline = '-infinity'", "attempts = 2147483647", "token = -1"]
)
async def test_a_time_or_a_count_that_no_worker_could_reckon_with_is_refused_by_postgresql(
    postgres_url: str, change: str
) -> None:
    app = Redrive(postgres_url)
    app.handler("order.*", name="billing")(take)
    async with app:
        await app.publish("order.paid")
    given = read_address(postgres_url)
    server = await asyncpg.connect(given.dsn)

    with pytest.raises(asyncpg.CheckViolationError, match="can_be_reckoned_with"):
        await server.execute(f"UPDATE {given.schema}.deliveries SET {change}")  # noqa: S608 - ours

    await server.close()


async def take(event: Event[object]) -> None: ...
