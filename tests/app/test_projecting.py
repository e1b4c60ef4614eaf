"""Projections through the app: read models that neither skip nor stop."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from redrive import (
    Cancel,
    ConfigurationError,
    Event,
    NewEvent,
    NotFoundError,
    Projection,
    Query,
    ReadModel,
    Redrive,
    Retry,
    UsageError,
    on,
)
from redrive.errors import ResultTimeoutError
from redrive.model.delivery import Delivery, Status
from redrive.model.settlement import FailureReason
from redrive.observer import ProjectionFailed, Published
from redrive.observers.prometheus import PrometheusObserver
from redrive.testing import Kit
from tests.app.recorder import Recorder


@dataclass
class Placed:
    order: int


seen_by_orders: list[object] = []
"""What the functions of `Orders` were given."""


class Shop:
    """An app whose projection counts what was paid for each key, in a table of its own."""

    def __init__(self, url: str) -> None:
        self.app = Redrive(url)
        self.poison: set[int] = set()
        self.calls: list[int] = []
        self.kit: Kit
        self.is_locked = False
        self.orphans: set[int] = set()
        schema = url.partition("schema=")[2]
        self.table = f"{schema}.paid" if schema else "paid"

    async def paid(self, event: Event[Any], model: ReadModel) -> None:
        number = event.payload["n"]
        self.calls.append(number)
        await run(
            model.connection,
            f"INSERT INTO {self.table} (key, n) VALUES ('{event.key}', {number})",  # noqa: S608 - a test
        )
        if number in self.orphans:
            child = f"INSERT INTO {self.table}_child VALUES (-1)"  # noqa: S608 - a test
            await run(model.connection, child)
        if number in self.poison:
            raise RuntimeError(f"{number} is poison")

    async def truncate(self, model: ReadModel) -> None:
        if self.is_locked:
            raise RuntimeError("it is locked")
        await run(model.connection, f"DELETE FROM {self.table}")  # noqa: S608 - a test

    async def publish(self, *numbers: int, key: str | None = "a") -> None:
        for number in numbers:
            await self.app.publish("order.paid", {"n": number}, key=key)

    async def pending(self, *, attempts: int) -> list[Delivery]:
        page = await self.kit.operations.deliveries(Query(status=Status.PENDING))
        return [one for one in page.deliveries if one.attempts == attempts]

    async def run_down(self) -> None:
        """Let every retry come, and go."""
        await self.app.drain()
        for _ in range(4):
            self.kit.clock.advance("2s")
            await self.app.drain()

    async def create(self) -> None:
        await self.on_store(f"DROP TABLE IF EXISTS {self.table}")
        await self.on_store(f"CREATE TABLE {self.table} (key TEXT, n INTEGER)")

    async def on_store(self, statement: str) -> list[Any]:
        """Run a statement on the store's own database, past the app."""
        if self.app.settings.store.startswith("sqlite"):
            async with self.app.transaction() as transaction:
                return transaction.execute(statement).fetchall()
        import asyncpg  # noqa: PLC0415 - only where there is a server

        connection = await asyncpg.connect(self.app.settings.store.partition("?")[0])
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    async def model(self, key: str = "a") -> list[int]:
        rows = await self.on_store(f"SELECT n FROM {self.table} WHERE key = '{key}'")  # noqa: S608 - a test
        return [number for (number,) in rows]


async def run(connection: Any, statement: str) -> None:  # noqa: ANN401 - one of two
    """Run a statement with whichever connection a read model has."""
    done = connection.execute(statement)
    if hasattr(done, "__await__"):
        await done


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def shop(url: str) -> AsyncIterator[Shop]:
    shop = Shop(url)
    declare = shop.app.projection("order.paid", name="orders", timeout="2s", truncate=shop.truncate)
    declare(shop.paid)
    async with Kit(shop.app, store=url) as kit:
        shop.kit = kit
        await shop.create()
        yield shop


