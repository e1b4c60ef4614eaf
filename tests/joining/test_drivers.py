"""With every driver: the row and the event are kept together, or not at all."""

from __future__ import annotations

import contextlib
from typing import Any

import asyncpg
import pytest

from redrive import (
    IdempotencyConflictError,
    NewEvent,
    PayloadError,
    Query,
    Redrive,
    TransactionError,
)
from redrive.model.delivery import Status
from redrive.observer import Published, Written
from redrive.observers.prometheus import PrometheusObserver
from redrive.testing import ScriptedDestination
from tests.app.recorder import Recorder
from tests.joining.drivers import Shop


async def test_a_commit_keeps_the_row_and_the_event_and_a_worker_delivers_it(shop: Shop) -> None:
    async with shop.transaction() as till:
        await till.execute(shop.insert(42))
        receipt = await till.publish("order.paid", {"order": 42}, key="order-42")

    assert receipt.destinations == ("billing",)
    assert await shop.orders() == [42]
    assert await shop.events() == 1
    assert (await shop.app.drain()).delivered == 1


async def test_a_rollback_leaves_neither(shop: Shop) -> None:
    async def pay() -> None:
        async with shop.transaction() as till:
            await till.execute(shop.insert(42))
            await till.publish("order.paid", {"order": 42}, idempotency_key="42", key="order-42")
            raise LookupError

    with pytest.raises(LookupError):
        await pay()

    assert await shop.orders() == []
    assert await shop.events() == 0
    assert (await shop.app.drain()).attempts == 0


@pytest.mark.parametrize("is_kept", [True, False], ids=["committed", "rolled back"])
async def test_what_may_be_rolled_back_is_told_as_written_and_not_as_published(
    shop: Shop, *, is_kept: bool
) -> None:
    """How a transaction ends that is not ours is not known, so nothing more is said."""
    recorder, metrics = Recorder(), PrometheusObserver()
    shop.app.observe(recorder)
    shop.app.observe(metrics)

    async def pay() -> None:
        async with shop.transaction() as till:
            await till.publish("order.paid")
            if not is_kept:
                raise LookupError

    with contextlib.suppress(LookupError):
        await pay()

    [written] = recorder.of(Written)
    assert [event_type for event_type, _ in written.events] == ["order.paid"]
    assert recorder.of(Published) == []
    counted = metrics.render()
    assert b"redrive_events_published_total 0.0" in counted
    assert b"redrive_events_written_total 1.0" in counted
    assert await shop.events() == is_kept


async def test_nobody_sees_it_before_the_commit(shop: Shop) -> None:
    async with shop.transaction() as till:
        await till.publish("order.paid")

        assert await shop.events() == 0
        assert (await shop.app.drain()).attempts == 0

    assert (await shop.app.drain()).delivered == 1


async def test_two_publishes_join_one_transaction(shop: Shop, billing: ScriptedDestination) -> None:
    async with shop.transaction() as till:
        await till.execute(shop.insert(1))
        await till.publish("order.placed", key="order-1")
        await till.execute(shop.insert(2))
        await till.publish("order.paid", key="order-1", due="1h")

    (later,) = [
        one
        for one in (await shop.app.operations.deliveries(Query(status=Status.PENDING))).deliveries
        if one.due > one.enqueued_at
    ]
    assert (await shop.app.drain()).delivered == 1
    assert await shop.orders() == [1, 2]
    assert [one.type for one in billing.received] == ["order.placed"]
    assert later.event_type == "order.paid"


async def test_many_events_join_it_at_once(shop: Shop) -> None:
    events = [
        NewEvent(type="order.paid", payload={"n": n}, key=f"order-{n % 3}", tenant="acme")
        for n in range(10)
    ]

    async with shop.transaction() as till:
        receipts = await till.publish_many([*events, NewEvent(type="nobody.wants")])

    assert [len(one.destinations) for one in receipts] == [1] * 10 + [0]
    assert (await shop.app.drain()).delivered == 10


async def test_a_known_key_gives_the_first_receipt(shop: Shop) -> None:
    async with shop.transaction() as till:
        first = await till.publish("order.paid", 1, idempotency_key="1", source="web")
    async with shop.transaction() as till:
        again = await till.publish("order.paid", 1, idempotency_key="1", source="web")
        twice = await till.publish("order.paid", 1, idempotency_key="1", source="web")

    assert {again.event_id, twice.event_id} == {first.event_id}
    assert again.is_duplicate
    assert await shop.events() == 1


