"""Connections to PostgreSQL are lent to one caller at a time, in order, and only while of use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import asyncpg
import pytest

from redrive import Event, Redrive
from redrive.clock import SystemClock
from redrive.errors import StoreUnavailableError
from redrive.model.delivery import Status
from redrive.store import Query
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres import pool as pools
from redrive.stores.postgres.connection import Address, Connection, read_address
from redrive.stores.postgres.pool import Pool
from tests.servers.proxy import proxying
from tests.waiting import eventually

clock = SystemClock()


@pytest.fixture
def address(postgres_url: str) -> Address:
    return read_address(f"{postgres_url}&pool=2")


@pytest.fixture
async def pool(address: Address, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pool]:
    pool = Pool(address, is_proxied=False)
    yield pool
    # Nobody gives back what a test has left lent.
    monkeypatch.setattr(pools, "_FAREWELL_SECONDS", 0.1)
    await pool.close()


@pytest.fixture
async def person(address: Address) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(address.dsn)
    yield connection
    await connection.close()


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    await eventually(is_so, what="so")


async def sessions(person: asyncpg.Connection, *processes: int) -> int:
    count: int = await person.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1::integer[])", processes
    )
    return count


async def begin(line: Connection) -> None:
    await line.execute("SELECT 1")


async def test_an_idle_connection_is_lent_again_without_waiting(pool: Pool) -> None:
    line = await pool.acquire()
    pool.release(line)

    lending = pool.acquire()
    with pytest.raises(StopIteration) as returned:
        lending.send(None)

    assert returned.value.value is line


async def test_the_connection_that_a_store_opens_with_is_the_first_of_its_pool(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[asyncpg.Connection] = []
    connect = asyncpg.connect

    async def noted(*args: object, **options: object) -> asyncpg.Connection:
        opened.append(await connect(*args, **options))
        return opened[-1]

    monkeypatch.setattr(asyncpg, "connect", noted)
    store = PostgresStore(postgres_url, clock=clock)
    await store.open()
    await store.figures()

    [only] = opened
    for name, value in pools.PLANS.items():
        assert await only.fetchval(f"SHOW {name}") == value
    await store.close()


async def test_no_more_are_open_than_the_url_allows(pool: Pool) -> None:
    one, other = await pool.acquire(), await pool.acquire()
    third = asyncio.ensure_future(pool.acquire())
    await begin(one)

    assert one is not other
    assert not third.done()
    pool.release(other)
    assert await third is other


async def test_who_waits_is_served_in_order(pool: Pool) -> None:
    held = [await pool.acquire(), await pool.acquire()]
    served: list[int] = []

    async def use(number: int) -> None:
        line = await pool.acquire()
        served.append(number)
        await begin(line)
        pool.release(line)

    waiting = [asyncio.ensure_future(use(number)) for number in range(6)]
    await begin(held[0])
    for line in held:
        pool.release(line)
    latecomer = asyncio.ensure_future(use(6))
    await asyncio.gather(*waiting, latecomer)

    assert served == list(range(7))


async def test_who_gives_up_waiting_passes_on_what_came_too_late(pool: Pool) -> None:
    one, other = await pool.acquire(), await pool.acquire()
    first, second = (asyncio.ensure_future(pool.acquire()) for _ in range(2))
    await begin(one)

    pool.release(other)
    first.cancel()

    assert await second is other
    assert first.cancelled()


async def test_who_gives_up_waiting_leaves_no_place_taken(pool: Pool) -> None:
    one, other = await pool.acquire(), await pool.acquire()
    first, second = (asyncio.ensure_future(pool.acquire()) for _ in range(2))
    await begin(one)

    pools.drop(other)
    pool.release(other)  # the first may open another one now
    first.cancel()

    assert not (await second).is_closed()


async def test_waiting_for_a_connection_ends(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = await pool.acquire(), await pool.acquire()
    monkeypatch.setattr(pools, "CONNECT_SECONDS", 0.05)

    with pytest.raises(TimeoutError):
        await pool.acquire()

    pool.release(one)
    assert await pool.acquire() is one


async def test_a_connection_that_died_at_hand_is_replaced(
    pool: Pool, person: asyncpg.Connection
) -> None:
    line = await pool.acquire()
    pool.release(line)
    await person.execute("SELECT pg_terminate_backend($1, 5000)", line.get_server_pid())

    fresh = await pool.acquire_begun(begin)

    assert fresh is not line
    assert not fresh.is_closed()


async def test_after_one_that_fell_silent_all_are_replaced(pool: Pool) -> None:
    one, other = await pool.acquire(), await pool.acquire()
    pool.release(other)

    pool.distrust(TimeoutError())
    pool.release(one)
    fresh = [await pool.acquire(), await pool.acquire()]

    assert one.is_closed()
    assert other.is_closed()
    assert not [line for line in fresh if line.is_closed()]


async def test_other_errors_leave_connections_at_hand(pool: Pool) -> None:
    line = await pool.acquire()
    pool.release(line)

    pool.distrust(ValueError())

    assert await pool.acquire() is line


async def test_what_nobody_needs_is_closed_after_a_while(
    pool: Pool, person: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_REST_SECONDS", 0.2)
    used, unused = await pool.acquire(), await pool.acquire()
    processes = used.get_server_pid(), unused.get_server_pid()
    pool.release(unused)
    pool.release(used)

    async def is_one_left() -> bool:
        line = await pool.acquire()
        await begin(line)
        pool.release(line)
        assert line is used
        return await sessions(person, *processes) == 1

    async def are_gone() -> bool:
        return await sessions(person, *processes) == 0

    await until(is_one_left)
    await until(are_gone)


async def test_closing_waits_for_what_is_lent(pool: Pool) -> None:
    line, idle = await pool.acquire(), await pool.acquire()
    pool.release(idle)
    closing = asyncio.ensure_future(pool.close())
    await begin(line)

    assert not closing.done()
    pool.release(line)
    await closing

    assert line.is_closed()
    assert idle.is_closed()


async def test_closing_does_not_wait_for_long(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "_FAREWELL_SECONDS", 0.05)
    line, _ = await pool.acquire(), await pool.acquire()
    waiting = asyncio.ensure_future(pool.acquire())
    await begin(line)

    await pool.close()

    assert line.is_closed()
    with pytest.raises(asyncpg.InterfaceError, match="closed"):
        await waiting
    with pytest.raises(asyncpg.InterfaceError, match="closed"):
        await pool.acquire()


async def test_a_server_that_cannot_be_reached_takes_no_place(address: Address) -> None:
    parts = urlsplit(address.dsn)
    async with proxying(parts.hostname or "", parts.port or 5432) as proxy:
        there = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl()
        pool = Pool(read_address(f"{there}?pool=2"), is_proxied=False)
        for _ in range(3):
            proxy.cut_after(1)
            with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
                await pool.acquire()
        line = await pool.acquire()
        pool.release(line)
        await pool.close()


async def test_a_cancelled_caller_leaves_nothing_under_way(
    postgres_url: str, person: asyncpg.Connection
) -> None:
    store = PostgresStore(f"{postgres_url}&pool=2", clock=clock)
    await store.open()
    run = store._statement  # noqa: SLF001 - no public act takes long enough
    sleeping = asyncio.ensure_future(run("SELECT pg_sleep(100), 'for long'"))

    async def sleeps() -> bool:
        return bool(
            await person.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%for long%' "
                "AND wait_event = 'PgSleep'"
            )
        )

    await until(sleeps)
    sleeping.cancel()
    await asyncio.gather(sleeping, return_exceptions=True)
    answers = await asyncio.gather(*(run(f"SELECT {n}") for n in range(20)))
    await store.close()

    assert [rows[0][0] for rows in answers] == list(range(20))


async def test_a_closed_store_says_so(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, clock=clock)
    await store.open()
    await store.close()

    with pytest.raises(StoreUnavailableError, match="is closed"):
        await store.routes()


@pytest.mark.parametrize(
    ("query", "name"), [("", "redrive"), ("&application_name=till", "till")], ids=["ours", "theirs"]
)
async def test_sessions_tell_whose_they_are(
    postgres_url: str, query: str, name: str, person: asyncpg.Connection
) -> None:
    store = PostgresStore(f"{postgres_url}{query}", clock=clock)
    await store.open()
    await store.routes()

    names = await person.fetch(
        "SELECT DISTINCT application_name FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' AND datname = current_database() "
        "AND application_name <> ''"
    )
    await store.close()

    assert name in [one[0] for one in names]


async def test_a_handler_cannot_use_its_connection_afterwards(postgres_url: str) -> None:
    """Somebody else works with it by then."""
    app = Redrive(postgres_url)
    kept: list[asyncpg.Connection] = []

    @app.handler("order.*", transactional=True)
    async def bill(event: Event[int], connection: asyncpg.Connection) -> None:
        await connection.fetchval("SELECT 1")
        kept.append(connection)

    async with app:
        await app.publish("order.paid", 1)
        await app.drain()

        with pytest.raises(asyncpg.InterfaceError, match="released"):
            await kept[0].fetchval("SELECT 1")
        page = await app.operations.deliveries(Query(status=Status.DELIVERED))
        assert len(page.deliveries) == 1


async def asked(pool: Pool, statement: str, value: object) -> list[str]:
    """Return all that a new connection asks the server in order to run one statement."""
    line = await pool.acquire()
    questions: list[str] = []
    with line.query_logger(lambda record: questions.append(record.query)):
        assert await line.fetchval(statement, value) == value
    await line.close()
    pool.release(line)
    return questions


async def test_what_an_array_is_is_not_asked_on_every_connection(pool: Pool) -> None:
    """The driver's question takes a server longer than what it is asked for."""
    statement = "SELECT $1::bigint[]"
    await asked(pool, statement, [1, 2])

    assert await asked(pool, statement, [3]) == [statement]


async def test_a_type_that_another_server_does_not_know_is_always_asked_for(
    pool: Pool, person: asyncpg.Connection, address: Address
) -> None:
    await person.execute(f"CREATE TYPE {address.schema}.size AS ENUM ('small', 'large')")
    statement = f"SELECT $1::{address.schema}.size[]"
    try:
        first = await asked(pool, statement, ["small"])

        assert await asked(pool, statement, ["large"]) == first != [statement]
    finally:
        await person.execute(f"DROP TYPE {address.schema}.size")


async def test_a_quick_transaction_keeps_its_plans(pool: Pool) -> None:
    connection = await pool.acquire()

    connection.took(0.05, now=10)

    assert not connection.wants_new_plans


async def test_what_stays_slow_is_planned_anew_now_and_then(pool: Pool) -> None:
    """It may be slow for other reasons; planning each time would make it slower."""
    connection = await pool.acquire()
    renewed = 0

    for tenth in range(100, 160):
        connection.took(0.5, now=tenth / 10)
        renewed += connection.wants_new_plans
        connection.wants_new_plans = False

    assert renewed == 3