async def test_events_are_applied_once_and_in_order(shop: Shop) -> None:
    await shop.publish(1, 2, 3)
    await shop.app.publish("mail.sent", {"n": 9}, key="a")
    await shop.app.drain()
    await shop.publish(4)
    await shop.app.drain()
    await shop.app.drain()

    assert await shop.model() == [1, 2, 3, 4]
    [figures] = await shop.app.projections.list()
    metrics = PrometheusObserver().render(projections=[figures]).decode()
    assert 'redrive_projection_lag{destination="orders"} 0.0' in metrics
    assert 'redrive_projection_parked_keys{destination="orders"} 0.0' in metrics
    assert 'redrive_projection_applied_events{destination="orders"} 4.0' in metrics
    assert 'redrive_projection_is_read{destination="orders"} 0.0' in metrics, "a drain has ended"
    assert (figures.checkpoint.count, figures.checkpoint.event_type) == (4, "order.paid")
    assert figures.is_caught_up


async def test_the_kit_tells_what_happened_and_looks_at_the_model(shop: Shop) -> None:
    await shop.kit.given(
        NewEvent(type="order.paid", payload={"n": 1}, key="a"),
        NewEvent(type="order.paid", payload={"n": 2}, key="b"),
    )

    rows = await shop.kit.select(f"SELECT key, n FROM {shop.table} ORDER BY key")  # noqa: S608 - a test
    assert rows == [("a", 1), ("b", 2)]


async def test_a_kit_in_memory_has_no_tables_to_look_at() -> None:
    async with Kit(Redrive("memory://")) as kit:
        with pytest.raises(UsageError, match="pass store="):
            await kit.select("SELECT 1")


async def test_a_poison_event_parks_its_key_and_a_replay_goes_on(shop: Shop) -> None:
    shop.poison = {2}
    await shop.publish(1, 2, 3)
    await shop.publish(10, 11, key="b")
    await shop.publish(4)
    await shop.app.drain()

    assert await shop.model() == [1]
    assert await shop.model("b") == [10, 11]
    [first] = await shop.pending(attempts=1)
    shop.kit.clock.advance("1s")
    await shop.app.drain()
    shop.kit.clock.advance("2s")
    await shop.app.drain()
    [dead] = shop.kit.dead_letters()
    assert (dead.id, dead.attempts, dead.destination) == (first.id, 3, "orders")

    shop.poison = set()
    await shop.kit.operations.replay([dead.id], by="ada")
    await shop.app.drain()
    await shop.publish(5)
    await shop.app.drain()

    assert await shop.model() == [1, 2, 3, 4, 5]
    assert shop.kit.dead_letters() == []


async def test_poison_twice_at_one_key_and_events_meanwhile_keep_their_order(shop: Shop) -> None:
    shop.poison = {2, 4}
    await shop.publish(1, 2, 3, 4, 5)
    await shop.run_down()
    [dead] = shop.kit.dead_letters()
    await shop.kit.operations.replay([dead.id], by="ada")
    shop.poison = {4}
    await shop.publish(6)
    await shop.run_down()

    assert await shop.model() == [1, 2, 3]
    [dead] = shop.kit.dead_letters()
    shop.poison = set()
    await shop.publish(7)
    await shop.kit.operations.replay([dead.id], by="ada")
    await shop.run_down()

    assert await shop.model() == [1, 2, 3, 4, 5, 6, 7]


async def test_a_key_that_goes_on_takes_along_what_waited(shop: Shop) -> None:
    """Each of them counts, and none of them twice."""
    shop.poison = {1}
    await shop.publish(*range(1, 30))
    await shop.run_down()
    [dead] = shop.kit.dead_letters()
    shop.poison, shop.calls = set(), []
    await shop.kit.operations.replay([dead.id], by="ada")

    tally = await shop.app.drain()

    assert (tally.delivered, tally.retried, tally.failed) == (29, 0, 0)
    assert shop.calls == await shop.model() == list(range(1, 30))
    page = await shop.kit.operations.deliveries(Query(status=Status.DELIVERED))
    assert {one.attempts for one in page.deliveries} == {1}


