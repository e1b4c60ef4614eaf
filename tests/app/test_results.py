"""What handlers return: kept on request, shown, and waited for by whoever published."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import msgspec
import pytest

from redrive import (
    ConfigurationError,
    DeliveryFailedError,
    Event,
    NotFoundError,
    Operations,
    Receipt,
    Redrive,
    ResultTimeoutError,
    Snooze,
    Terminal,
    TransactionError,
    UsageError,
)
from redrive.stores.postgres.connection import read_address
from redrive.testing import Kit


def shop(url: str = "memory://", answer: Any = None, *, keep_result: bool = True) -> Redrive:  # noqa: ANN401 - anything
    app = Redrive(url)

    @app.handler("order.*", keep_result=keep_result)
    async def billing(event: Event[Any]) -> object:
        if isinstance(answer, Exception):
            raise answer
        return event.payload if answer is None else answer

    return app


async def test_what_a_handler_returned_is_kept_with_its_delivery(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        first = await app.publish("order.paid", {"invoice": [7, "ü"]})
        second = await app.publish("order.paid", 8, key="k")
        await kit.drain()

        assert await first.result("billing") == {"invoice": [7, "ü"]}
        assert await second.result("billing") == 8
        exchange = (await kit.operations.show(1)).delivery.exchange
        assert exchange is not None
        assert msgspec.json.decode(exchange.body) == {"invoice": [7, "ü"]}


async def test_it_can_be_waited_for(sqlite: str) -> None:
    app = shop(sqlite)
    async with app, app.worker():
        receipts = await asyncio.gather(*[app.publish("order.paid", one) for one in range(3)])

        assert await asyncio.gather(*[one.result("billing") for one in receipts]) == [0, 1, 2]


def test_it_can_be_waited_for_without_asyncio(sqlite: str) -> None:
    app = shop(sqlite)
    receipt = app.sync.publish("order.paid", 7)
    asyncio.run(app.drain())
    try:
        assert app.sync.result(receipt, "billing") == 7
        assert app.sync.operate(Operations.result, receipt.event_id, "billing") == 7
        with pytest.raises(NotFoundError, match="did you mean 'billing'"):
            app.sync.result(receipt, "biling")
    finally:
        app.sync.close()


async def test_each_item_of_a_batch_is_kept_with_its_own_delivery() -> None:
    app = Redrive("memory://")

    @app.handler("order.*", batch=3, keep_result=True)
    def billing(events: list[Event[int]]) -> list[object]:
        return [one.payload * 2 for one in events]

    async with Kit(app) as kit:
        receipts = [await app.publish("order.paid", number) for number in range(3)]
        await kit.drain()

        assert [await one.result("billing") for one in receipts] == [0, 2, 4]


async def test_what_is_not_to_be_kept_is_not() -> None:
    app = shop(answer={"invoice": 7}, keep_result=False)
    async with Kit(app) as kit:
        receipt = await app.publish("order.paid")
        await kit.drain()

        assert await receipt.result("billing") is None
        assert (await kit.operations.show(1)).delivery.exchange is None


@pytest.mark.parametrize(
    ("answer", "why"), [("x" * 70_000, "longer than 65,536"), (object(), "The payload is not")]
)
async def test_what_cannot_be_kept_is_told_and_the_delivery_has_succeeded(
    answer: object, why: str
) -> None:
    app = shop(answer=answer)
    async with Kit(app) as kit:
        receipt = await app.publish("order.paid")

        assert (await kit.drain()).delivered == 1
        with pytest.raises(UsageError, match=why):
            await receipt.result("billing")


async def test_a_delivery_that_failed_says_why() -> None:
    app = shop(answer=Terminal("no such order"))
    async with Kit(app) as kit:
        receipt = await app.publish("order.paid")
        await kit.drain()

        with pytest.raises(DeliveryFailedError, match=r"\(terminal\).*no such order.*dlq show 1"):
            await receipt.result("billing")


async def test_one_that_does_not_end_in_time_says_where_it_stands() -> None:
    app = shop(answer=Snooze("1h"))
    async with Kit(app) as kit:
        receipt = await app.publish("order.paid")
        await kit.drain()

        with pytest.raises(ResultTimeoutError, match=r"is pending.* It goes on"):
            await receipt.result("billing", timeout="0s")
        with pytest.raises(TimeoutError):
            await receipt.result("billing", timeout="0s")


async def test_it_is_refused_in_the_transaction_it_was_published_in(
    sqlite: str, postgres_url: str
) -> None:
    app = shop(sqlite)
    async with app, app.transaction() as transaction:
        receipt = await app.publish("order.paid", within=transaction)
        with pytest.raises(TransactionError):
            await receipt.result("billing")
    app = shop(postgres_url)
    connection = await asyncpg.connect(read_address(postgres_url).dsn)
    try:
        async with app, connection.transaction():
            receipt = await app.publish("order.paid", within=connection)
            with pytest.raises(TransactionError, match="has not committed"):
                await receipt.result("billing")
    finally:
        await connection.close()


async def test_who_was_not_given_the_event_has_no_result() -> None:
    app = shop()
    async with Kit(app):
        receipt = await app.publish("order.paid")

        with pytest.raises(NotFoundError, match="no destination of this event 'mail'"):
            await receipt.result("mail")
        with pytest.raises(NotFoundError, match="has no delivery to 'mail'"):
            await app.operations.result(receipt.event_id, "mail")
        bare = Receipt(event_id=receipt.event_id, destinations=("billing",))
        with pytest.raises(UsageError, match=r"app\.operations\.result"):
            await bare.result("billing")
        assert bare == receipt


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keep_result": "yes"}, "keep_result is 'yes'"),
        ({"keep_result": True, "transactional": True}, "cannot be kept"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Redrive("memory://").handler("order.*", **options)
