"""What the shared statements say in PostgreSQL's words, SQLite says in its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from redrive.stores.sql.session import Either
from redrive.stores.sqlite.dialect import bound, rewritten


@pytest.mark.parametrize(
    ("shared", "here"),
    [
        ("SELECT $1, $12", "SELECT ?1, ?12"),
        ("FROM redrive.events e", "FROM redrive_events e"),
        ("id = ANY ($1::bigint[])", "id IN (SELECT value FROM json_each(?1))"),
        ("NOT IN (SELECT unnest($1::bigint[]))", "NOT IN (SELECT value FROM json_each(?1))"),
        ("WHERE a = 1 FOR NO KEY UPDATE OF d, e SKIP LOCKED", "WHERE a = 1"),
        ("redrive.events e /* by of_key */", "redrive_events e INDEXED BY redrive_of_key"),
        ("SELECT 1 FOR UPDATE", "SELECT 1"),
        ("document::json ->> 'order'", "document ->> 'order'"),
        ('ORDER BY name COLLATE "C"', "ORDER BY name"),
        ("EXISTS (SELECT FROM redrive.keys)", "EXISTS (SELECT 1 FROM redrive_keys)"),
        ("greatest(a, least(b, c))", "max(a, min(b, c))"),
        ("json_agg(json_build_array(a, b))", "json_group_array(json_array(a, b))"),
        ("convert_to(d.payload, 'UTF8')", "CAST(d.payload AS BLOB)"),
        ("e.type LIKE $1", "e.type GLOB ?1"),
        ("is_ready = true AND is_behind = false", "is_ready = 1 AND is_behind = 0"),
        ("coalesce($1::timestamptz, clock_timestamp())", "coalesce(?1, NULL)"),
        (
            "UPDATE a AS d SET b = d.c RETURNING d.id, d.b > 1",
            "UPDATE a AS d SET b = d.c RETURNING id, b > 1",
        ),
        (
            "FROM json_to_recordset($2::json) AS given (id bigint, at timestamptz)",
            "FROM (SELECT value ->> 'id' AS id, value ->> 'at' AS at FROM json_each(?2)) AS given",
        ),
    ],
)
def test_a_shared_statement_is_rewritten(shared: str, here: str) -> None:
    assert rewritten(shared) == here


def test_of_a_statement_in_two_forms_its_own_is_taken() -> None:
    assert rewritten(Either(sqlite="SELECT +a", postgres="SELECT a + 0")) == "SELECT +a"


def test_a_part_in_two_forms_makes_a_statement_of_two() -> None:
    whole = Either(sqlite="+a", postgres="a + 0").within("SELECT {}, {} FROM redrive.keys")

    assert whole.postgres == "SELECT a + 0, a + 0 FROM redrive.keys"
    assert rewritten(whole) == "SELECT +a, +a FROM redrive_keys"


def test_times_and_spans_are_kept_as_microseconds_and_lists_as_json() -> None:
    at = datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC)

    assert bound(at) == 1_000_005
    assert bound(timedelta(days=-1, microseconds=3)) == -86_399_999_997
    assert bound([1, at, "a"]) == '[1,1000005,"a"]'
    assert bound(None) is None
