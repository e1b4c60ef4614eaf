"""Reading the log through the app: in order, by type, by key, typed, and as it grows."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive import (
    ConfigurationError,
    Event,
    LoggedEvent,
    LogPosition,
    NewEvent,
    NotFoundError,
    PayloadError,
    Redrive,
    UsageError,
)
from redrive.testing import Kit


@dataclass
class Paid:
    order: int
    cents: int


class Sent(msgspec.Struct):
    order: int


@pytest.fixture
async def app() -> AsyncIterator[Redrive]:
    app = Redrive("memory://")
    async with app:
        yield app


def numbers(events: list[LoggedEvent]) -> list[int]:
    return [one.event.payload["n"] for one in events]


async def publish(app: Redrive, *types: str, key: str | None = None, first: int = 1) -> None:
    await app.publish_many(
        [
            NewEvent(type=kind, payload={"n": number}, key=key)
            for number, kind in enumerate(types, first)
        ]
    )


async def test_a_reader_goes_on_from_where_it_was(app: Redrive) -> None:
    await publish(app, *["order.paid"] * 5)

    first = await app.log.read(limit=2)
    kept = str(first[-1].position)
    rest = await app.log.read(after=kept)

    assert numbers([*first, *rest]) == [1, 2, 3, 4, 5]
    assert await app.log.read(after=rest[-1].position) == []


async def test_events_are_chosen_by_type_however_rare_they_are(app: Redrive) -> None:
    await publish(app, *["mail.sent"] * 600, "order.paid", *["mail.sent"] * 600, "order.sent")

    assert numbers(list(await app.log.read(types="order.*"))) == [601, 1202]
    assert numbers(list(await app.log.read(types=["order.sent", "order.paid"], limit=1))) == [601]
    assert len(await app.log.read(limit=1202)) == 1202


async def test_payloads_are_read_as_the_type_that_was_asked_for(app: Redrive) -> None:
    await app.publish("order.paid", {"order": 1, "cents": 250})
    await app.publish("order.sent", {"order": 1})
    await app.publish("order.lost", {"order": 1})

    read = await app.log.read(types={"order.paid": Paid, "order.sent": Sent, "order.*": Any})

    assert [one.payload for one in read] == [Paid(1, 250), Sent(1), {"order": 1}]


async def test_a_payload_that_does_not_fit_says_where_and_what_to_do(app: Redrive) -> None:
    await app.publish("order.paid", {"order": "one"})
    [logged] = await app.log.read()

    with pytest.raises(PayloadError, match=r"order.paid.*Expected `int`.*upcast") as raised:
        await app.log.read(types={"order.paid": Paid})

    assert f'after="{logged.position}"' in str(raised.value)


async def test_a_key_has_a_history_by_version(app: Redrive) -> None:
    await publish(app, *["order.placed", "order.paid", "mail.sent"] * 200, key="order-1")
    await publish(app, "order.placed", key="order-2")

    history = await app.log.history("order-1")
    later = await app.log.history("order-1", after=598, types={"order.*": Any})

    assert [one.version for one in history] == list(range(1, 601))
    assert [(one.version, one.event.type) for one in later] == [(599, "order.paid")]
    assert await app.log.history("order-3") == []


async def test_a_history_with_a_hole_is_refused() -> None:
    app = Redrive("memory://", keep_events="1h", keep_delivered="1h")
    async with Kit(app) as kit:
        await publish(app, "order.placed", "order.paid", key="order-1")
        kit.clock.advance("1d")
        await publish(app, "order.sent", key="order-1")
        await kit.operations.prune(by="ada")

        with pytest.raises(NotFoundError, match=r"Events 1 to 2 of the key 'order-1'.*after=2"):
            await app.log.history("order-1")
        assert [one.version for one in await app.log.history("order-1", after=2)] == [3]


@pytest.mark.parametrize("store", ["memory://", "sqlite:///{}/log.db"])
async def test_a_subscriber_gets_what_is_there_and_what_comes(tmp_path: Path, store: str) -> None:
    async with Redrive(store.format(tmp_path)) as app:
        await publish(app, "order.paid", "mail.sent")
        read: list[LoggedEvent] = []

        async with asyncio.timeout(10):
            async for logged in app.log.subscribe(types="order.*"):
                read.append(logged)
                if len(read) == 4:
                    break
                await publish(app, "mail.sent", "order.sent", first=10 * len(read))

        assert numbers(read) == [1, 11, 21, 31]


async def test_a_subscriber_hears_of_news_that_workers_took(tmp_path: Path) -> None:
    """It wakes long before its poll, though a worker of the same app has looked meanwhile."""
    app = Redrive(f"sqlite:///{tmp_path}/log.db", poll="1h")
    done = asyncio.Event()

    @app.handler("order.*")
    async def handle(event: Event[Any]) -> None:
        if event.payload["n"] == 5:
            done.set()

    read: list[LoggedEvent] = []

    async def follow(end: LogPosition) -> None:
        async for logged in app.log.subscribe(after=end):
            read.append(logged)
            if len(read) == 5:
                return

    async with app, app.worker(), asyncio.timeout(10):
        following = asyncio.create_task(follow(await app.log.end()))
        for number in range(1, 6):
            await publish(app, "order.paid", first=number)
        await done.wait()
        await following

    assert numbers(read) == [1, 2, 3, 4, 5]


async def test_from_the_end_only_what_comes_is_read(app: Redrive) -> None:
    await publish(app, "order.paid")
    end = await app.log.end()
    await publish(app, "order.paid", first=2)

    assert numbers(list(await app.log.read(after=end))) == [2]


async def test_an_old_shape_is_brought_up_to_date_for_readers_and_handlers() -> None:
    app = Redrive("memory://")
    seen: list[Paid] = []

    @app.upcast("order.paid")
    def in_cents(payload: dict[str, Any]) -> dict[str, Any]:
        if "euros" in payload:
            payload["total"] = payload.pop("euros") * 100
        return payload

    @app.upcast("order.*")
    def plainly(payload: dict[str, Any]) -> dict[str, Any]:
        if "total" in payload:
            payload["cents"] = payload.pop("total")
        return payload

    @app.handler("order.paid")
    async def handle(event: Event[Paid]) -> None:
        seen.append(event.payload)

    async with app:
        await app.publish("order.paid", {"order": 1, "euros": 2}, key="order-1")
        await app.publish("order.paid", {"order": 2, "cents": 250})
        await app.drain()

        assert seen == [Paid(1, 200), Paid(2, 250)]
        assert [one.payload for one in await app.log.read(types={"order.paid": Paid})] == seen
        [raw] = [one.payload for one in await app.operations.events(limit=1)]
        assert raw == {"order": 1, "euros": 2}


async def test_a_stand_in_of_the_test_kit_gets_present_shapes() -> None:
    app = Redrive("memory://")

    @app.upcast("order.paid")
    def doubled(payload: int) -> int:
        return 2 * payload

    @app.handler("order.paid", name="billing")
    async def handle(event: Event[Any]) -> None:
        raise AssertionError(event)

    async with Kit(app) as kit:
        billing = kit.script("billing")
        await app.publish("order.paid", 21)
        await kit.drain()

        assert [one.payload for one in billing.received] == [42]


@pytest.mark.parametrize("answer", [None, {1, 2}.__class__, object()])
async def test_an_upcast_that_answers_nonsense_fails_the_event_alone(answer: object) -> None:
    app = Redrive("memory://")

    @app.upcast("order.paid")
    def nonsense(_: object) -> object:
        return answer

    @app.handler("order.*")
    async def handle(event: Event[Any]) -> None:
        assert event.type == "order.sent"

    async with app:
        await app.publish("order.paid", {"n": 1})
        await app.publish("order.sent", {"n": 2})
        tally = await app.drain()

    assert (tally.delivered, tally.failed) == (1, 1)


def test_an_upcast_needs_a_type_and_a_function() -> None:
    app = Redrive("memory://")

    with pytest.raises(ConfigurationError, match="name it"):
        app.upcast()
    with pytest.raises(ConfigurationError, match="pattern"):
        app.upcast("order paid")
    with pytest.raises(ConfigurationError, match="not a function"):
        app.upcast("order.paid")("cents")  # type: ignore[type-var]


async def test_wrong_arguments_are_refused_at_once(app: Redrive) -> None:
    with pytest.raises(UsageError, match="limit"):
        await app.log.read(limit=0)
    with pytest.raises(ConfigurationError, match="position"):
        app.log.subscribe(after="yesterday")
    with pytest.raises(ConfigurationError, match="pattern"):
        app.log.subscribe(types="order paid")
    with pytest.raises(ConfigurationError, match="types is 7"):
        app.log.subscribe(types=7)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cannot be read from JSON"):
        app.log.subscribe(types={"order.*": object()})
    with pytest.raises(UsageError, match="version"):
        await app.log.history("order-1", after=-1)
    with pytest.raises(ConfigurationError, match="key"):
        await app.log.history(7)  # type: ignore[arg-type]


def test_the_log_is_read_without_an_event_loop() -> None:
    app = Redrive("memory://")
    try:
        app.sync.publish("order.paid", {"n": 1}, key="order-1")
        end = app.sync.log.end()
        app.sync.publish("order.sent", {"n": 2}, key="order-1")

        assert numbers(list(app.sync.log.read(types="order.*"))) == [1, 2]
        assert numbers(list(app.sync.log.read(after=end))) == [2]
        assert [one.version for one in app.sync.log.history("order-1", after=1)] == [2]
        assert isinstance(end, LogPosition)
    finally:
        app.sync.close()
