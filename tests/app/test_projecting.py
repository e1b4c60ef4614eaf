"""Projections through the app: read models that neither skip nor stop."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from redrive import (
    ConfigurationError,
    Event,
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
from redrive.observer import ProjectionFailed
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
    assert (figures.checkpoint.count, figures.checkpoint.event_type) == (4, "order.paid")
    assert figures.is_caught_up


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
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, seen.clear)
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
