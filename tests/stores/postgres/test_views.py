"""The views of read models in PostgreSQL: what hangs on them stays, or nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from redrive.errors import UsageError
from redrive.stores.postgres.pool import Link
from redrive.stores.postgres.views import drop_tables, missing_tables, point_views
from redrive.stores.sealed import PLAIN
from redrive.stores.sql.views import BusyTablesError


class Models:
    """Versions of a read model, and the view of readers on the first, in a transaction."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - of the driver
        self.connection = connection
        self.link = Link(connection, "redrive", PLAIN)

    async def point(self, version: int) -> None:
        await point_views(self.link, ["orders"], version)

    async def values(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.connection.fetch(statement)]


@pytest.fixture
async def models(new_postgres_url: str) -> AsyncIterator[Models]:
    address, _, schema = new_postgres_url.partition("?schema=")
    connection = await asyncpg.connect(address)
    await connection.execute(f"BEGIN; CREATE SCHEMA {schema}; SET LOCAL search_path = {schema}")
    await connection.execute(
        "CREATE TABLE orders_v1 (id int, state text); INSERT INTO orders_v1 VALUES (1, 'new');"
        "CREATE TABLE orders_v2 (buyer text, state text, id int);"
        "INSERT INTO orders_v2 VALUES ('ada', 'old', 1);"
        "CREATE TABLE orders_v3 (id int); INSERT INTO orders_v3 VALUES (3)"
    )
    models = Models(connection)
    await models.point(1)
    yield models
    await connection.execute("ROLLBACK")
    await connection.close()


async def test_rights_comments_options_and_views_stay(models: Models) -> None:
    await models.connection.execute(
        "GRANT SELECT ON orders TO pg_monitor; COMMENT ON VIEW orders IS 'all of them';"
        "CREATE VIEW states AS SELECT state FROM orders;"
        "ALTER VIEW orders SET (security_barrier = true)"
    )

    await models.point(2)

    assert await models.values("SELECT * FROM orders") == [(1, "old", "ada")]
    assert await models.values("SELECT * FROM states") == [("old",)]
    [kept] = await models.values(
        "SELECT has_table_privilege('pg_monitor', 'orders', 'SELECT'), "
        "obj_description('orders'::regclass, 'pg_class'), "
        "(SELECT reloptions FROM pg_class WHERE oid = 'orders'::regclass)"
    )
    assert kept == (True, "all of them", ["security_barrier=true"])


@pytest.mark.parametrize(
    ("hanging", "named"),
    [
        ("GRANT SELECT ON orders TO pg_monitor", "the right SELECT of pg_monitor"),
        ("GRANT SELECT (id) ON orders TO PUBLIC", "a right on the column id"),
        ("COMMENT ON VIEW orders IS 'all of them'", "a comment"),
        ("CREATE VIEW states AS SELECT state FROM orders", "the view states"),
        ("CREATE RULE nobody AS ON INSERT TO orders DO INSTEAD NOTHING", "the rule nobody"),
    ],
)
async def test_what_would_go_with_a_column_is_named(
    models: Models, hanging: str, named: str
) -> None:
    await models.connection.execute(hanging)

    with pytest.raises(UsageError, match=f"losing what hangs on it: {named}\\."):
        await models.point(3)


async def test_columns_may_go_where_nothing_hangs(models: Models) -> None:
    await models.point(3)

    assert await models.values("SELECT * FROM orders") == [(3,)]


async def test_an_owner_who_may_not_read_the_table_is_named(models: Models) -> None:
    await models.connection.execute("ALTER VIEW orders OWNER TO pg_monitor")

    with pytest.raises(UsageError, match=r"pg_monitor, who owns .* GRANT SELECT ON orders_v2"):
        await models.point(2)


async def test_a_table_that_is_used_is_not_dropped(models: Models) -> None:
    with pytest.raises(UsageError, match="orders_v1 is still used: view orders depends on"):
        await drop_tables(models.link, ["orders_v3", "orders_v1"])


async def test_who_drops_a_table_does_not_wait_for_its_readers(
    models: Models, new_postgres_url: str
) -> None:
    address, _, schema = new_postgres_url.partition("?schema=")
    await models.connection.execute("COMMIT; BEGIN")
    reader = await asyncpg.connect(address)
    await reader.execute(f"BEGIN; SELECT * FROM {schema}.orders_v3")  # noqa: S608 - a test

    with pytest.raises(BusyTablesError):
        await drop_tables(models.link, [f"{schema}.orders_v3"])

    await reader.close()


async def test_what_is_missing_is_told(models: Models) -> None:
    names = ["orders", "orders_v1", "orders_v9"]

    assert await missing_tables(models.link, names) == ["orders_v9"]
