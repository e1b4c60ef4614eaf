"""Payloads: what is taken can be read back, and what cannot be is refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from redrive.errors import PayloadError
from redrive.policies.payload import DEEPEST, check_payload, encode_payload, encode_payloads


def nested(levels: int) -> list[Any]:
    """Return lists within each other, whose innermost is empty."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def in_objects(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"[[": value}
    return value


@pytest.mark.parametrize("make", [nested, in_objects])
def test_a_payload_may_be_so_deep_and_no_deeper(make: Callable[[int], object]) -> None:
    assert msgspec.json.decode(encode_payload(make(DEEPEST))) == make(DEEPEST)

    for levels in (DEEPEST + 1, 500, 985, 5_000):
        with pytest.raises(PayloadError, match="more than 200 levels deep"):
            encode_payload(make(levels))


def test_depth_is_counted_in_brackets_that_are_no_text() -> None:
    wide = {"text": "[{" * 1_000, "rows": [[number] for number in range(1_000)]}

    assert msgspec.json.decode(encode_payload(wide)) == wide


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"1},",
        b'1},"type":"order.forged","x":{"y":1',
        b"NaN",
        b"1e999",
        b"9" * 5_000,
        b'"\xff"',
        b'"\xed\xa0\x80"',
        rb'"\ud800"',
        b'"a\x00b"',
        b"[" * 300 + b"]" * 300,
        b"[" * 3_000 + b"]" * 3_000,
    ],
)
@pytest.mark.parametrize("hide", [lambda raw: raw, lambda raw: {"a": raw}, lambda raw: [[raw]]])
def test_json_that_came_ready_made_is_looked_at_too(
    raw: bytes, hide: Callable[[msgspec.Raw], object]
) -> None:
    with pytest.raises(PayloadError):
        encode_payload(hide(msgspec.Raw(raw)))


@pytest.mark.parametrize(
    "number", [2**64, -(2**70), 10**400, 10**5_000], ids=["64", "70", "t", "T"]
)
def test_a_number_is_taken_only_if_it_can_be_read_back(number: int) -> None:
    try:
        encoded = encode_payload({"n": number})
    except PayloadError:
        return
    assert msgspec.json.decode(encoded) == {"n": number}


def test_json_beside_a_null_stays_as_it_is() -> None:
    assert encode_payload([None, msgspec.Raw(b'{"price": 1.0}')]) == b'[null,{"price": 1.0}]'


numbers = some.integers() | some.floats() | some.integers(min_value=10**300, max_value=10**5_000)
texts = some.text(some.characters(codec=None))
raws = some.binary(max_size=20).map(msgspec.Raw) | some.sampled_from(
    [b"1", b'{"a":1,"a":2}', b"1,2", b'"\\u0000"', b"]", b" 1 ", b"\xef\xbb\xbf1", b"-", b"1e5"]
).map(msgspec.Raw)
leaves = some.none() | some.booleans() | numbers | texts | raws | some.binary(max_size=9)
payloads = some.recursive(
    leaves,
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.dictionaries(texts | some.integers(), inner, max_size=4)
        | some.tuples(inner)
    ),
)


@given(payloads)
def test_whatever_is_taken_can_be_read_back(payload: object) -> None:
    try:
        encoded = encode_payload(payload)
    except PayloadError:
        return
    check_payload(encoded)
    assert b"\x1e" not in encoded
    assert msgspec.json.decode(encoded) == msgspec.json.decode(
        msgspec.json.encode(msgspec.json.decode(encoded))
    )


@given(some.binary() | texts.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_bytes_are_taken_exactly_if_they_are_json(document: bytes) -> None:
    def is_taken(check: Callable[[bytes], object]) -> bool:
        try:
            check(document)
        except (ValueError, PayloadError):
            return False
        return True

    assert is_taken(check_payload) is is_taken(msgspec.json.decode)


@given(some.lists(payloads, max_size=4))
def test_many_are_taken_together_only_as_each_is_alone(several: list[object]) -> None:
    encoded = encode_payloads(several)

    if encoded is not None:
        assert encoded == [encode_payload(one) for one in several]


def test_what_is_usual_is_taken_together() -> None:
    several = [{"order": 1, "note": None}, "left at the door " * 100, [{}] * 300, msgspec.Raw(b"1")]

    assert encode_payloads(several) == [encode_payload(one) for one in several]


@pytest.mark.parametrize(
    "odd",
    [
        float("nan"),
        {"a": [float("inf")]},
        nested(DEEPEST + 1),
        in_objects(5_000),
        object(),
        "\ud800",
        msgspec.Raw(b""),
        msgspec.Raw(b"1 2"),
        msgspec.Raw(b"1\n2"),
        msgspec.Raw(b'["\xff"]'),
    ],
)
def test_many_are_left_to_a_closer_look_for_one_of_them(odd: object) -> None:
    assert encode_payloads([{"order": 1}, odd, None]) is None