async def test_one_that_takes_long_goes_alone(sqlite_url: str) -> None:
    """It neither holds up others for long, nor has an attempt less for it."""
    shop, is_slow = Shop(sqlite_url), [True]

    async def paid(event: Event[Any], model: ReadModel) -> None:
        await shop.paid(event, model)
        if event.payload["n"] == 3 and is_slow and not shop.poison:
            is_slow.clear()
            await asyncio.Event().wait()

    shop.app.projection("order.paid", name="orders", timeout="2s")(paid)
    async with Kit(shop.app, store=sqlite_url) as kit:
        shop.kit, shop.poison = kit, {1}
        await shop.create()
        await shop.publish(1, 2, 3, 4)
        await shop.run_down()
        [dead] = kit.dead_letters()
        shop.poison, shop.calls = set(), []
        await kit.operations.replay([dead.id], by="ada")

        tally = await shop.app.drain()

        assert (tally.delivered, tally.retried) == (4, 0)
        assert shop.calls == [1, 2, 3, 2, 3, 4]
        assert await shop.model() == [1, 2, 3, 4]


async def test_a_resolved_head_lets_its_key_go_on(shop: Shop) -> None:
    shop.poison = {1}
    await shop.publish(1, 2)
    await shop.run_down()
    [dead] = shop.kit.dead_letters()

    await shop.kit.operations.resolve([dead.id], by="ada", why="by hand")
    await shop.publish(3)
    await shop.run_down()

    assert await shop.model() == [2, 3]


async def test_what_has_no_key_parks_alone(shop: Shop) -> None:
    shop.poison = {2}
    await shop.publish(1, 2, 3, key=None)
    await shop.run_down()

    assert await shop.model("None") == [1, 3]
    assert [one.key for one in shop.kit.dead_letters()] == [None]


async def test_a_paused_projection_stops_and_goes_on(shop: Shop) -> None:
    await shop.publish(1)
    await shop.app.drain()
    await shop.kit.operations.pause("orders", by="ada")
    await shop.publish(2)
    await shop.app.drain()
    paused = await shop.model()
    await shop.kit.operations.resume("orders", by="ada")
    await shop.app.drain()

    assert (paused, await shop.model()) == ([1], [1, 2])


async def test_who_has_written_waits_to_read_it(shop: Shop) -> None:
    await shop.publish(1)
    await shop.app.drain()
    receipt = await shop.app.publish("order.paid", {"n": 2}, key="a")
    with pytest.raises(ResultTimeoutError, match="1 events behind"):
        await shop.app.projections.reached(receipt, "orders", timeout="0s")
    shop.poison = {2}
    await shop.app.drain()
    with pytest.raises(ResultTimeoutError, match=r"handed over as delivery .*pending"):
        await shop.app.projections.reached(receipt, "orders", timeout="0s")
    shop.poison = set()
    await shop.run_down()

    await shop.app.projections.reached(receipt, "orders")

    assert await shop.model() == [1, 2]
    with pytest.raises(NotFoundError, match=r"'order'.*orders"):
        await shop.app.projections.reached(receipt, "order")


async def test_a_reset_empties_the_model_with_the_first_events(shop: Shop) -> None:
    shop.poison = {2}
    await shop.publish(1, 2, 3)
    await shop.run_down()
    shop.poison = set()

    removed = await shop.app.projections.reset("orders", by="ada", why="a new column")
    before = await shop.model()
    await shop.app.drain()

    assert (removed, before, await shop.model()) == (2, [1], [1, 2, 3])
    assert shop.kit.dead_letters() == []


