"""The log on PostgreSQL: writers that commit in another order than they took their positions."""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import pytest

from redrive import NewEvent, Receipt, Redrive, VersionConflictError
from redrive.model.position import LOG_START
from redrive.store import LoggedEvent
from redrive.stores.postgres.connection import Address, named, read_address
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sealed import PLAIN
from redrive.stores.sql.log import _READ as READ
from redrive.stores.sql.log import read_events
from tests.waiting import PATIENCE_SECONDS

WRITERS = 3
_IS_BLOCKED = "SELECT cardinality(pg_blocking_pids($1)) > 0"


@pytest.fixture
def address(postgres_url: str) -> Address:
    return read_address(postgres_url)


@pytest.fixture
async def app(postgres_url: str) -> AsyncIterator[Redrive]:
    app = Redrive(postgres_url)
    app.handler("order.*", name="ledger", order="park")(lambda _: None)
    async with app:
        yield app


class Writer:
    """Somebody with a connection of their own, who takes one step after the other."""

    def __init__(self, app: Redrive, connection: "asyncpg.Connection[Any]") -> None:
        self.connection = connection
        self.receipts: list[Receipt] = []
        self.open = 0
        self._app = app
        self._orders: asyncio.Queue[Callable[[], Coroutine[Any, Any, None]]] = asyncio.Queue()

    async def run(self) -> None:
        while True:
            order = await self._orders.get()
            await order()
            self.open -= 1

    def tell(self, order: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.open += 1
        self._orders.put_nowait(order)

    async def begin(self, *, is_counted: bool) -> None:
        """Begin; who is counted at once has an earlier number than whoever is counted later."""
        self.receipts = []
        counted = "; SELECT pg_current_xact_id()" if is_counted else ""
        await self.connection.execute(f"BEGIN{counted}")

    async def publish(self, key: str | None) -> None:
        receipt = await self._app.publish("order.paid", key=key, within=self.connection)
        self.receipts.append(receipt)

    async def commit(self) -> None:
        await self.connection.execute("COMMIT")

    async def roll_back(self) -> None:
        await self.connection.execute("ROLLBACK")
        self.receipts = []


class Crowd:
    """Three writers, and somebody who sees whether they wait for each other."""

    def __init__(self, writers: list[Writer], observer: PostgresSession) -> None:
        self.writers = writers
        self._link = observer

    @classmethod
    @asynccontextmanager
    async def gathered(cls, app: Redrive, address: Address) -> AsyncIterator["Crowd"]:
        connections = [await asyncpg.connect(address.dsn) for _ in range(WRITERS + 1)]
        observer = PostgresSession(connections[0], address.schema, PLAIN)
        crowd = cls([Writer(app, one) for one in connections[1:]], observer)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.run()) for one in crowd.writers]
            yield crowd
            for task in tasks:
                task.cancel()
        for one in connections:
            await one.close()

    async def rest(self) -> None:
        """Wait until each has done what it was told, or waits for another's commit."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while busy := [one for one in self.writers if one.open]:
                if all([await self._is_blocked(one) for one in busy]):
                    return

    async def read_on(self, read: list[LoggedEvent]) -> None:
        """Read as the store does, with a connection of its own at hand."""
        after = read[-1].position if read else LOG_START
        read += (await read_events(self._link, after=after, limit=50)).events

    async def _is_blocked(self, writer: Writer) -> bool:
        pid = writer.connection.get_server_pid()
        return bool(await self._link.value(_IS_BLOCKED, pid))


def orders_of_steps(steps: int) -> Iterator[tuple[int, ...]]:
    """Return every order in which the writers can take so many steps each."""
    each = [number for number in range(WRITERS) for _ in range(steps)]
    yield from sorted(set(itertools.permutations(each)))


async def read_on(app: Redrive, read: list[LoggedEvent], *, limit: int = 50) -> None:
    after = read[-1].position if read else LOG_START
    read += await app.operations.events(after=after, limit=limit)


@pytest.mark.parametrize(
    ("keys", "undone", "is_early"),
    [
        ("...", None, False),
        ("...", 0, True),
        ("aaa", None, True),
        ("aaa", 0, False),
        ("aab", None, True),
        ("aab", 0, True),
    ],
)
async def test_no_interleaving_of_three_writers_hides_an_event(
    app: Redrive, address: Address, keys: str, undone: int | None, *, is_early: bool
) -> None:
    """Each takes a position and commits later, in every order, and somebody reads in between.

    A dot is an event without a key; the one who is undone rolls back in the end.
    """
    read: list[LoggedEvent] = []
    expected: list[str] = []
    async with Crowd.gathered(app, address) as crowd:
        for round_number, order in enumerate(orders_of_steps(2)):
            for one in crowd.writers:
                await one.begin(is_counted=is_early)
            steps = [
                iter(
                    (
                        partial(one.publish, None if key == "." else f"{key} {round_number}"),
                        one.roll_back if number == undone else one.commit,
                    )
                )
                for number, (one, key) in enumerate(zip(crowd.writers, keys, strict=True))
            ]
            for number in order:
                crowd.writers[number].tell(next(steps[number]))
                await crowd.rest()
                await crowd.read_on(read)
            expected += [one.event_id for writer in crowd.writers for one in writer.receipts]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(read) < len(expected):
            await read_on(app, read)

    again: list[LoggedEvent] = []
    while len(again) < len(read):
        await read_on(app, again, limit=7)
    assert Counter(one.event.id for one in read) == Counter(expected)
    assert again == read
    for key in {one.event.key for one in read} - {None}:
        versions = [one.version for one in read if one.event.key == key]
        assert versions == list(range(1, len(versions) + 1))


async def test_an_event_waits_for_whoever_began_before_it(app: Redrive, address: Address) -> None:
    connection = await asyncpg.connect(address.dsn)
    async with connection.transaction():
        early = await app.publish("order.paid", 1, within=connection)
        late = await app.publish("order.paid", 2)
        before = await app.operations.events()
    await connection.close()

    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(after := await app.operations.events()) < 2:
            pass
    assert before == ()
    assert [one.event.id for one in after] == [early.event_id, late.event_id]


async def test_the_history_of_a_key_waits_for_nobody(app: Redrive, address: Address) -> None:
    """Who loads an aggregate and expects its version must see what is committed."""
    connection = await asyncpg.connect(address.dsn)
    async with connection.transaction():
        await app.publish("order.paid", 1, key="other", within=connection)
        receipt = await app.publish("order.paid", 2, key="k")
        history = await app.log.history("k")
        read = await app.log.read()
    await connection.close()

    assert [one.event.id for one in history] == [receipt.event_id]
    assert read == []


async def test_a_subscriber_gets_what_commits_late(app: Redrive, address: Address) -> None:
    connection = await asyncpg.connect(address.dsn)
    following = app.log.subscribe()
    transaction = connection.transaction()
    await transaction.start()
    early = await app.publish("order.paid", 1, within=connection)
    late = await app.publish("order.paid", 2)
    first = asyncio.ensure_future(anext(following))
    await asyncio.wait([first], timeout=0.05)
    is_held = not first.done()
    await transaction.commit()

    async with asyncio.timeout(PATIENCE_SECONDS):
        found = [(await first).event.id, (await anext(following)).event.id]
    await connection.close()
    assert is_held
    assert found == [early.event_id, late.event_id]


async def test_reading_on_costs_nothing_for_what_came_before(
    app: Redrive, address: Address
) -> None:
    await app.publish_many([NewEvent(type="order.paid", key="k") for _ in range(500)])
    connection = await asyncpg.connect(address.dsn)
    # So few rows could as well be fetched in any order and sorted.
    await connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found := await app.operations.events(limit=500)) < 500:
            pass
    last = found[-3].position

    rows = await connection.fetch(
        named(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {READ.postgres}", address.schema),
        last.time,
        last.number,
        100,
    )
    await connection.close()

    plan = "\n".join(row[0] for row in rows)
    assert "Index Scan using events_in_order" in plan
    assert re.search(r"rows=2(\.00)? loops", plan)
    assert "Filter" not in plan
    assert "Sort" not in plan


async def test_two_who_expect_the_same_version_in_transactions_of_their_own(
    app: Redrive, address: Address
) -> None:
    """The second waits for the first, and is told what it has published."""
    first, second = [await asyncpg.connect(address.dsn) for _ in range(2)]
    await app.publish("order.placed", key="k")

    async def publish_second() -> Receipt:
        async with second.transaction():
            return await app.publish("order.paid", key="k", expected_version=1, within=second)

    async with first.transaction():
        receipt = await app.publish("order.paid", key="k", expected_version=1, within=first)
        waiting = asyncio.ensure_future(publish_second())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await first.fetchval(_IS_BLOCKED, second.get_server_pid()):
                await asyncio.wait([waiting], timeout=0)
    with pytest.raises(VersionConflictError, match="at version 2, not 1") as caught:
        await waiting
    await asyncio.gather(first.close(), second.close())

    assert receipt.version == 2
    assert (caught.value.key, caught.value.expected, caught.value.actual) == ("k", 1, 2)


async def test_a_refused_version_leaves_the_callers_transaction_usable(
    app: Redrive, address: Address
) -> None:
    connection = await asyncpg.connect(address.dsn)
    async with connection.transaction():
        with pytest.raises(VersionConflictError):
            await app.publish(
                "order.paid", key="k", expected_version=3, idempotency_key="once", within=connection
            )
        receipt = await app.publish(
            "order.paid", key="k", expected_version=0, idempotency_key="once", within=connection
        )
    await connection.close()

    assert (receipt.version, receipt.is_duplicate) == (1, False)
    assert (await app.operations.status()).events == 1


async def test_publishers_of_the_same_keys_in_another_order_do_not_stop_each_other(
    app: Redrive,
) -> None:
    """Each batch expects versions of several keys; those are taken in one order by all."""
    keys = [f"k{number}" for number in range(8)]

    async def append(order: list[str]) -> int:
        done = 0
        known = dict.fromkeys(order, 0)
        while done < 5:
            batch = [
                NewEvent(type="order.paid", key=key, expected_version=known[key]) for key in order
            ]
            try:
                receipts = await app.publish_many(batch)
            except VersionConflictError as conflict:
                known[conflict.key] = conflict.actual
                known = dict.fromkeys(order, conflict.actual)
            else:
                done += 1
                known = {key: one.version or 0 for key, one in zip(order, receipts, strict=True)}
        return done

    async with asyncio.timeout(PATIENCE_SECONDS):
        done = await asyncio.gather(append(keys), append(keys[::-1]), append(keys[4:] + keys[:4]))

    assert list(done) == [5, 5, 5]
    assert (await app.operations.status()).events == 15 * len(keys)
