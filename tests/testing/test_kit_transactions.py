"""In a kit as in life: a commit publishes, a rollback does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from redrive import (
    Event,
    IdempotencyConflictError,
    NewEvent,
    Operations,
    Redrive,
    Retry,
    Terminal,
    TransactionError,
    UsageError,
    VersionConflictError,
)
from redrive.testing import FakeTransaction, Kit, SyncKit

Begin = Callable[[], AbstractContextManager[object]]


def shop() -> Redrive:
    app = Redrive("sqlite:///never-made.db")

    @app.handler("order.*", name="billing", retry=Retry(max_attempts=2, base="1m", jitter="none"))
    def bill(event: Event[int]) -> None:
        if event.payload == 13:
            raise Terminal("unlucky")
        app.sync.publish("invoice.sent", event.payload)

    return app


@pytest.fixture(params=["fake", "session", "connection"])
def begin(request: pytest.FixtureRequest) -> Iterator[Begin]:
    """Open a transaction, without a database or with one of any kind."""
    engine = sqlalchemy.create_engine("sqlite://")
    begins: dict[str, Begin] = {
        "fake": FakeTransaction,
        "session": lambda: Session(engine),
        "connection": engine.connect,
    }
    yield begins[request.param]
    engine.dispose()


def end(transaction: object) -> None:
    transaction.commit()  # type: ignore[attr-defined]  # each of them has it


def test_a_commit_publishes(begin: Begin) -> None:
    app = shop()
    with SyncKit(app) as kit, begin() as transaction:
        receipt = app.sync.publish("order.paid", 1, within=transaction)
        app.sync.publish_many([NewEvent(type="order.sent", payload=2)], within=transaction)
        before = kit.published()
        end(transaction)

        assert receipt.destinations == ("billing",)
        assert before == []
        assert [one.type for one in kit.published()] == ["order.paid", "order.sent"]
        assert kit.drain().delivered == 2
        kit.assert_published("invoice.sent", times=2)


def test_a_rollback_publishes_nothing_and_the_next_transaction_is_another(begin: Begin) -> None:
    app = shop()
    with SyncKit(app) as kit, begin() as transaction:
        app.sync.publish("order.paid", 1, within=transaction)
        transaction.rollback()  # type: ignore[attr-defined]  # each of them has it
        app.sync.publish("order.paid", 2, within=transaction)
        end(transaction)

        assert [one.payload for one in kit.published()] == [2]


def test_a_block_that_fails_publishes_nothing() -> None:
    app = shop()
    with SyncKit(app) as kit:
        with suppress(LookupError), FakeTransaction() as transaction:
            app.sync.publish("order.paid", 1, within=transaction)
            raise LookupError

        kit.assert_nothing_published()


def test_keys_and_versions_count_within_a_transaction(begin: Begin) -> None:
    app = shop()
    with SyncKit(app) as kit, begin() as transaction:
        app.sync.publish("order.paid", 1, key="a", expected_version=0, within=transaction)
        app.sync.publish("order.sent", 2, key="a", expected_version=1, within=transaction)
        with pytest.raises(VersionConflictError):
            app.sync.publish("order.sent", 3, key="a", expected_version=1, within=transaction)
        app.sync.publish("order.paid", 4, idempotency_key="k", within=transaction)
        again = app.sync.publish("order.paid", 4, idempotency_key="k", within=transaction)
        with pytest.raises(IdempotencyConflictError):
            app.sync.publish("order.paid", 5, idempotency_key="k", within=transaction)
        end(transaction)

        assert again.is_duplicate
        assert [one.payload for one in kit.published()] == [1, 2, 4]


async def test_with_an_event_loop_too() -> None:
    app = shop()
    async with Kit(app) as kit:
        async with FakeTransaction() as transaction:
            await app.publish("order.paid", 1, within=transaction)
            kit.assert_nothing_published()

        kit.assert_published("order.paid", times=1)


def test_what_does_not_tell_of_its_commit_is_refused() -> None:
    app = shop()
    with SyncKit(app), pytest.raises(TransactionError, match="got object, which does not tell"):
        app.sync.publish("order.paid", within=object())


def test_without_an_event_loop_time_passes_and_people_act() -> None:
    app = shop()
    with SyncKit(app) as kit:
        billing = kit.script("billing", [ConnectionError("down"), "ok"])
        app.sync.publish("order.paid", 1)

        tally = kit.drain(until="1h")

        assert (tally.retried, tally.delivered) == (1, 1)
        assert len(billing.attempts) == 2
    with SyncKit(app) as kit:
        app.sync.publish("order.paid", 13)
        began = kit.clock.now()
        assert kit.run_for("1h").failed == 1
        assert (kit.clock.now() - began).total_seconds() == 3600
        (letter,) = kit.dead_letters()
        kit.script("billing")
        kit.operate(Operations.replay, [letter.id], by="ann")
        assert kit.drain().delivered == 1


async def test_beside_an_event_loop_the_other_kit_is_named() -> None:
    app = shop()
    kit = SyncKit(app)
    kit.open()

    with pytest.raises(UsageError, match="async with Kit"):
        kit.drain()

    kit.close()