async def test_a_projection_that_cannot_be_emptied_is_told_of_and_goes_on_later(
    shop: Shop,
) -> None:
    told = Recorder()
    shop.app.observe(told)
    await shop.publish(1)
    await shop.app.drain()
    await shop.app.projections.reset("orders", by="ada")
    shop.is_locked = True
    await shop.app.drain()
    shop.is_locked = False
    await shop.app.drain()

    [failed] = told.of(ProjectionFailed)
    assert (failed.projection, failed.error) == ("orders", "it is locked")
    assert await shop.model() == [1]


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_what_is_refused_at_the_commit_fails_alone(shop: Shop) -> None:
    """On SQLite, foreign keys of one's own are not checked, so nothing is refused so late."""
    child = f"CREATE TABLE {shop.table}_child (n INTEGER REFERENCES {shop.table} (n)"
    await shop.on_store(f"DROP TABLE IF EXISTS {shop.table}_child")
    await shop.on_store(f"ALTER TABLE {shop.table} ADD PRIMARY KEY (n)")
    await shop.on_store(f"{child} DEFERRABLE INITIALLY DEFERRED)")
    shop.orphans = {2}
    await shop.publish(1, 2, 3)
    await shop.publish(10, key="b")
    await shop.app.drain()

    assert (await shop.model(), await shop.model("b")) == ([1], [10])
    [dead] = shop.kit.dead_letters()
    assert dead.reason is FailureReason.TERMINAL
    shop.orphans = set()
    await shop.kit.operations.replay([dead.id], by="ada")
    await shop.app.drain()
    assert await shop.model() == [1, 2, 3]
    await shop.on_store(f"DROP TABLE {shop.table}_child")


async def test_a_log_that_is_no_longer_whole_is_not_begun_anew() -> None:
    app = Redrive("memory://", keep_events="1h", keep_delivered="1h")
    app.projection(name="orders")(Orders)
    async with Kit(app) as kit:
        await app.publish("order.paid")
        await kit.drain()
        kit.clock.advance("1d")
        await kit.operations.prune(by="ada")
        await app.publish("order.paid")

        with pytest.raises(UsageError, match=r"events have gone.*behind 0-1; begin"):
            await app.projections.reset("orders", by="ada")
        await app.projections.reset("orders", by="ada", after="0-1")


async def test_nothing_is_published_or_moved_to_a_projection() -> None:
    app = Redrive("memory://")
    app.projection(name="orders")(Orders)

    @app.handler("mail.*", name="mail")
    async def handle(event: Event[Any]) -> None: ...

    async with Kit(app) as kit:
        with pytest.raises(UsageError, match="is a projection"):
            await app.publish("order.paid", to="orders")
        with pytest.raises(UsageError, match="is a projection"):
            await kit.operations.move("mail", "orders", by="ada", why="a test")
        receipt = await app.publish("order.paid")

    assert receipt.destinations == ()


async def test_who_keeps_old_events_from_going_is_named() -> None:
    app = Redrive("memory://", keep_events="2d")
    app.projection(name="orders")(Orders)

    async with Kit(app) as kit:
        await kit.drain()
        await kit.operations.pause("orders", by="ada")
        await app.publish("order.paid")
        kit.clock.advance("1d")
        before = [one.what for one in await kit.operations.examine()]
        kit.clock.advance("2d")
        await kit.drain()
        after = [one.what for one in await kit.operations.examine()]

        assert not any("could have gone" in one for one in before)
        assert any(
            "The projection orders keeps events that could have gone" in one for one in after
        )
        assert (await kit.operations.status()).events == 1


async def test_what_only_a_projection_reads_has_a_reader() -> None:
    metrics, recorder = PrometheusObserver(), Recorder()
    app = Redrive("memory://")
    app.observe(metrics)
    app.observe(recorder)
    app.projection(name="orders")(Orders)

    async with Kit(app):
        read = await app.publish("order.paid")
        lost = await app.publish("mail.sent")

    assert (read.readers, read.is_routed) == (("orders",), True)
    assert (lost.readers, lost.is_routed) == ((), False)
    told = [receipt.is_routed for one in recorder.of(Published) for _, receipt in one.events]
    assert told == [True, False]
    assert "redrive_events_unrouted_total 1.0" in metrics.render().decode()


async def test_one_that_refuses_unknown_types_reads_everything() -> None:
    app = Redrive("memory://")
    app.projection(name="orders", unknown="refuse")(Orders)

    async with Kit(app):
        assert (await app.publish("mail.sent")).readers == ("orders",)


