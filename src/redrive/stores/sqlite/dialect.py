"""How SQLite says what the shared statements say in PostgreSQL's words."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from redrive.stores.codec import json_text, micros
from redrive.stores.sql.session import Either

__all__ = ["AS_THEY_ARE", "bound", "rewritten"]

AS_THEY_ARE = frozenset((bool, bytes, float, int, str, type(None)))
_TIMES = frozenset((datetime, timedelta))


_TABLE = re.compile(r"\b\w+\.(?=\w)")


def _unqualified(found: re.Match[str]) -> str:
    """Return a list of columns without the name of their table."""
    return _TABLE.sub("", found[0])


_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # There are no arrays: many values come as the text of a JSON list.
        (r"= ANY \((\$\d+)(?:::\w+\[\])?\)", r"IN (SELECT value FROM json_each(\1))"),
        (r"\(SELECT unnest\((\$\d+)(?:::\w+\[\])?\)\)", r"(SELECT value FROM json_each(\1))"),
        # A statement has the one write lock: there are no rows to lock.
        (r"\s+FOR (?:NO KEY )?UPDATE(?: OF \w+(?:, \w+)*)?(?: SKIP LOCKED)?", ""),
        # An index is named where the planner would take another.
        (r"/\* by (\w+) \*/", r"INDEXED BY redrive_\1"),
        # What is no JSON says nothing.
        (r"\bredrive\.readable\(([\w.]+)\)", r"iif(json_valid(\1), \1, '{}')"),
        # No table is in a schema; texts are compared as they are, and any column takes any value.
        (r"\bredrive\.(?=\w)", "redrive_"),
        (r' COLLATE "C"', ""),
        (r"::\w+(?:\[\])?", ""),
        (r"\bconvert_to\(([\w.]+), 'UTF8'\)", r"CAST(\1 AS BLOB)"),
        (r"\bLIKE\b", "GLOB"),
        (r"\bRETURNING [^;]*", _unqualified),
        (r"\bSELECT FROM\b", "SELECT 1 FROM"),
        (r"\bgreatest\(", "max("),
        (r"\bleast\(", "min("),
        (r"\bstrpos\(", "instr("),
        (r"\bjson_agg\(", "json_group_array("),
        (r"\bjson_build_array\(", "json_array("),
        (r"\bjson_build_object\(", "json_object("),
        # An index of some rows is used only where its condition is said in the same words.
        (r"= true\b", "= 1"),
        (r"= false\b", "= 0"),
        # The present is always given: nobody else has a clock.
        (r"\bclock_timestamp\(\)", "NULL"),
        (r"\$(\d+)", r"?\1"),
    )
)
_RECORDS = re.compile(r"json_to_recordset\((\$\d+)::json\) AS (\w+) \(([^)]*)\)")


@lru_cache(maxsize=1_000)
def rewritten(statement: str | Either) -> str:
    """Return a shared statement as SQLite reads it.

    >>> rewritten("SELECT id FROM redrive.events WHERE id = ANY ($1::uuid[]) FOR UPDATE")
    'SELECT id FROM redrive_events WHERE id IN (SELECT value FROM json_each(?1))'
    """
    words = statement.sqlite if isinstance(statement, Either) else statement
    words = _RECORDS.sub(_columns, words)
    for pattern, replacement in _RULES:
        words = pattern.sub(replacement, words)
    return words


def _columns(found: re.Match[str]) -> str:
    value, name, columns = found.groups()
    names = [column.split()[0] for column in columns.split(",")]
    read = ", ".join(f"value ->> '{one}' AS {one}" for one in names)
    return f"(SELECT {read} FROM json_each({value})) AS {name}"


def bound(value: object) -> Any:  # noqa: ANN401 - what apsw takes
    """Return a value as it is kept: times and spans as whole microseconds, lists as JSON."""
    if type(value) in AS_THEY_ARE:
        return value
    if isinstance(value, datetime):
        return micros(value)
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, (list, tuple)):
        has_times = not _TIMES.isdisjoint(map(type, value))
        return json_text([bound(one) for one in value] if has_times else value)
    return value
