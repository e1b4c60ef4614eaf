"""Versions of a projection through the app: built beside, swapped in one step, dropped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from redrive import ConfigurationError, Event, Projection, ReadModel, Redrive, UsageError, on
from redrive.observer import ProjectionFailed
from redrive.testing import Kit
from tests.app.recorder import Recorder
from tests.app.test_projecting import run


class Sales:
    """An app with versions of a projection into `sales`; the second knows the buyers, too."""

    def __init__(self, url: str) -> None:
        self.app = Redrive(url)
        self.kit: Kit
        schema = url.partition("schema=")[2]
        self.table = f"{schema}.sales" if schema else "sales"
        self.checkpoints = f"{schema}.checkpoints" if schema else "redrive_checkpoints"
        self.leftovers = [
            f"DROP VIEW IF EXISTS {self.table}",
            *(f"DROP TABLE IF EXISTS {self.table}_v{version}" for version in (1, 2)),
        ]
        self.poison: set[int] = set()
        self.columns = {1: "n INTEGER", 2: "n INTEGER, buyer TEXT"}

    def declare(self, *versions: int) -> None:
        for version in versions:
            self.app.projection(
                "order.paid",
                name="sales",
                version=version,
                tables=[self.table],
                create=self.create,
                timeout="2s",
            )(self.paid)

    async def create(self, model: ReadModel) -> None:
        columns = self.columns[model.version]
        await run(model.connection, f"CREATE TABLE {model.table(self.table)} ({columns})")

    async def paid(self, event: Event[Any], model: ReadModel) -> None:
        number = event.payload["n"]
        values = {1: f"{number}", 2: f"{number}, 'ada'"}[model.version]
        into = model.table(self.table)
        await run(model.connection, f"INSERT INTO {into} VALUES ({values})")  # noqa: S608 - a test
        if number in self.poison and model.version == 2:
            raise RuntimeError(f"{number} is poison")

    async def publish(self, *numbers: int) -> None:
        for number in numbers:
            await self.app.publish("order.paid", {"n": number}, key="a")

    async def read(self, what: str = "*") -> list[tuple[Any, ...]]:
        """Read as readers do, by the plain name."""
        return await self.on_store(f"SELECT {what} FROM {self.table} ORDER BY n")  # noqa: S608 - a test

    async def on_store(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements on the store's database, past the app; returns the rows of the last."""
        if self.app.settings.store.startswith("sqlite"):
            async with self.app.transaction() as transaction:
                return [transaction.execute(one).fetchall() for one in statements][-1]
        connection = await asyncpg.connect(self.app.settings.store.partition("?")[0])
        try:
            return [[tuple(row) for row in await connection.fetch(one)] for one in statements][-1]
        finally:
            await connection.close()

    async def trouble(self) -> str:
        """Return what a worker says that cannot read on for a projection."""
        facts = Recorder()
        self.app.observe(facts)
        await self.app.drain()
        [fact] = [one for one in facts.facts if isinstance(one, ProjectionFailed)]
        return fact.error

    async def names(self) -> list[str]:
        """Return the tables and views that there are of it."""
        if self.app.settings.store.startswith("sqlite"):
            found = await self.on_store("SELECT name FROM sqlite_master WHERE name LIKE 'sales%'")
        else:
            schema = self.table.partition(".")[0]
            found = await self.on_store(
                f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' "  # noqa: S608 - a test
                f"UNION SELECT viewname FROM pg_views WHERE schemaname = '{schema}'"
            )
        return sorted(name for (name,) in found if name.startswith("sales"))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def sales(url: str) -> AsyncIterator[Sales]:
    sales = Sales(url)
    async with Kit(sales.app, store=url) as kit:
        sales.kit = kit
        yield sales
        await sales.on_store(*sales.leftovers)


async def test_a_new_version_is_built_beside_and_swapped_in(sales: Sales) -> None:
    sales.declare(1)
    await sales.publish(1, 2)
    await sales.app.drain()
    sales.declare(2)
    await sales.publish(3)
    await sales.app.drain()
    before = await sales.read()

    served = await sales.app.projections.swap("sales", by="ada", why="buyers")

    assert before == [(1,), (2,), (3,)]
    assert await sales.read() == [(1, "ada"), (2, "ada"), (3, "ada")]
    assert (served.checkpoint.version, served.is_serving) == (2, True)
    await sales.publish(4)
    await sales.app.drain()
    assert await sales.read("n") == [(1,), (2,), (3,), (4,)]
    back = await sales.app.projections.swap("sales", by="ada", version=1)
    assert (back.checkpoint.version, await sales.read()) == (1, [(1,), (2,), (3,), (4,)])


async def test_a_table_is_there_before_the_first_event(sales: Sales) -> None:
    sales.declare(1)

    await sales.app.drain()

    assert await sales.read() == []