class Orders(Projection):
    """Typed functions for two types of events."""

    @on("order.placed")
    async def placed(self, event: Event[Placed], model: ReadModel) -> None:
        assert model.connection is None
        seen_by_orders.append(event.payload)

    @on("order.paid", "order.refunded")
    async def money(self, event: Event[Any], _: ReadModel) -> None:
        seen_by_orders.append(event.type)


async def test_a_class_has_a_typed_function_for_each_type() -> None:
    app = Redrive("memory://")
    app.projection(on_failure="skip")(Orders)
    seen_by_orders.clear()

    async with Kit(app) as kit:
        await app.publish("order.placed", {"order": 1}, key="a")
        await app.publish("order.placed", {"order": "one"}, key="a")
        await app.publish("order.shipped", key="a")
        await app.publish("order.refunded", key="a")
        await kit.drain()

        assert seen_by_orders == [Placed(1), "order.refunded"]
        [dead] = kit.dead_letters()
        assert (dead.destination, dead.reason) == ("orders", FailureReason.TERMINAL)


class Lists(Projection):
    """Applies what was paid in lists, and what was shipped one by one."""

    def __init__(self) -> None:
        self.poison: set[int] = set()
        self.calls: list[Any] = []
        self.shop: Shop

    @on("order.paid", batch=True)
    async def paid(self, events: list[Event[Any]], model: ReadModel) -> None:
        numbers = [one.payload["n"] for one in events]
        self.calls.append(numbers)
        for one in events:
            await self._write(one, model)
        if bad := self.poison & set(numbers):
            raise RuntimeError(f"{bad} is poison")

    @on("order.shipped")
    async def shipped(self, event: Event[Any], model: ReadModel) -> None:
        self.calls.append(event.payload["n"])
        await self._write(event, model)

    async def _write(self, event: Event[Any], model: ReadModel) -> None:
        table, number = self.shop.table, event.payload["n"]
        statement = f"INSERT INTO {table} (key, n) VALUES ('{event.key}', {number})"  # noqa: S608 - a test
        await run(model.connection, statement)


@pytest.fixture
async def lists(url: str) -> AsyncIterator[Lists]:
    shop, made = Shop(url), []

    class Kept(Lists):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    shop.app.projection(name="orders", timeout="2s", retry=Retry(max_attempts=1))(Kept)
    [lists] = made
    lists.shop = shop
    async with Kit(shop.app, store=url) as kit:
        shop.kit = kit
        await shop.create()
        yield lists


async def test_a_function_may_take_many_events_at_once(lists: Lists) -> None:
    """As many as follow each other, in order."""
    shop = lists.shop
    await shop.publish(1, 2, 3)
    await shop.app.publish("order.shipped", {"n": 4}, key="a")
    await shop.publish(5, 6)

    await shop.app.drain()

    assert lists.calls == [[1, 2, 3], 4, [5, 6]]
    assert await shop.model() == [1, 2, 3, 4, 5, 6]
    [figures] = await shop.app.projections.list()
    assert figures.checkpoint.count == 6


async def test_one_of_many_that_fails_costs_the_others_nothing(lists: Lists) -> None:
    """In the log, and in the lane of its key."""
    shop, lists.poison = lists.shop, {2, 9}
    await shop.publish(1)
    await shop.publish(*range(2, 12), key="b")
    await shop.publish(12)
    await shop.app.drain()
    assert await shop.model() == [1, 12]
    [dead] = shop.kit.dead_letters()
    lists.poison, lists.calls = {9}, []

    await shop.kit.operations.replay([dead.id], by="ada")
    tally = await shop.app.drain()

    assert (tally.delivered, tally.failed) == (7, 1)
    halves = [[2], [*range(3, 12)], [3, 4, 5, 6], [7], [8, 9, 10, 11], [8, 9], [8], [9]]
    if "sqlite" in shop.app.settings.store:
        assert lists.calls == halves
    else:  # what housekeeping is just counting there goes by itself
        assert lists.calls[0] == [2]
        assert lists.calls[-1] == [9]
        assert all(call == sorted(call) for call in lists.calls)
    assert await shop.model("b") == list(range(2, 9))
    [dead] = shop.kit.dead_letters()
    lists.poison = set()
    await shop.kit.operations.replay([dead.id], by="ada")
    await shop.app.drain()
    assert await shop.model("b") == list(range(2, 12))


