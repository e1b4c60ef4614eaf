"""Difference: what has changed, in few words, for any two payloads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.policies.difference import MOST_CHANGES, difference

values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 0.5]) | st.text("ab é"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab."), inner, max_size=4),
    max_leaves=12,
)


def told(before: object, after: object) -> list[str]:
    changes, _ = difference(before, after)
    marks = {"added": "+", "removed": "-", "changed": "~"}
    return [
        f"{marks[one.kind]} {one.path}: {' -> '.join(v for v in (one.before, one.after) if v)}"
        for one in changes
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2, "b": None}, ["~ a: 1 -> 2", "+ b: null"]),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {}}}, ["- a.b.c: 1"]),
        ([1, 2, 3], [1, 9, 3], ["~ [1]: 2 -> 9"]),
        ([1, 2, 3], [0, 1, 2, 3], ["+ [0]: 0"]),
        ([1, 2, 3], [1, 3], ["- [1]: 2"]),
        (
            {"a b": 1, "c": [{"d": 1}]},
            {"a b": 2, "c": [{"d": 2}]},
            ['~ ["a b"]: 1 -> 2', "~ c[0].d: 1 -> 2"],
        ),
        (1, "1", ['~ $: 1 -> "1"']),
        ({"a": 1}, {"a": True}, ["~ a: 1 -> true"]),
        ({"a": 1}, {"a": 1.0}, ["~ a: 1 -> 1.0"]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
        ({"a": 1}, [1], ['~ $: {"a":1} -> [1]']),
    ],
)
def test_places_that_differ_are_named(before: object, after: object, expected: list[str]) -> None:
    assert told(before, after) == expected


def test_long_values_are_cut_short() -> None:
    (change,), _ = difference({"a": "x" * 10_000}, {"a": 1})

    assert len(change.before) == 200
    assert change.before.endswith("…")


def test_changes_without_number_are_counted_and_not_kept() -> None:
    changes, more = difference({}, {str(number): number for number in range(250)})

    assert (len(changes), more) == (MOST_CHANGES, 150)


def test_what_is_deep_is_compared_as_a_whole() -> None:
    def nested(value: object) -> object:
        for _ in range(500):
            value = {"a": value}
        return value

    changes, more = difference(nested(1), nested(2))

    assert (len(changes), more) == (1, 0)


@given(before=values, after=values)
def test_there_is_a_difference_only_where_there_is_one(before: Any, after: Any) -> None:  # noqa: ANN401 - any JSON
    changes, _ = difference(before, after)
    is_same = msgspec.json.encode(before, order="deterministic") == msgspec.json.encode(
        after, order="deterministic"
    )

    assert (not changes) is is_same
    assert len({one.path for one in changes}) == len(changes)