async def test_a_version_that_has_not_caught_up_is_not_swapped_in(sales: Sales) -> None:
    sales.declare(1, 2)
    await sales.app.drain()
    await sales.publish(1)

    with pytest.raises(UsageError, match=r"Version 2 of .* not caught up: it is 1 events behind"):
        await sales.app.projections.swap("sales", by="ada", timeout="0s")


async def test_a_version_with_failures_is_swapped_in_when_somebody_says_so(sales: Sales) -> None:
    sales.declare(1, 2)
    sales.poison = {2}
    await sales.publish(1, 2)
    await sales.app.drain()

    with pytest.raises(UsageError, match="1 events that have failed or wait"):
        await sales.app.projections.swap("sales", by="ada", timeout="0s")
    await sales.app.projections.swap("sales", by="ada", parked=True)

    assert await sales.read("n") == [(1,)]


async def test_a_version_that_lacks_a_table_of_readers_is_not_swapped_in(sales: Sales) -> None:
    sales.declare(1, 2)
    await sales.app.drain()
    more = f"{sales.table}_more"
    await sales.on_store(
        f"CREATE TABLE {more}_v1 (n INTEGER)",
        f'UPDATE {sales.checkpoints} SET tables = \'["{sales.table}", "{more}"]\' '  # noqa: S608 - a test
        "WHERE version = 1",
    )
    await sales.on_store(f"CREATE VIEW {more} AS SELECT * FROM {more}_v1")  # noqa: S608 - a test

    with pytest.raises(UsageError, match=f"has no table {more}, of which readers would go on"):
        await sales.app.projections.swap("sales", by="ada")

    await sales.on_store(f"DROP VIEW {more}", f"DROP TABLE {more}_v1")
    await sales.app.projections.swap("sales", by="ada")


async def test_nobody_waits_behind_a_swap_that_waits_for_a_reader(
    postgres_url: str,
) -> None:
    sales = Sales(postgres_url)
    sales.declare(1, 2)
    async with Kit(sales.app, store=postgres_url) as kit:
        sales.kit = kit
        await sales.app.drain()
        reader = await asyncpg.connect(postgres_url.partition("?")[0])
        await reader.execute(f"BEGIN; SELECT * FROM {sales.table}")  # noqa: S608 - a test

        with pytest.raises(UsageError, match="somebody has had the readers' views"):
            await sales.app.projections.swap("sales", by="ada", timeout="0s")

        await reader.execute("COMMIT")
        await reader.close()
        await sales.app.projections.swap("sales", by="ada")
        assert await sales.read("buyer, n") == []
        await sales.on_store(*sales.leftovers)


async def test_who_reads_what_they_wrote_waits_for_the_version_that_readers_have(
    sales: Sales,
) -> None:
    sales.declare(1, 2)
    await sales.app.drain()
    sales.poison = {1}
    receipt = await sales.app.publish("order.paid", {"n": 1})
    await sales.app.drain()

    await sales.app.projections.reached(receipt, "sales", timeout="1s")

    assert (await sales.app.operations.projection("sales", version=2)).handed_over == 1


async def test_an_old_version_is_dropped_with_its_table_and_its_letters(sales: Sales) -> None:
    sales.declare(1, 2)
    await sales.publish(1)
    await sales.app.drain()
    await sales.app.projections.swap("sales", by="ada")
    with pytest.raises(UsageError, match="versions 1, 2; say which"):
        await sales.app.projections.drop("sales", by="ada")
    with pytest.raises(UsageError, match="Readers have version 2"):
        await sales.app.projections.drop("sales", by="ada", version=2)
    sales.kit.clock.advance("1m")

    await sales.app.projections.drop("sales", by="ada", version=1)

    assert await sales.names() == ["sales", "sales_v2"]
    assert [one.checkpoint.version for one in await sales.app.projections.list()] == [2]
    assert await sales.read("n") == [(1,)]
    sales.kit.clock.advance("1m")
    await sales.app.projections.drop("sales", by="ada")
    assert await sales.names() == ["sales", "sales_v2"]


async def test_a_read_model_without_a_function_to_empty_it_is_emptied(sales: Sales) -> None:
    sales.declare(1)
    await sales.publish(1, 2)
    await sales.app.drain()

    await sales.app.projections.reset("sales", by="ada")
    before = await sales.read()
    await sales.app.drain()

    assert before == await sales.read() == [(1,), (2,)]


async def test_a_table_in_the_place_of_a_view_keeps_only_its_projection(sales: Sales) -> None:
    seen: list[int] = []

    @sales.app.projection("order.paid", name="others")
    async def apply(event: Event[Any], _: ReadModel) -> None:
        seen.append(event.payload["n"])

    sales.declare(1)
    await sales.on_store(f"CREATE TABLE {sales.table} (n INTEGER)")
    await sales.publish(1)
    error = await sales.trouble()

    assert f"{sales.table} is a table, and readers of a projection use a view" in error
    assert seen == [1]
    one = await sales.app.operations.projection("sales")
    assert (one.events_behind, one.handed_over) == (1, 0)
    await sales.on_store(f"DROP TABLE {sales.table}")
    await sales.app.drain()
    assert await sales.read() == [(1,)]