class Mixed(Projection):
    """Fails at everything that is marked; a refund that fails holds up nobody."""

    @on("order.refunded", on_failure="skip")
    async def refunded(self, event: Event[Any], _: ReadModel) -> None:
        self._apply(event)

    @on("order.*")
    async def other(self, event: Event[Any], _: ReadModel) -> None:
        self._apply(event)

    def _apply(self, event: Event[Any]) -> None:
        if event.payload == "bad":
            raise RuntimeError("it is bad")
        seen_by_orders.append(event.payload)


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def any_url(request: pytest.FixtureRequest) -> str:
    is_memory = request.param == "memory"
    return "memory://" if is_memory else str(request.getfixturevalue(f"{request.param}_url"))


@pytest.mark.parametrize("on_failure", ["park", "halt"])
async def test_a_function_may_say_what_becomes_of_its_failures(
    on_failure: Literal["park", "halt"], any_url: str
) -> None:
    app = Redrive(any_url)
    app.projection(on_failure=on_failure, retry=Retry(max_attempts=1))(Mixed)
    seen_by_orders.clear()

    async with Kit(app, store=any_url) as kit:
        await app.publish("order.refunded", "bad", key="a")
        await app.publish("order.paid", 1, key="a")
        await app.drain()
        await app.publish("order.paid", "bad", key="b")
        await app.publish("order.refunded", 2, key="b")
        await app.drain()
        await app.publish("order.paid", 3, key="a")
        await app.drain()

        assert seen_by_orders == ([1, 3] if on_failure == "park" else [1])
        assert {one.key for one in kit.dead_letters()} == {"a", "b"}


async def test_a_function_may_park_where_others_skip(sqlite_url: str) -> None:
    class Kept(Projection):
        @on("order.paid", on_failure="park")
        async def paid(self, event: Event[Any], _: ReadModel) -> None:
            raise RuntimeError(event.payload)

        @on("order.*")
        async def other(self, event: Event[Any], _: ReadModel) -> None:
            seen_by_orders.append(event.payload)
            if event.payload == "bad":
                raise RuntimeError("it is bad")

    app = Redrive(sqlite_url)
    app.projection(on_failure="skip", retry=Retry(max_attempts=1))(Kept)
    seen_by_orders.clear()
    async with Kit(app, store=sqlite_url):
        await app.publish("order.sent", "bad", key="a")
        await app.publish("order.sent", 1, key="a")
        await app.publish("order.paid", "never", key="b")
        await app.publish("order.sent", 2, key="b")
        await app.drain()

        assert seen_by_orders[-1] == 1
        assert 2 not in seen_by_orders


def test_only_the_whole_projection_halts() -> None:
    with pytest.raises(ConfigurationError, match="it is 'park' or 'skip'"):
        on("order.paid", on_failure="halt")  # type: ignore[arg-type]

    class Parks(Projection):
        @on("order.paid", on_failure="park")
        async def paid(self, event: Event[Any], model: ReadModel) -> None: ...

    with pytest.raises(ConfigurationError, match="cannot park its own"):
        Redrive("memory://").projection(on_failure="halt")(Parks)


def test_how_many_come_at_once_is_not_to_be_said() -> None:
    with pytest.raises(ConfigurationError, match="write batch=True"):
        on("order.paid", batch=100)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="write batch=True"):
        Redrive("memory://").projection("order.paid", batch=100)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"leave batch of @app\.projection out"):
        Redrive("memory://").projection(batch=True)(Orders)


async def test_a_single_function_may_take_many(sqlite_url: str) -> None:
    app = Redrive(sqlite_url)
    calls: list[list[int]] = []

    @app.projection("order.*", name="totals", batch=True)
    async def total(events: list[Event[int]], _: ReadModel) -> None:
        calls.append([one.payload for one in events])

    async with Kit(app, store=sqlite_url) as kit:
        for number in range(3):
            await app.publish("order.paid", number)
        await kit.drain()

    assert calls == [[0, 1, 2]]


