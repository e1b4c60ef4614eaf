"""The views of read models in SQLite: what hangs on them stays, or nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest

from redrive.errors import UsageError
from redrive.stores.sqlite.views import drop_tables, missing_tables, point_views


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE orders_v1 (id, state); CREATE TABLE orders_v2 (buyer, id)")
    connection.execute("INSERT INTO orders_v1 VALUES (1, 'new')")
    connection.execute("INSERT INTO orders_v2 VALUES ('ada', 1)")
    point_views(connection, ["orders"], 1)
    yield connection
    connection.close()


def test_views_on_a_view_and_its_triggers_stay(connection: apsw.Connection) -> None:
    connection.execute("CREATE VIEW ids AS SELECT id FROM orders")
    connection.execute(
        "CREATE TRIGGER mark INSTEAD OF INSERT ON orders "
        "BEGIN INSERT INTO orders_v1 (id) VALUES (new.id); END"
    )

    point_views(connection, ["orders"], 2)
    connection.execute("INSERT INTO orders (id) VALUES (7)")

    assert connection.execute("SELECT * FROM orders").fetchall() == [("ada", 1)]
    assert connection.execute("SELECT * FROM ids").fetchall() == [(1,)]
    assert connection.execute("SELECT id FROM orders_v1").fetchall() == [(1,), (7,)]


def test_a_view_that_would_break_is_named(connection: apsw.Connection) -> None:
    connection.execute("CREATE VIEW gone AS SELECT n FROM nowhere")
    connection.execute("CREATE VIEW states AS SELECT state FROM orders")

    with pytest.raises(UsageError, match=r"without losing what hangs on it: the view states\."):
        point_views(connection, ["orders"], 2)


def test_a_table_that_is_used_is_not_dropped(connection: apsw.Connection) -> None:
    with pytest.raises(UsageError, match="orders_v1 is still used: the view orders"):
        drop_tables(connection, ["orders_v2", "orders_v1"])


def test_what_is_missing_is_told(connection: apsw.Connection) -> None:
    assert missing_tables(connection, ["orders", "orders_v1", "orders_v3"]) == ["orders_v3"]
