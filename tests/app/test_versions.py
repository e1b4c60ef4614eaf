"""Versions of keys and positions in the log, through the public entry points."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from redrive import (
    ConfigurationError,
    LogPosition,
    NewEvent,
    Operations,
    Receipt,
    Redrive,
    StoreError,
    VersionConflictError,
)
from redrive.testing import Kit, ScriptedDestination
from tests.waiting import PATIENCE_SECONDS


def shop(store: str) -> Redrive:
    app = Redrive(store)
    app.handler("order.*", order="park")(ScriptedDestination("ledger"))
    return app


@pytest.fixture
def app(store: str) -> Iterator[Redrive]:
    app = shop(store)
    yield app
    app.sync.close()


async def test_an_event_is_stored_only_if_its_key_is_as_expected(store: str) -> None:
    app = shop(store)
    async with Kit(app, store=store) as kit:
        first = await app.publish("order.placed", key="order-7", expected_version=0)
        second = await app.publish("order.paid", key="order-7", expected_version=1)

        with pytest.raises(VersionConflictError) as caught:
            await app.publish("order.paid", key="order-7", expected_version=1)

        conflict = caught.value
        assert [first.version, second.version] == [1, 2]
        assert (conflict.key, conflict.expected, conflict.actual) == ("order-7", 1, 2)
        assert str(conflict) == (
            "The key 'order-7' is at version 2, not 1 as expected; nothing was stored. "
            "Look at what was published to it, and try again with its version."
        )
        assert isinstance(conflict, StoreError)
        assert len(kit.published()) == 2
        assert (await kit.drain()).delivered == 2


async def test_an_event_without_a_key_has_no_version(store: str) -> None:
    app = shop(store)
    async with Kit(app, store=store):
        receipt = await app.publish("order.placed")

        assert receipt.version is None


async def test_of_publishes_that_share_a_commit_the_wrong_one_is_refused_alone(store: str) -> None:
    app = shop(store)
    async with Kit(app, store=store) as kit:
        await app.publish("order.placed", key="k")
        results = await asyncio.gather(
            *[app.publish("order.placed", number, key="k") for number in range(3)],
            app.publish("order.paid", key="k", expected_version=0),
            app.publish("order.paid", key="other", expected_version=0),
            return_exceptions=True,
        )

        versions = [one.version for one in results if isinstance(one, Receipt)]
        assert sorted(versions, key=str) == [1, 2, 3, 4]
        assert isinstance(results[3], VersionConflictError)
        assert len(kit.published()) == 5


async def test_one_wrong_version_keeps_a_whole_bulk_out(store: str) -> None:
    app = shop(store)
    async with Kit(app, store=store) as kit:
        with pytest.raises(VersionConflictError, match="'b' is at version 0, not 4"):
            await app.publish_many(
                [
                    NewEvent(type="order.placed", key="a", expected_version=0),
                    NewEvent(type="order.paid", key="a", expected_version=1),
                    NewEvent(type="order.paid", key="b", expected_version=4),
                ]
            )

        assert kit.published() == []
        stored = await app.publish_many(
            [
                NewEvent(type="order.placed", key="a", expected_version=0),
                NewEvent(type="order.paid", key="a", expected_version=1),
            ]
        )
        assert [one.version for one in stored] == [1, 2]


async def test_a_repeated_publish_gets_its_receipt_whatever_has_happened_since(store: str) -> None:
    app = shop(store)
    async with Kit(app, store=store):
        given: dict[str, Any] = {"key": "k", "expected_version": 0, "idempotency_key": "once"}
        first = await app.publish("order.placed", **given)
        await app.publish("order.paid", key="k")

        again = await app.publish("order.placed", **given)

        assert (again.event_id, again.version, again.is_duplicate) == (first.event_id, 1, True)


def test_a_script_expects_versions_too(app: Redrive) -> None:
    app.sync.publish("order.placed", key="k", expected_version=0)

    with pytest.raises(VersionConflictError):
        app.sync.publish("order.placed", key="k", expected_version=0)
    with pytest.raises(VersionConflictError):
        app.sync.publish_many([NewEvent(type="order.paid", key="k", expected_version=2)])

    [logged] = app.sync.operate(Operations.events)
    assert logged.version == 1


async def test_a_transaction_of_the_app_can_expect_a_version(sqlite: str) -> None:
    app = shop(sqlite)
    async with app:
        async with app.transaction() as tx:
            await app.publish("order.placed", key="k", expected_version=0, within=tx)
            with pytest.raises(VersionConflictError):
                await app.publish("order.paid", key="k", expected_version=0, within=tx)
            second = await app.publish("order.paid", key="k", expected_version=1, within=tx)

        assert second.version == 2
        assert len(await app.operations.events()) == 2


async def test_a_publish_that_is_undone_leaves_the_version_as_it_was(sqlite: str) -> None:
    app = shop(sqlite)

    async def fail() -> None:
        async with app.transaction() as tx:
            await app.publish("order.placed", key="k", within=tx)
            raise ZeroDivisionError

    async with app:
        with pytest.raises(ZeroDivisionError):
            await fail()
        receipt = await app.publish("order.placed", key="k", expected_version=0)

        assert receipt.version == 1
        [logged] = await app.operations.events()
        assert logged.event.id == receipt.event_id


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"key": "k", "expected_version": -1}, "expected_version is -1; it is how many events"),
        ({"key": "k", "expected_version": True}, "expected_version is True"),
        ({"key": "k", "expected_version": "1"}, "expected_version is '1'"),
        ({"expected_version": 1}, "the event has no key"),
    ],
)
async def test_what_cannot_be_expected_is_refused(wrong: dict[str, Any], message: str) -> None:
    app = shop("memory://")
    async with Kit(app) as kit:
        with pytest.raises(ConfigurationError, match=message):
            await app.publish("order.paid", **wrong)

        assert kit.published() == []


async def test_the_log_is_read_page_by_page_with_a_cursor_kept_as_text(store: str) -> None:
    app = shop(store)
    async with Kit(app, store=store):
        for number in range(5):
            await app.publish("order.placed", {"number": number}, key=f"k{number % 2}")
        read: list[object] = []
        cursor = "0-0"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(read) < 5:
                for one in await app.operations.events(after=cursor, limit=2):
                    read.append((one.payload, one.version))
                    cursor = str(one.position)

        assert read == [({"number": number}, number // 2 + 1) for number in range(5)]


@pytest.mark.parametrize("wrong", ["", "7", "a-b", "1-", "-1-2", "1-2-3", "٣-٤", f"0-{2**63}", 7])
async def test_what_is_no_position_is_refused(wrong: Any) -> None:  # noqa: ANN401 - anything
    app = shop("memory://")
    async with Kit(app):
        with pytest.raises(ConfigurationError, match="is not one of the log"):
            await app.operations.events(after=wrong)


def test_positions_compare_in_the_order_of_the_log() -> None:
    texts = ["9-10", "10-2", "0-3", "10-10"]

    ordered = sorted(LogPosition.parse(text) for text in texts)

    assert [str(one) for one in ordered] == ["0-3", "9-10", "10-2", "10-10"]