async def test_a_conflict_undoes_nothing_else(shop: Shop) -> None:
    await shop.app.publish("order.paid", 1, idempotency_key="1")

    async with shop.transaction() as till:
        await till.execute(shop.insert(42))
        with pytest.raises(IdempotencyConflictError):
            await till.publish_many(
                [
                    NewEvent(type="order.paid", payload=2, idempotency_key="2"),
                    NewEvent(type="order.paid", payload=2, idempotency_key="1"),
                ]
            )
        with pytest.raises(PayloadError):
            await till.publish("order.paid", object())
        await till.publish("order.sent", idempotency_key="2")

    assert await shop.orders() == [42]
    assert await shop.events() == 2


async def test_an_error_of_the_database_leaves_nothing_half_and_the_rest_goes_on(
    shop: Shop,
) -> None:
    """Somebody else holds the key's row, and this transaction does not wait for long."""
    async with Holding(shop, "order-1"), shop.transaction() as till:
        await till.execute("SET LOCAL lock_timeout = '50ms'")
        await till.execute(shop.insert(42))
        with pytest.raises(Exception, match="lock timeout") as refused:
            await till.publish("order.paid", idempotency_key="1", key="order-1")
        await till.publish("order.sent", idempotency_key="2")

    assert not getattr(refused.value, "__notes__", [])
    assert await shop.orders() == [42]
    receipt = await shop.app.publish("order.paid", idempotency_key="1", key="order-1")
    assert not receipt.is_duplicate


class Holding:
    """A transaction under way that has published to a key."""

    def __init__(self, shop: Shop, key: str) -> None:
        self._shop = shop
        self._key = key

    async def __aenter__(self) -> None:
        self._connection = await asyncpg.connect(self._shop.url)
        self._transaction = self._connection.transaction()
        await self._transaction.start()
        await self._shop.app.publish("order.held", key=self._key, within=self._connection)

    async def __aexit__(self, *_: object) -> None:
        await self._transaction.rollback()
        await self._connection.close()


async def test_a_connection_that_is_not_in_a_transaction_is_refused(shop: Shop) -> None:
    async with shop.autocommit() as till:
        with pytest.raises(TransactionError, match=r"is not in a transaction.*(inside|begin)"):
            await till.publish("order.paid")
        await till.execute(shop.insert(42))

    assert await shop.orders() == [42]
    assert await shop.events() == 0


async def test_a_transaction_that_has_failed_is_refused(shop: Shop) -> None:
    async def pay() -> None:
        async with shop.transaction() as till:
            with pytest.raises(Exception, match="division by zero"):
                await till.execute("SELECT 1/0")
            await till.publish("order.paid")

    with pytest.raises(TransactionError, match="has failed before; roll it back"):
        await pay()

    assert await shop.events() == 0


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_an_old_snapshot_publishes_by_the_routes_that_it_shows(
    shop: Shop, isolation: str
) -> None:
    """It can never see the newer ones, so to ask again would go on for ever."""
    async with shop.transaction(isolation) as till:
        await till.execute(f"SELECT count(*) FROM {shop.name}.orders")
        other = Redrive(shop.app.settings.store)
        other.handler("*")(ScriptedDestination("archive"))
        async with other:
            pass  # its destination is registered now
        newer = await shop.app.publish("order.paid")
        older = await till.publish("order.paid", key="order-1")
    after = await shop.app.publish("order.paid")

    assert older.destinations == ("billing",)
    assert newer.destinations == after.destinations == ("archive", "billing")


async def test_payload_and_attributes_arrive_as_they_were_given(
    shop: Shop, billing: ScriptedDestination
) -> None:
    payload: dict[str, Any] = {
        "text": "50 % of $1 'in' \"{a,b}\" \\ ü 😀 \x00",
        "nothing": None,
        "lists": [[]],
    }
    given: dict[str, Any] = {
        "key": "a'b\"c{},\\%(p1)s",
        "tenant": "über, {NULL}",
        "source": "%s $1",
        "idempotency_key": "NULL",
        "headers": {"a": "%"},
        "priority": -3,
    }

    async with shop.transaction() as till:
        receipt = await till.publish("order.paid", payload, deadline="1h", **given)
    await shop.app.drain()

    (event,) = billing.received
    assert event.id == receipt.event_id
    assert event.payload == payload
    assert {name: getattr(event, name) for name in given} == given
