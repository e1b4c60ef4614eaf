"""Conditions say which events a rule is about."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from redrive.conditions import CONDITION_NAMES, compile_condition
from redrive.errors import ConditionError, ConfigurationError
from redrive.model.event import NewEvent

PAYLOAD = {
    "amount": 250,
    "paid": True,
    "note": None,
    "customer": {"mail": "ann@example.com", "country": "DE", "_id": 7, "a b": 1},
    "tags": ["vip", "new"],
    "lines": [{"sku": "A"}, {"sku": "B"}],
}
EVENT = NewEvent(
    type="order.paid",
    key="order-42",
    source="shop",
    headers={"x-shop": "north"},
    payload=PAYLOAD,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('type == "order.paid"', True),
        ("type == 'order.paid' and payload.amount >= 100", True),
        ("payload.amount > 250 or payload.amount < 0", False),
        ("payload.amount != 250", False),
        ("payload.amount <= 250.0 and -1 < 0", True),
        ("payload.paid", True),
        ("not payload.paid", False),
        ("not not payload.paid", True),
        ("payload.paid == 1", False),
        ("payload.note == null", True),
        ("tenant == null", True),
        ('severity == "info" and source == "shop"', True),
        ('headers["x-shop"] == "north"', True),
        ('payload.customer.country in ["DE", "AT"]', True),
        ('payload.customer.country not in ["DE", "AT"]', False),
        ("payload.amount in [1, -2, 250, true, null]", True),
        ('"vip" in payload.tags', True),
        ('payload.tags contains "vip"', True),
        ('payload.customer.mail contains "@"', True),
        ('key starts "order-"', True),
        ('key ends "-1"', False),
        ('payload.customer.mail matches "@example\\.com$"', True),
        ("payload.customer.mail matches '^[0-9]+$'", False),
        ("exists payload.customer", True),
        ("exists payload.phone", False),
        ("exists payload.note", False),
        ("not exists payload.phone.number", True),
        ('payload.customer["_id"] == 7 and payload.customer["a b"] == 1', True),
        ('payload.lines[1].sku == "B"', True),
        ("exists payload.lines[2]", False),
        ('payload.customer.mail == payload["customer"]["mail"]', True),
        ("(true or false) and not (false or payload.amount == 1)", True),
        ("true or false and false", True),
        ("exists payload.phone and payload.phone > 1", False),
        ('payload.amount > 1\n  and type == "order.paid"', True),
        ('"a\\"b" == \'a"b\'', True),
        ('type < "p"', True),
    ],
)
def test_it_holds(text: str, expected: bool) -> None:  # noqa: FBT001 - a row of a table
    condition = compile_condition(text)

    assert condition.holds(EVENT) is expected
    written: Any = msgspec.Raw(msgspec.json.encode(PAYLOAD))
    assert condition.holds(msgspec.structs.replace(EVENT, payload=written)) is expected


@pytest.mark.parametrize(
    ("text", "place", "complaint"),
    [
        ("", 1, "it is empty"),
        ("paylod.a == 1", 1, "There is no name 'paylod'; did you mean 'payload'?"),
        ("type == order", 9, "Texts stand in quotes."),
        ("payload.a = 1", 11, "write == to compare."),
        ("payload.a && true", 11, "write and, or, not."),
        ('type == "order', 9, "does not end with it."),
        ("(true", 6, "( at letter 1 is not closed."),
        ("true)", 5, "')' cannot follow here"),
        ("payload.a >", 12, "is missing before the end."),
        ("payload. == 1", 10, "a field follows the dot"),
        ("payload._id == 1", 9, 'write ["_id"]'),
        ("payload[1.5] == 1", 9, "a field's name in quotes or a place"),
        ("payload[-1] == 1", 9, "a field's name in quotes or a place"),
        ("1 in [type]", 7, "a list holds texts, numbers, true, false and null."),
        ("1 in [1 2]", 9, "needs , or ] here."),
        ("- type == 1", 3, "- stands before a number only."),
        ("type matches key", 14, "matches is followed by a pattern in quotes"),
        ('type matches "("', 14, "the pattern is none that RE2 knows: missing )"),
        ('type matches "a{51}"', 14, "repeats something at most 50 times."),
        (f'type matches "{"a" * 501}"', 14, "at most 500 letters"),
        ("type == 1" + "0" * 50, 9, "at most 40 digits"),
        ("type == §", 9, "'§' means nothing here."),
        (f"{'(' * 21}true{')' * 21}", 21, "more than 20 levels deep"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, place: int, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        compile_condition(text)

    assert f"wrong at letter {place}: " in str(caught.value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("payload.phone == 1", "payload.phone is not there."),
        ("payload.lines[9].sku == 1", "payload.lines[9] is not there."),
        ("payload.note.x == 1", "payload.note.x is not there; it is looked for in null."),
        ("payload.amount > key", "a number > text: numbers are compared with numbers"),
        ("payload.amount", "The condition gives a number, neither true nor false"),
        ("payload.amount and true", "a number is neither true nor false"),
        ("not key", "text is neither true nor false"),
        ("payload.amount starts 'a'", "starts works on text, and got a number."),
        ("key in key", "in looks into a list, and got text."),
        ("payload.note matches 'a'", "matches works on text, and got null."),
    ],
)
def test_what_cannot_be_decided_is_said_without_the_value(text: str, complaint: str) -> None:
    with pytest.raises(ConditionError) as caught:
        compile_condition(text).holds(EVENT)

    assert complaint in str(caught.value)


def test_a_long_text_is_not_looked_through() -> None:
    event = NewEvent(type="a", payload={"text": "x" * 70_000, "list": [0] * 10_001})

    for text in ("payload.text contains 'y'", "payload.text matches 'y'", "1 in payload.list"):
        with pytest.raises(ConditionError, match="more than"):
            compile_condition(text).holds(event)


def test_the_payload_is_only_read_where_it_is_asked_for() -> None:
    by_type, by_payload = compile_condition('type == "a"'), compile_condition("payload.a == 1")
    unreadable: Any = msgspec.Raw(b"{")

    assert (by_type.needs_payload, by_payload.needs_payload) == (False, True)
    assert by_type.holds(NewEvent(type="a", payload=unreadable))


def test_it_is_compiled_once_and_shows_its_text() -> None:
    condition = compile_condition("payload.a == 1")

    assert condition is compile_condition("payload.a == 1")
    assert condition.text == "payload.a == 1"
    assert repr(condition) == "Condition('payload.a == 1')"
    assert set(CONDITION_NAMES) <= set(NewEvent.__annotations__)
    with pytest.raises(ConfigurationError, match="A condition is a bool"):
        compile_condition(True)  # noqa: FBT003 - what somebody might write in a file


def test_it_is_decided_within_a_hundred_microseconds() -> None:
    condition = compile_condition(
        'type == "order.paid" and payload.amount >= 100 and payload.customer.country in ["DE", '
        '"AT", "CH"] and key starts "order-" and not exists payload.test and '
        'payload.customer.mail matches "@example\\.com$" and payload.tags contains "vip"'
    )
    assert condition.holds(EVENT)

    took = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(200):
            condition.holds(EVENT)
        took.append((time.process_time() - began) / 200)

    assert min(took) < 0.0001