async def test_a_type_that_nobody_applies_may_be_refused() -> None:
    app = Redrive("memory://")
    app.projection(unknown="refuse")(Orders)
    seen_by_orders.clear()

    async with Kit(app) as kit:
        await app.publish("order.shipped", key="a")
        await app.publish("order.paid", key="a")
        await app.publish("order.paid", key="b")
        await kit.drain()

        assert seen_by_orders == ["order.paid"]
        assert [one.event_type for one in kit.dead_letters()] == ["order.shipped"]


async def test_a_function_that_takes_too_long_has_failed() -> None:
    app = Redrive("memory://")
    seen: list[object] = []

    @app.projection("order.*", name="totals", timeout="50ms", retry=Retry(max_attempts=1))
    async def total(event: Event[Any], _: ReadModel) -> None:
        if event.payload == "slow":
            await asyncio.Event().wait()
        seen.append(event.payload)

    async with Kit(app) as kit:
        await app.publish("order.paid", "slow", key="a")
        await app.publish("order.paid", 1, key="b")
        await kit.drain()

        [dead] = kit.dead_letters()
        assert (dead.key, dead.reason) == ("a", FailureReason.EXHAUSTED)
        assert dead.fault is not None
        assert "50ms" in dead.fault.message
    assert seen == [1]


async def test_a_halted_projection_waits_for_a_person() -> None:
    app = Redrive("memory://")
    seen: list[object] = []

    @app.projection("order.*", name="totals", on_failure="halt", retry=Retry(max_attempts=1))
    async def total(event: Event[Any], _: ReadModel) -> None:
        if event.payload == "bad":
            raise ValueError
        seen.append(event.payload)

    async with Kit(app) as kit:
        await app.publish("order.paid", "bad", key="a")
        await kit.drain()
        await app.publish("order.paid", 1, key="b")
        await kit.drain()
        halted = list(seen)
        [dead] = kit.dead_letters()
        await kit.operations.resolve([dead.id], by="ada", why="by hand")
        await kit.drain()

    assert (halted, seen) == ([], [1])


async def test_one_that_always_fails_leaves_the_others_alone(sqlite_url: str) -> None:
    shop = Shop(sqlite_url)
    shop.app.projection("order.paid", name="orders")(shop.paid)

    @shop.app.projection("order.paid", name="broken", retry=Retry(max_attempts=1))
    async def broken(event: Event[Any], model: ReadModel) -> None:
        await shop.paid(event, model)
        raise RuntimeError("never")

    async with Kit(shop.app, store=sqlite_url) as kit:
        shop.kit = kit
        await shop.create()
        await shop.publish(1, 2, 3)
        await shop.publish(4, key="b")
        await shop.run_down()

        assert (await shop.model(), await shop.model("b")) == ([1, 2, 3], [4])
        figures = {one.checkpoint.projection: one for one in await shop.app.projections.list()}
        assert (figures["orders"].is_caught_up, figures["orders"].handed_over) == (True, 0)
        assert (figures["broken"].is_caught_up, figures["broken"].handed_over) == (True, 4)


async def test_after_the_fix_the_model_equals_a_recount(shop: Shop) -> None:
    """One poison event among many keys holds up its own, and no other."""
    shop.poison = {17}
    keys = [f"k{one}" for one in range(20)]
    await shop.app.publish_many(
        [NewEvent(type="order.paid", payload={"n": one}, key=keys[one % 20]) for one in range(80)]
    )
    await shop.run_down()
    parked = {key for key in keys if len(await shop.model(key)) < 4}
    [figures] = await shop.app.projections.list()
    assert (parked, figures.is_caught_up, figures.parked_keys) == ({"k17"}, True, 1)

    shop.poison = set()
    await shop.kit.operations.replay([one.id for one in shop.kit.dead_letters()], by="ada")
    await shop.publish(97, key="k17")
    await shop.run_down()

    recount: dict[str, list[int]] = {}
    for one in await shop.app.log.read(limit=1_000):
        recount.setdefault(one.event.key or "", []).append(one.event.payload["n"])
    assert {key: await shop.model(key) for key in keys} == recount


