"""The statements for PostgreSQL use nothing that the oldest server we promise does not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redrive.stores.postgres.schema import OLDEST_SERVER

FOLDER = Path(__file__).parents[2] / "src/redrive/stores/postgres"
NEWER = re.compile(
    r"""\b(?:
        BEGIN\s+ATOMIC | OR\s+REPLACE\s+TRIGGER | SEARCH\s+(?:BREADTH|DEPTH)\s+FIRST
        | date_bin | string_to_table | bit_count | trim_array | unistr | \w*multirange\w*
        | MERGE\s+INTO | NULLS\s+NOT\s+DISTINCT | regexp_(?:count|instr|like|substr)
        | security_invoker | ANY_VALUE | IS\s+JSON | JSON_(?:ARRAYAGG|OBJECTAGG|SCALAR|SERIALIZE)
        | JSON_(?:TABLE|EXISTS|QUERY|VALUE) | array_(?:shuffle|sample) | random_normal
        | pg_input_is_valid | MERGE_ACTION | uuidv[47] | array_(?:sort|reverse) | casefold
        | RETURNING\s+WITH | VIRTUAL
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words of PostgreSQL 14 to 18; all have come after 13."""


def statements() -> list[Path]:
    return sorted(path for path in FOLDER.rglob("*") if path.suffix in {".py", ".sql"})


def test_nothing_is_used_that_came_later_than_the_oldest_server() -> None:
    assert OLDEST_SERVER == 13
    found = {
        path.name: [one.group() for one in NEWER.finditer(path.read_text("utf-8"))]
        for path in statements()
    }
    assert len(found) > 30
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "statement",
    [
        "MERGE INTO redrive.keys USING given ON true WHEN MATCHED THEN DO NOTHING",
        "CREATE UNIQUE INDEX one ON redrive.keys (key) NULLS NOT DISTINCT",
        "SELECT any_value(id) FROM redrive.deliveries",
        "SELECT json_table('[]', '$' COLUMNS (id bigint))",
    ],
)
def test_what_came_later_is_found(statement: str) -> None:
    assert NEWER.search(statement)
