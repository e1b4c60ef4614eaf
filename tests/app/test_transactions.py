"""Transactions: the application's own rows and its events are kept together, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from redrive import (
    IdempotencyConflictError,
    NewEvent,
    Redrive,
    TransactionError,
)
from redrive.observer import Published, Written
from redrive.observers.prometheus import PrometheusObserver
from redrive.testing import Kit, ScriptedDestination
from tests.app.recorder import Recorder
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
async def app(sqlite: str) -> AsyncIterator[Redrive]:
    app = Redrive(sqlite)
    app.handler("order.*")(ScriptedDestination("billing"))
    async with app:
        async with app.transaction() as transaction:
            transaction.execute("CREATE TABLE orders (id INTEGER)")
        yield app


async def orders(app: Redrive) -> list[int]:
    async with app.transaction() as transaction:
        return [row[0] for row in transaction.execute("SELECT id FROM orders ORDER BY id")]


async def events(app: Redrive) -> list[str]:
    return [one.event.type for one in await app.operations.events()]


async def test_a_commit_keeps_the_row_and_the_event(app: Redrive) -> None:
    async with app.transaction() as transaction:
        transaction.execute("INSERT INTO orders VALUES (?)", (42,))
        receipt = await app.publish("order.paid", {"order": 42}, within=transaction)

    assert receipt.destinations == ("billing",)
    assert await orders(app) == [42]
    assert await events(app) == ["order.paid"]
    assert (await app.drain()).delivered == 1


async def test_a_publish_is_told_when_its_transaction_has_committed(app: Redrive) -> None:
    recorder, metrics = Recorder(), PrometheusObserver()
    app.observe(recorder)
    app.observe(metrics)

    async with app.transaction() as transaction:
        receipt = await app.publish("order.paid", within=transaction)
        before = recorder.of(Published)

    [published] = recorder.of(Published)
    assert before == []
    assert published.events == (("order.paid", receipt),)
    assert b"redrive_events_published_total 1.0" in metrics.render()
    assert recorder.of(Written) == []


async def test_a_publish_that_was_rolled_back_is_not_told(app: Redrive) -> None:
    recorder, metrics = Recorder(), PrometheusObserver()
    app.observe(recorder)
    app.observe(metrics)

    async def pay() -> None:
        async with app.transaction() as transaction:
            await app.publish("order.paid", within=transaction)
            raise LookupError

    with pytest.raises(LookupError):
        await pay()

    assert (recorder.of(Published), recorder.of(Written)) == ([], [])
    assert b"redrive_events_published_total 0.0" in metrics.render()


async def test_a_rollback_leaves_neither(app: Redrive) -> None:
    async def pay() -> None:
        async with app.transaction() as transaction:
            transaction.execute("INSERT INTO orders VALUES (?)", (42,))
            await app.publish("order.paid", {"order": 42}, within=transaction)
            raise LookupError

    with pytest.raises(LookupError):
        await pay()

    assert await orders(app) == []
    assert await events(app) == []
    assert (await app.drain()).attempts == 0


async def test_a_cancelled_task_leaves_neither(app: Redrive) -> None:
    published = asyncio.Event()

    async def pay() -> None:
        async with app.transaction() as transaction:
            transaction.execute("INSERT INTO orders VALUES (?)", (42,))
            await app.publish("order.paid", within=transaction)
            published.set()
            await asyncio.Event().wait()

    paying = asyncio.ensure_future(pay())
    await published.wait()
    paying.cancel()
    await asyncio.gather(paying, return_exceptions=True)

    assert await orders(app) == []
    assert await events(app) == []


async def test_many_events_join_it_too(app: Redrive) -> None:
    async with app.transaction() as transaction:
        transaction.executemany("INSERT INTO orders VALUES (?)", [(1,), (2,)])
        await app.publish_many(
            [NewEvent(type="order.paid"), NewEvent(type="order.sent")], within=transaction
        )

    assert await orders(app) == [1, 2]
    assert await events(app) == ["order.paid", "order.sent"]


async def test_a_refused_event_does_not_undo_the_rest_of_it(app: Redrive) -> None:
    await app.publish("order.paid", 1, idempotency_key="1")

    async with app.transaction() as transaction:
        transaction.execute("INSERT INTO orders VALUES (?)", (42,))
        with pytest.raises(IdempotencyConflictError):
            await app.publish("order.paid", 2, idempotency_key="1", within=transaction)
        await app.publish("order.sent", within=transaction)

    assert await orders(app) == [42]
    assert await events(app) == ["order.paid", "order.sent"]


async def test_nobody_sees_it_before_the_commit(app: Redrive) -> None:
    async with app.transaction() as transaction:
        await app.publish("order.paid", within=transaction)

        assert await events(app) == []


async def test_a_connection_of_the_standard_library_is_refused_with_the_reason(
    app: Redrive,
) -> None:
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(TransactionError, match="Two SQLite libraries in one process break"),
    ):
        await app.publish("order.paid", within=connection)

    assert await events(app) == []


async def test_anything_else_is_refused_by_its_name(app: Redrive) -> None:
    with pytest.raises(TransactionError, match="within= got str; on SQLite only a transaction"):
        await app.publish("order.paid", within="the transaction")

    assert await events(app) == []


async def test_a_publish_past_the_open_transaction_is_refused_at_once(app: Redrive) -> None:
    """It would wait for a lock that this very task holds."""
    async with app.transaction():
        with pytest.raises(TransactionError, match="publish with within=, or after the block"):
            await app.publish("order.paid")
        with pytest.raises(TransactionError, match="publish with within=, or after the block"):
            await app.publish_many([NewEvent(type="order.paid")])

    await app.publish("order.paid")
    assert await events(app) == ["order.paid"]


async def test_other_tasks_publish_while_one_is_open(app: Redrive) -> None:
    is_open, may_end = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with app.transaction() as transaction:
            is_open.set()
            await may_end.wait()
            await app.publish("order.held", within=transaction)

    async with asyncio.TaskGroup() as group:
        group.create_task(hold())
        await is_open.wait()
        other = group.create_task(app.publish("order.paid"))
        may_end.set()

    assert other.result().is_routed
    assert sorted(await events(app)) == ["order.held", "order.paid"]


async def test_a_task_begun_inside_may_publish_once_it_is_over(app: Redrive) -> None:
    is_over = asyncio.Event()

    async def later() -> None:
        await is_over.wait()
        await app.publish("order.paid")

    async with app.transaction():
        follow_up = asyncio.ensure_future(later())
    is_over.set()
    await follow_up

    assert await events(app) == ["order.paid"]


async def test_a_transaction_that_is_over_cannot_be_joined(app: Redrive) -> None:
    async with app.transaction() as transaction:
        pass

    with pytest.raises(TransactionError, match="is over"):
        await app.publish("order.paid", within=transaction)

    assert await events(app) == []


async def test_a_transaction_of_another_file_cannot_be_joined(app: Redrive, tmp_path: Path) -> None:
    """The event would be kept in that other file, where nobody looks for it."""
    async with Redrive(f"sqlite:///{tmp_path}/other.db") as other, other.transaction() as theirs:
        with pytest.raises(TransactionError, match="open the transaction with the same app"):
            await app.publish("order.paid", within=theirs)

    assert await events(app) == []


async def test_a_store_without_transactions_says_so() -> None:
    async with Kit(Redrive("memory://")) as kit:
        app = Redrive("memory://")
        kit.connect(app)

        with pytest.raises(TransactionError, match=r"app\.transaction\(\) needs sqlite"):
            async with app.transaction():
                pass
        with pytest.raises(TransactionError, match="does not tell this kit when it commits"):
            await app.publish("order.paid", within=object())

        kit.assert_nothing_published()


async def test_many_short_transactions_take_turns(app: Redrive) -> None:
    async def pay(order: int) -> None:
        async with app.transaction() as transaction:
            transaction.execute("INSERT INTO orders VALUES (?)", (order,))
            await app.publish("order.paid", {"order": order}, within=transaction)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(pay(order) for order in range(40)))

    assert await orders(app) == list(range(40))
    assert len(await events(app)) == 40


async def test_a_transaction_ends_while_others_fill_the_threads_of_the_loop(app: Redrive) -> None:
    """Those of `asyncio.to_thread`, which may all wait for this very transaction."""
    may_end = threading.Event()

    async with asyncio.timeout(PATIENCE_SECONDS):
        async with app.transaction() as transaction:
            waiting = [asyncio.ensure_future(asyncio.to_thread(may_end.wait)) for _ in range(64)]
            await app.publish("order.paid", within=transaction)
        async with app.worker():
            pass
        may_end.set()
        await asyncio.gather(*waiting)

    assert await events(app) == ["order.paid"]
