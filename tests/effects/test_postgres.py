"""Effects on PostgreSQL: connections, what a handler may do with one, and lines that break."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from redrive import Event, NewEvent, Query, Redrive, Retry
from redrive.model.delivery import Status
from redrive.model.settlement import FailureReason
from redrive.observer import LeasesLost, SettlementsRefused, StoreLost
from redrive.stores.postgres.connection import read_address
from tests.app.recorder import Recorder
from tests.effects.ledger import Connection, Ledger
from tests.servers.proxy import Proxy, proxying
from tests.waiting import PATIENCE_SECONDS, eventually

ONCE = Retry(max_attempts=1)
AT_ONCE = Retry(max_attempts=5, base="0s", jitter="none")


@pytest.fixture
async def ledger(postgres_url: str) -> Ledger:
    made = Ledger(postgres_url)
    await made.create()
    return made


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[Proxy]:
    parts = urlsplit(postgres_url)
    assert parts.hostname is not None
    async with proxying(parts.hostname, parts.port or 5432) as proxy:
        yield proxy


def through(proxy: Proxy, url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}"))


async def only_letter(app: Redrive) -> tuple[str, str, str]:
    [letter] = (await app.operations.deliveries(Query(status=Status.FAILED))).deliveries
    assert letter.fault is not None
    return str(letter.reason), letter.fault.error_class, letter.fault.message


async def test_effects_leave_connections_for_everybody_else(
    postgres_url: str, ledger: Ledger
) -> None:
    """With a pool of two, one effect waits for work that needs claims and settlements."""
    app = Redrive(f"{postgres_url}&pool=2", concurrency=50, poll="100ms")
    running, most, told = 0, 0, asyncio.Event()

    @app.handler("order.*", transactional=True, retry=AT_ONCE)
    async def bill(event: Event[int], connection: Connection) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await ledger.write(connection, event.payload)
        if event.payload == 0:
            await app.publish("bell.rung")
            await told.wait()
        running -= 1

    @app.handler("bell.*")
    async def tell(event: Event[None]) -> None:
        told.set()

    recorder = Recorder()
    app.observe(recorder)
    async with app:
        await app.publish_many([NewEvent(type="order.paid", payload=one) for one in range(20)])
        tally = await app.drain()

        assert (tally.delivered, tally.refused, most) == (21, 0, 1)
        assert not recorder.of(LeasesLost)
        assert await ledger.numbers() == Counter(range(20))


async def test_a_handler_may_use_savepoints_of_its_own(postgres_url: str, ledger: Ledger) -> None:
    app = Redrive(postgres_url)

    @app.handler("order.*", transactional=True)
    async def bill(event: Event[int], connection: Connection) -> None:
        with suppress(asyncpg.UndefinedTableError):
            async with connection.transaction():
                await ledger.write(connection, -1)
                await connection.execute("INSERT INTO nowhere VALUES (1)")
        await ledger.write(connection, event.payload)

    async with app:
        await app.publish("order.paid", 7)

        assert (await app.drain()).delivered == 1
        assert await ledger.numbers() == Counter({7: 1})


async def test_a_heartbeat_is_no_conflict_where_old_snapshots_are_the_rule(
    postgres_url: str, ledger: Ledger
) -> None:
    app = Redrive(f"{postgres_url}&default_transaction_isolation=repeatable%20read")
    address = read_address(postgres_url)
    calls = 0

    @app.handler("order.*", transactional=True, retry=AT_ONCE)
    async def bill(event: Event[int], connection: Connection) -> None:
        nonlocal calls
        calls += 1
        await ledger.write(connection, event.payload)
        if calls < 3:  # as a heartbeat does
            beating = await asyncpg.connect(address.dsn)
            await beating.execute(
                f"UPDATE {address.schema}.deliveries SET lease_until = lease_until"
            )
            await beating.close()

    async with app:
        await app.publish("order.paid", 7)

        assert (await app.drain()).delivered == 1
        assert calls == 1


async def test_a_handler_that_goes_on_after_an_error_is_told_so(
    postgres_url: str, ledger: Ledger
) -> None:
    app = Redrive(postgres_url)

    @app.handler("order.*", transactional=True, retry=ONCE)
    async def bill(event: Event[int], connection: Connection) -> None:
        await ledger.write(connection, event.payload)
        with pytest.raises(asyncpg.UndefinedTableError):
            await connection.execute("INSERT INTO nowhere VALUES (1)")

    async with app:
        await app.publish("order.paid", 7)
        await app.drain()

        reason, _, message = await only_letter(app)
        assert reason == FailureReason.EXHAUSTED
        assert "went on after the database had refused a statement" in message
        assert await ledger.numbers() == Counter()


async def test_a_constraint_that_objects_at_the_commit_is_the_handlers_failure(
    postgres_url: str, ledger: Ledger
) -> None:
    await ledger.execute(
        f"ALTER TABLE {ledger.table} ADD UNIQUE (number) DEFERRABLE INITIALLY DEFERRED"
    )
    app = Redrive(postgres_url)

    @app.handler("order.*", transactional=True)
    async def bill(event: Event[int], connection: Connection) -> None:
        await ledger.write(connection, event.payload)
        await ledger.write(connection, event.payload)

    async with app:
        await app.publish("order.paid", 7)
        await app.drain()

        reason, error_class, _ = await only_letter(app)
        assert reason == FailureReason.TERMINAL
        assert error_class.endswith("UniqueViolationError")
        assert await ledger.numbers() == Counter()


async def test_what_a_handler_sets_on_its_connection_does_not_stay(
    postgres_url: str, ledger: Ledger
) -> None:
    app = Redrive(f"{postgres_url}&pool=2")
    seen: list[str] = []

    @app.handler("order.*", transactional=True)
    async def bill(event: Event[int], connection: Connection) -> None:
        seen.append(await connection.fetchval("SHOW search_path"))
        await connection.execute("SET search_path TO nowhere")
        await ledger.write(connection, event.payload)

    async with app:
        for number in range(3):
            await app.publish("order.paid", number)
            await app.drain()

        assert len(seen) == 3
        assert "nowhere" not in seen


async def test_a_statement_that_takes_too_long_holds_nothing_afterwards(
    postgres_url: str, ledger: Ledger
) -> None:
    """The server must hear of the time-out: the next try needs the same inbox record."""
    app, tries = Redrive(postgres_url), 0

    @app.handler("order.*", transactional=True, timeout="2s", retry=AT_ONCE)
    async def bill(event: Event[int], connection: Connection) -> None:
        nonlocal tries
        tries += 1
        await ledger.write(connection, event.payload)
        if tries == 1:
            await connection.execute("SELECT pg_sleep(100)")

    async with app:
        await app.publish("order.paid", 7)
        tally = await app.drain()

        assert (tally.retried, tally.delivered, tries) == (1, 1, 2)
        assert await ledger.numbers() == Counter({7: 1})


async def test_a_connection_that_is_lost_under_a_handler_costs_no_attempt(
    postgres_url: str, ledger: Ledger
) -> None:
    app, tries = Redrive(postgres_url), 0

    @app.handler("order.*", transactional=True, retry=AT_ONCE)
    async def bill(event: Event[int], connection: Connection) -> None:
        nonlocal tries
        tries += 1
        await ledger.write(connection, event.payload)
        if tries == 1:
            backend = await connection.fetchval("SELECT pg_backend_pid()")
            await ledger.execute(f"SELECT pg_terminate_backend({backend}, 5000)")
            await connection.fetchval("SELECT 1")

    async with app:
        await app.publish("order.paid", 7)
        tally = await app.drain()

        assert (tally.snoozed, tally.delivered, tally.retried) == (1, 1, 0)
        assert await ledger.numbers() == Counter({7: 1})
        [delivered] = (await app.operations.deliveries(Query(status=Status.DELIVERED))).deliveries
        assert (delivered.attempts, delivered.crashes) == (1, 0)


@pytest.mark.parametrize("raises", [False, True], ids=["and returns", "and goes on"])
@pytest.mark.parametrize("way", ["close", "terminate"])
async def test_a_handler_that_closes_its_connection_has_failed(
    postgres_url: str, ledger: Ledger, way: str, *, raises: bool
) -> None:
    """That the connection is gone is no outage: trying for ever would not bring it back."""
    app, recorder, tries = Redrive(postgres_url), Recorder(), 0
    app.observe(recorder)

    @app.handler("order.*", transactional=True, retry=Retry(max_attempts=2, base="0s"))
    async def bill(event: Event[int], connection: Connection) -> None:
        nonlocal tries
        tries += 1
        await ledger.write(connection, event.payload)
        closed = getattr(connection, way)()
        if closed is not None:
            await closed
        if raises:
            await ledger.write(connection, event.payload)

    async with asyncio.timeout(PATIENCE_SECONDS), app:
        await app.publish("order.paid", 7)
        tally = await app.drain()

        assert (tally.retried, tally.failed, tries) == (1, 1, 2)
        reason, error_class, message = await only_letter(app)
        assert (reason, error_class) == ("exhausted", "redrive.errors.TransactionError")
        assert "The handler has closed the connection that it was handed" in message
        assert await ledger.numbers() == Counter()
        assert not recorder.of(StoreLost)


async def test_a_commit_whose_answer_is_lost_is_not_applied_again(
    postgres_url: str, ledger: Ledger, proxy: Proxy
) -> None:
    """The server is in the middle of the commit when the line breaks, and finishes it."""
    schema = read_address(postgres_url).schema
    await ledger.execute(
        f"CREATE OR REPLACE FUNCTION {schema}.dawdle() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END $$"
    )
    await ledger.execute(
        f"CREATE CONSTRAINT TRIGGER dawdling AFTER INSERT ON {ledger.table} "
        f"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.dawdle()"
    )
    app, recorder, tries = Redrive(through(proxy, postgres_url), poll="100ms"), Recorder(), 0
    app.observe(recorder)

    @app.handler("order.*", transactional=True, retry=AT_ONCE)
    async def bill(event: Event[int], connection: Connection) -> None:
        nonlocal tries
        tries += 1
        await ledger.write(connection, event.payload)

    obstacle = await asyncpg.connect(read_address(postgres_url).dsn)
    try:
        await obstacle.execute("SELECT pg_advisory_lock(4711)")
        async with app:
            await app.publish("order.paid", 7)
            async with app.worker():
                await eventually(
                    lambda: obstacle.fetchval(
                        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                    ),
                    what="the commit dawdles",
                )
                proxy.reset()
                await obstacle.execute("SELECT pg_advisory_unlock(4711)")
                await recorder.wait_for(SettlementsRefused)

            assert tries == 1
            assert await ledger.numbers() == Counter({7: 1})
            delivered = await app.operations.deliveries(Query(status=Status.DELIVERED))
            assert len(delivered.deliveries) == 1
    finally:
        await obstacle.close()
