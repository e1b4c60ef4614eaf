"""The synchronous door: Django, Flask and scripts publish and operate without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redrive import (
    IdempotencyConflictError,
    NewEvent,
    Operations,
    Receipt,
    Redrive,
    StoreUnavailableError,
    Terminal,
    TransactionError,
    UsageError,
)
from redrive.testing import ScriptedDestination
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def app(store: str) -> Iterator[Redrive]:
    app = Redrive(store)
    app.handler("order.*")(ScriptedDestination("billing", [Terminal("no such customer")]))
    yield app
    app.sync.close()


def published(app: Redrive) -> list[str]:
    return [one.event.type for one in app.sync.operate(Operations.events, limit=1000)]


def test_a_script_publishes_without_an_event_loop(app: Redrive) -> None:
    receipt = app.sync.publish("order.paid", {"order": 42}, key="order-42")

    assert receipt.destinations == ("billing",)
    assert published(app) == ["order.paid"]


def test_a_script_publishes_many(app: Redrive) -> None:
    receipts = app.sync.publish_many([NewEvent(type="order.paid"), NewEvent(type="order.sent")])

    assert len(receipts) == 2
    assert published(app) == ["order.paid", "order.sent"]


def test_errors_come_out_where_the_call_was_made(app: Redrive) -> None:
    app.sync.publish("order.paid", 1, idempotency_key="1")

    with pytest.raises(IdempotencyConflictError):
        app.sync.publish("order.paid", 2, idempotency_key="1")


def test_a_web_application_publishes_from_its_request_threads(app: Redrive) -> None:
    """As under Flask or Django: the view is called in whichever thread the server has free."""

    def view(order: int, start_response: Callable[[str], None]) -> str:
        receipt = app.sync.publish("order.paid", {"order": order}, idempotency_key=str(order))
        start_response("202 Accepted")
        return receipt.event_id

    answers: list[str] = []
    with ThreadPoolExecutor(8) as server:
        ids = list(server.map(lambda order: view(order, answers.append), range(100)))

    assert answers == ["202 Accepted"] * 100
    assert len(set(ids)) == len(published(app)) == 100


def test_dead_letters_are_operated_on_without_an_event_loop(app: Redrive) -> None:
    app.sync.publish("order.paid")
    asyncio.run(worked(app))

    [dead] = app.sync.operate(Operations.dead_letters).deliveries
    changed = app.sync.operate(Operations.replay, [dead.id], by="ada", why="customer created")

    assert list(changed) == [dead.id]
    [entry] = app.sync.operate(Operations.audit)
    assert (entry.action, entry.by, entry.why) == ("replay", "ada", "customer created")


def test_an_operation_that_gives_many_answers_is_refused_with_the_one_that_gives_pages(
    app: Redrive,
) -> None:
    operate: Any = app.sync.operate

    with pytest.raises(UsageError, match=r"Operations\.export gives many.*Operations\.export_page"):
        operate(Operations.export)

    assert operate(Operations.export_page).letters == ()


async def worked(app: Redrive) -> None:
    async with app:
        await app.drain()


async def test_inside_an_event_loop_it_refuses_to_block(app: Redrive) -> None:
    with pytest.raises(UsageError, match=r"would block the event loop.*await app\.publish"):
        app.sync.publish("order.paid")
    with pytest.raises(UsageError, match="would block the event loop"):
        app.sync.operate(Operations.status)


async def test_in_a_thread_beside_an_event_loop_it_works(app: Redrive) -> None:
    receipt = await asyncio.to_thread(app.sync.publish, "order.paid")

    assert receipt.is_routed


def test_after_closing_the_next_call_opens_it_again(sqlite: str) -> None:
    app = Redrive(sqlite)
    app.sync.publish("order.paid")

    app.sync.close()
    app.sync.close()
    app.sync.publish("order.sent")

    assert published(app) == ["order.paid", "order.sent"]
    app.sync.close()


def test_a_transaction_commits_the_row_and_the_event_together(sqlite: str) -> None:
    app = Redrive(sqlite)

    with app.sync.transaction() as transaction:
        transaction.execute("CREATE TABLE orders (id INTEGER)")
        transaction.execute("INSERT INTO orders VALUES (42)")
        app.sync.publish("order.paid", within=transaction)

    with app.sync.transaction() as transaction:
        assert list(transaction.execute("SELECT id FROM orders")) == [(42,)]
    assert published(app) == ["order.paid"]
    app.sync.close()


def test_a_transaction_that_fails_leaves_neither_row_nor_event(sqlite: str) -> None:
    app = Redrive(sqlite)
    with app.sync.transaction() as transaction:
        transaction.execute("CREATE TABLE orders (id INTEGER)")

    def pay() -> None:
        with app.sync.transaction() as transaction:
            transaction.execute("INSERT INTO orders VALUES (42)")
            app.sync.publish("order.paid", within=transaction)
            raise LookupError

    with pytest.raises(LookupError):
        pay()

    with app.sync.transaction() as transaction:
        assert list(transaction.execute("SELECT id FROM orders")) == []
    assert published(app) == []
    app.sync.close()


def test_a_publish_past_the_open_transaction_is_refused_at_once(sqlite: str) -> None:
    """It would wait for a lock that this very thread holds."""
    app = Redrive(sqlite)

    with (
        app.sync.transaction(),
        pytest.raises(TransactionError, match="publish with within=, or after the block"),
    ):
        app.sync.publish("order.paid")

    app.sync.publish("order.paid")
    assert published(app) == ["order.paid"]
    app.sync.close()


def test_calls_beside_a_close_end_or_are_told_why_not(store: str) -> None:
    """Nobody hangs: ten threads call while another one closes, again and again."""
    app = Redrive(store)
    is_over = threading.Event()
    told: list[str] = []

    def call() -> int:
        done = 0
        while not is_over.is_set():
            try:
                app.sync.publish("order.paid")
                app.sync.operate(Operations.status)
                done += 1
            except StoreUnavailableError as error:
                told.append(str(error))
        return done

    with ThreadPoolExecutor(10) as threads:
        calls = [threads.submit(call) for _ in range(10)]
        for _ in range(15):
            app.sync.close()
        is_over.set()
        done = [one.result(timeout=PATIENCE_SECONDS) for one in calls]
    app.sync.close()

    assert all(done)
    assert {one.split(";")[0] for one in told if "is closed" not in one} == set()


async def test_a_call_beside_a_close_of_its_own_loop_ends_or_is_told_why_not(store: str) -> None:
    app = Redrive(store)

    for _ in range(8):
        publishing = [asyncio.ensure_future(app.publish("order.paid")) for _ in range(10)]
        await asyncio.gather(*publishing[:1])
        more = [asyncio.ensure_future(app.publish("order.paid")) for _ in range(10)]
        await app.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            ends = await asyncio.gather(*publishing, *more, return_exceptions=True)
        assert {type(one) for one in ends} <= {Receipt, StoreUnavailableError}
    await app.close()