async def test_tables_that_cannot_be_created_are_told_of(sales: Sales) -> None:
    sales.declare(1)
    sales.columns = {1: "n INTEGER, UNIQUE (missing)"}
    await sales.publish(1)

    assert "missing" in await sales.trouble()
    sales.columns = {1: "n INTEGER"}
    await sales.app.drain()
    assert await sales.read() == [(1,)]


async def test_tables_that_nobody_creates_are_told_of(sales: Sales) -> None:
    tables = [sales.table]
    sales.app.projection("order.paid", name="sales", tables=tables, timeout="2s")(sales.paid)
    await sales.publish(1)

    assert f"'sales' has no table {sales.table}_v1; create it" in await sales.trouble()
    await sales.on_store(f"CREATE TABLE {sales.table}_v1 (n INTEGER)")
    await sales.app.drain()
    assert await sales.read() == [(1,)]


async def test_a_version_is_rebuilt_and_told_of(sales: Sales) -> None:
    sales.declare(1, 2)
    sales.poison = {2}
    await sales.publish(1, 2)
    await sales.app.drain()
    with pytest.raises(UsageError, match="versions 1, 2; say which"):
        await sales.app.projections.rebuild("sales", by="ada")
    with pytest.raises(UsageError, match="Readers have version 1"):
        await sales.app.projections.cancel("sales", by="ada", version=1)
    with pytest.raises(UsageError, match="is not being rebuilt"):
        await sales.app.projections.cancel("sales", by="ada", version=2)
    sales.poison = set()

    removed = await sales.app.projections.rebuild(
        "sales", by="ada", version=2, rate="1000/s", strict=True
    )
    begun = await sales.app.operations.projection("sales", version=2)
    await sales.app.drain()

    done = await sales.app.operations.projection("sales", version=2)
    assert (removed, begun.progress, done.progress) == (1, 0.0, 1.0)
    assert begun.checkpoint.rebuild is not None
    assert (begun.checkpoint.rebuild.rate, begun.checkpoint.rebuild.is_strict) == (1000.0, True)
    await sales.app.projections.swap("sales", by="ada")
    assert await sales.read("n") == [(1,), (2,)]


async def test_a_rebuild_beside_is_cancelled(sales: Sales) -> None:
    sales.declare(1, 2)
    await sales.publish(1)
    await sales.app.drain()
    await sales.app.projections.rebuild("sales", by="ada", version=2)

    await sales.app.projections.cancel("sales", by="ada", version=2, why="not now")
    await sales.app.drain()

    beside = await sales.app.operations.projection("sales", version=2)
    assert (beside.checkpoint.count, beside.events_behind) == (0, 1)
    with pytest.raises(UsageError, match="has not caught up"):
        await sales.app.projections.swap("sales", by="ada", timeout="0s")
    await sales.app.projections.rebuild("sales", by="ada", version=2)
    await sales.app.drain()
    await sales.app.projections.swap("sales", by="ada", timeout="0s")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": 0}, "version is 0"),
        ({"version": "2"}, "version is '2'"),
        ({"tables": "sales"}, r"tables is 'sales'; .* \[\"orders\"\]"),
        ({"tables": ["Sales; DROP"]}, "a name that cannot be used"),
        ({"create": Sales.create}, "names none"),
    ],
)
async def test_what_is_wrong_with_a_version_is_told_at_once(
    options: dict[str, Any], said: str
) -> None:
    app = Redrive("memory://")

    with pytest.raises(ConfigurationError, match=said):
        app.projection("order.*", name="sales", **options)(Sales("memory://").paid)


async def test_only_tables_that_are_named_can_be_written_to() -> None:
    model = ReadModel(connection=None, version=3, tables=("sales",))

    assert model.table("sales") == "sales_v3"
    with pytest.raises(UsageError, match="no table 'orders'"):
        model.table("orders")


async def test_a_class_creates_its_tables_itself() -> None:
    app = Redrive("memory://")

    @app.projection(version=2, tables=["totals"])
    class Totals(Projection):
        @on("order.paid")
        async def paid(self, event: Event[Any], model: ReadModel) -> None:
            assert model.table("totals") == "totals_v2"

        async def create(self, model: ReadModel) -> None:
            raise AssertionError("there are no tables in memory")

    async with Kit(app):
        await app.publish("order.paid", {"n": 1})
        await app.drain()

        [one] = await app.projections.list()
        assert (one.checkpoint.projection, one.checkpoint.count) == ("totals.v2", 1)
        assert (one.is_serving, one.handed_over) == (True, 0)
