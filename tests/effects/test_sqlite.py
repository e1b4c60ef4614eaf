"""Effects on SQLite hold the write lock: one at a time, and nothing waits for itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import apsw
import pytest

from redrive import (
    Event,
    NewEvent,
    Redrive,
    Retry,
    StoreUnavailableError,
    TransactionError,
)
from redrive.app.config import parse_store
from redrive.model.settlement import Delivered
from redrive.stores.sqlite import SqliteStore
from redrive.testing import Kit
from tests.conformance import World, an_event
from tests.effects.ledger import Connection, Ledger

ONCE = Retry(max_attempts=1)


@pytest.fixture
async def ledger(sqlite: str) -> Ledger:
    made = Ledger(sqlite)
    await made.create()
    return made


async def test_a_publish_past_the_handlers_transaction_is_refused_at_once(
    sqlite: str, ledger: Ledger
) -> None:
    app, refused = Redrive(sqlite), []

    @app.handler("order.*", transactional=True)
    async def bill(event: Event[int], connection: Connection) -> None:
        await ledger.write(connection, event.payload)
        for act in (
            app.publish("invoice.sent"),
            app.publish_many([NewEvent(type="invoice.sent")]),
            app.operations.pause("bill", by="ada", why="test"),
        ):
            with pytest.raises(TransactionError) as error:
                await act
            refused.append(str(error.value))
        await app.publish("invoice.sent", within=connection)

    async with app:
        await app.publish("order.paid", 7)
        assert (await app.drain()).delivered == 1
        await app.publish("order.noted")  # and nothing of it is left behind

        assert "or of a transactional handler, is open here" in refused[0]
        assert "publish with within=, or after the block" in refused[1]
        assert "do this after the block" in refused[2]
        assert await ledger.numbers() == Counter({7: 1})


async def test_effects_of_several_destinations_go_one_at_a_time(
    sqlite: str, ledger: Ledger
) -> None:
    app, running, most = Redrive(sqlite), 0, 0

    def declare(name: str) -> None:
        @app.handler("order.*", name=name, transactional=True)
        async def apply(event: Event[int], connection: Connection) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.to_thread(lambda: None)
            await ledger.write(connection, event.payload)
            running -= 1

    for name in ("one", "two", "three"):
        declare(name)

    async with app:
        await app.publish_many([NewEvent(type="order.paid", payload=one) for one in range(5)])
        tally = await app.drain()

        assert (tally.delivered, tally.retried, most) == (15, 0, 1)
        assert await ledger.numbers() == Counter(dict.fromkeys(range(5), 3))


async def test_a_time_out_that_nobody_chose_is_cut_to_a_third_of_the_lease(
    sqlite: str, ledger: Ledger
) -> None:
    app = Redrive(sqlite, lease="6s")

    @app.handler("order.*", transactional=True, retry=ONCE)
    async def hang(event: Event[int], connection: Connection) -> None:
        begun.set()
        await asyncio.Event().wait()

    begun = asyncio.Event()
    async with Kit(app, store=sqlite) as kit:
        await app.publish("order.paid", 7)
        draining = asyncio.ensure_future(kit.drain())
        await begun.wait()
        while not draining.done():
            kit.clock.advance(timedelta(milliseconds=100))
            await asyncio.wait([draining], timeout=0.001)

        [letter] = kit.dead_letters()
        assert letter.fault is not None
        assert "2s" in letter.fault.message


@pytest.mark.parametrize("raises", [False, True], ids=["and returns", "and goes on"])
async def test_a_handler_that_closes_its_connection_has_failed(
    sqlite: str, *, raises: bool
) -> None:
    app = Redrive("memory://")

    @app.handler("order.*", transactional=True, retry=Retry(max_attempts=1))
    async def bill(event: Event[int], transaction: Connection) -> None:
        transaction.connection.close()
        if raises:
            raise ConnectionError("it was me")

    async with Kit(app, store=sqlite) as kit:
        await app.publish("order.paid", 7)
        await kit.drain()

        [letter] = kit.dead_letters()
        assert letter.fault is not None
        said = "it was me" if raises else "has ended the transaction that it was handed"
        assert said in letter.fault.message


async def test_an_effect_gives_up_waiting_for_a_writer_that_keeps_the_lock(sqlite: str) -> None:
    path = parse_store(sqlite).path
    assert path is not None
    async with World.opened(lambda clock: SqliteStore(path, clock=clock), history=20) as world:
        await world.publish(an_event())
        leased, span = await world.claim_one(), timedelta(milliseconds=20)
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreUnavailableError, match="the handler was not run"):
            await world.store.apply(leased, never, at_most=span)

        other.execute("ROLLBACK")
        other.close()
        assert not await world.settle(leased, Delivered())


async def never(connection: Connection) -> bool:
    raise AssertionError("it was run")