@pytest.mark.parametrize(("act", "left"), [("edit", [1, 20, 3, 4]), ("delete", [1, 3, 4])])
async def test_a_head_that_is_mended_or_removed_lets_its_key_go_on(
    shop: Shop, act: str, left: list[int]
) -> None:
    shop.poison = {2}
    await shop.publish(1, 2, 3)
    await shop.run_down()
    [dead] = shop.kit.dead_letters()

    if act == "edit":
        await shop.kit.operations.edit(dead.id, {"n": 20}, by="ada", why="typo", replay=True)
    else:
        await shop.kit.operations.delete([dead.id], by="ada", why="no use")
    await shop.publish(4)
    await shop.run_down()

    assert await shop.model() == left


async def test_a_read_model_of_the_wrong_shape_loses_nothing(shop: Shop) -> None:
    await shop.on_store(f"DROP TABLE {shop.table}")
    await shop.publish(1, 2)
    await shop.publish(3, key="b")
    await shop.run_down()
    dead = shop.kit.dead_letters()
    assert {one.key for one in dead} == {"a", "b"}
    assert all("paid" in (one.fault.message if one.fault else "") for one in dead)

    await shop.create()
    await shop.kit.operations.replay([one.id for one in dead], by="ada")
    await shop.run_down()

    assert (await shop.model(), await shop.model("b")) == ([1, 2], [3])


@pytest.mark.parametrize("answer", [42, [None, None], Cancel("no")], ids=repr)
async def test_a_function_that_returns_nonsense_harms_nobody(answer: object) -> None:
    app = Redrive("memory://")
    seen: list[object] = []

    @app.projection("order.*", name="totals", retry=Retry(max_attempts=1))
    async def total(event: Event[Any], _: ReadModel) -> object:
        seen.append(event.payload)
        return answer if event.payload == "odd" else None

    async with Kit(app) as kit:
        await app.publish("order.paid", "odd", key="a")
        await app.publish("order.paid", 1, key="b")
        await kit.drain()
        [figures] = await app.projections.list()

    assert seen == ["odd", 1]
    assert figures.is_caught_up


async def test_a_new_projection_begins_where_it_says() -> None:
    app = Redrive("memory://")
    seen: dict[str, list[object]] = {"all": [], "new": []}

    @app.projection("order.*", name="all")
    async def everything(event: Event[Any], _: ReadModel) -> None:
        seen["all"].append(event.payload)

    @app.projection("order.*", name="new", begin="now")
    async def what_comes(event: Event[Any], _: ReadModel) -> None:
        seen["new"].append(event.payload)

    async with Kit(app) as kit:
        await app.publish("order.paid", 1)
        await kit.drain()
        await app.publish("order.paid", 2)
        await kit.drain()

    assert seen == {"all": [1, 2], "new": [2]}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"on_failure": "stop"}, "on_failure is 'stop'"),
        ({"unknown": "what"}, "unknown is 'what'"),
        ({"begin": "yesterday"}, "begin is 'yesterday'"),
        ({"order": "park"}, "order"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Redrive("memory://").projection("order.*", **options)


def test_what_cannot_be_a_projection_is_refused() -> None:
    app = Redrive("memory://")

    async def fine(event: Event[Any], model: ReadModel) -> None: ...

    class Empty(Projection):
        pass

    with pytest.raises(ConfigurationError, match="names no events"):
        app.projection()(fine)
    with pytest.raises(ConfigurationError, match="no function for any event"):
        app.projection()(Empty)
    with pytest.raises(ConfigurationError, match="leave the patterns"):
        app.projection("order.*")(Orders)
    with pytest.raises(ConfigurationError, match="plain function"):
        app.projection("order.*")(lambda event, model: None)
    with pytest.raises(ConfigurationError, match="neither a function nor a class"):
        app.projection("order.*")(dict)
