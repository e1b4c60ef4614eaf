"""Fingerprints: one cause is one group, whatever numbers and ids its failures carry."""

from __future__ import annotations

import string
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import redrive
from redrive.model.outcome import Fault
from redrive.policies.capture import capture
from redrive.policies.fingerprint import GROUPING, fingerprint, grouped
from redrive.policies.wording import normalised


def a_fault(
    message: str = "it hurts",
    *,
    error_class: str = "ValueError",
    stack: str = "",
    code: str = "",
) -> Fault:
    return Fault(error_class=error_class, message=message, rule="default", code=code, stack=stack)


def group_of(fault: Fault, destination: str = "billing") -> str:
    return fingerprint(fault, destination).id


def captured(work: Callable[[], object]) -> Fault:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever it raises
        return capture(error, rule="default")
    raise AssertionError("it should have failed")


def look_up(key: str) -> str:
    order: dict[str, str] = {}
    return order[key]


def stack_of(*frames: tuple[str, str], line: int = 7) -> str:
    lines = [f'  File "{path}", line {line}, in {name}\n    code()' for path, name in frames]
    return "\n".join(["Traceback (most recent call last):", *lines, "ValueError: it hurts"])


words = st.text(string.ascii_letters, min_size=1, max_size=12)
values = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(str),
    st.integers(min_value=0).map(hex),
    st.uuids().map(str),
    st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    st.ip_addresses(v=4).map(str),
    st.builds("{}.{}@{}.example".format, words, words, words),
    st.lists(st.integers(min_value=0), min_size=1).map(str).map(lambda one: one.strip("[]")),
)


@given(before=words, one=values, other=values, after=words)
def test_failures_that_differ_in_a_value_are_one_group(
    before: str, one: str, other: str, after: str
) -> None:
    faults = [a_fault(f"{before} {value} {after}.") for value in (one, other)]

    assert len({fingerprint(fault, "billing").id for fault in faults}) == 1
    assert len({fingerprint(fault, "billing").title for fault in faults}) == 1


@given(one=st.uuids(), other=st.uuids())
def test_an_id_with_a_prefix_is_still_an_id(one: object, other: object) -> None:
    assert group_of(a_fault(f"no order-{one}!")) == group_of(a_fault(f"no order-{other}!"))


@given(one=st.text(st.characters(categories=("L", "N", "Z"))), other=st.text())
def test_what_is_quoted_is_a_value(one: str, other: str) -> None:
    quoted = ["".join(filter(str.isalnum, text)) for text in (one, other)]

    first, second = [a_fault(f'no customer "{text}" here') for text in quoted]

    assert group_of(first) == group_of(second)


@given(
    message=st.text(max_size=5_000),
    error_class=st.text(max_size=300),
    code=st.text(max_size=5),
    stack=st.text(max_size=5_000) | st.text("File \",line in|'\n0a/\\.", max_size=500),
    destination=st.text(max_size=50),
)
def test_any_fault_has_a_group_and_a_bounded_line(
    message: str, error_class: str, code: str, stack: str, destination: str
) -> None:
    found = fingerprint(
        a_fault(message, error_class=error_class, code=code, stack=stack), destination
    )

    assert len(found.id) == 13
    assert found.id.startswith(GROUPING)
    assert set(found.id[1:]) <= set(string.hexdigits.lower())
    assert 0 < len(found.title) <= 200
    assert found.title.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        *("code ", "status [-", "a.1:", ")=(", "“", "``", "x='", "b'", "input_value=", "502 Bad "),
        *("Mon 1 ", "[SQL: ", "\nLINE ", "http://", "::", "'a', ", "a-", "HTTP/1.1 ", "{'", '": "'),
    ],
)
def test_64_kilobytes_of_anything_are_read_in_time(text: str) -> None:
    """In full and not cut to the length that counts: quadratic time would take minutes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("redrive.policies.wording._LONGEST_INPUT", 10**6)
        begun = time.process_time()

        assert normalised(text * (65_536 // len(text)))

        assert time.process_time() - begun < 5


def test_half_a_character_does_no_harm() -> None:
    assert fingerprint(a_fault("\ud800 \x00"), "\udfff").id


@pytest.mark.parametrize("text", ["'", "'a", "a'", " 'a'b", "-", "1,", "@", "/", "a1-", "\"'`"])
def test_a_malicious_message_is_read_in_one_go(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At this length, quadratic time takes many minutes."""
    monkeypatch.setattr("redrive.policies.wording._LONGEST_INPUT", 10**6)
    begun = time.process_time()

    assert len(normalised(text * 50_000)) <= 10**6

    assert time.process_time() - begun < 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("could not convert string to float: '19,90'", "could not convert string to float: '#'"),
        ("no user 0192f3c4-7d1e-7b2a-9c3d-5e6f7a8b9c0d", "no user #"),
        ("<Order object at 0x7f3c5a2b10>", "<Order object at #>"),
        ("took 1.5e-07 s, limit -3", "took # s, limit #"),
        ("at 2026-01-31T14:00:00.123+00:00, again", "at #, again"),
        ("ann.lee@example.org is unknown", "# is unknown"),
        ("10.0.0.17:5432 refused", "# refused"),
        ("db.example:5432 refused", "# refused"),
        ("ids 1, 2, 3 and 4", "ids # and #"),
        ("/srv/data/2026/tmpab_cdefg/in.csv not found", "/srv/data/#/#/in.csv not found"),
        ("GET https://api.example/orders/17?page=2", "GET https://#/orders/#?page=#"),
        ("customer cus_NffrFeUfNV2Hib is gone", "customer cus_# is gone"),
        ("order42 of shop7", "order# of shop#"),
        ("commit 9fceb02 is bad", "commit # is bad"),
        (
            "don't use it, it's \"old\" and can't be 'new'",
            "don't use it, it's \"#\" and can't be '#'",
        ),
        ("an 'open end", "an 'open end"),
        ("no column 'iban'", "no column 'iban'"),
        ("Object missing required field `total`", "Object missing required field `total`"),
        ("Expected `int`, got `str` - at `$.a[17].b`", "Expected `int`, got `str` - at `$.a[#].b`"),
        ("unknown fields 'a', 'b' and 'c'", "unknown fields 'a', 'b' and 'c'"),
        ("'iban' is a required property", "'iban' is a required property"),
        (
            "Field 'id' expected a number but got 'x_y'.",
            "Field 'id' expected a number but got '#'.",
        ),
        ("no address2 in 'address2', 'line17'", "no address# in '#', '#'"),
        ("missing field 'address2'", "missing field 'address2'"),
        (
            "(1062, \"Duplicate entry 'ann_lee' for key 'orders.PRIMARY'\")",
            "(1062, \"Duplicate entry '#' for key 'orders.PRIMARY'\")",
        ),
        ("{'error': 'card declined', 'by': 'ann'}", "{'error': 'card declined', 'by': '#'}"),
        (
            "Client error '401 Unauthorized' for url 'https://api.example/orders/17'",
            "Client error '401 Unauthorized' for url '#'",
        ),
        (
            "502 Server Error: Bad Gateway for url: http://api.example/orders/42",
            "502 Server Error: Bad Gateway for url: http://#/orders/#",
        ),
        ("the gateway answered 503", "the gateway answered 503"),
        ("it answered 502 for order 17", "it answered 502 for order #"),
        ("the query returned 502 rows", "the query returned # rows"),
        ("status=429 for order 17", "status=429 for order #"),
        ("[Errno 111] Connection refused", "[Errno 111] Connection refused"),
        ("502 orders, 401 of them paid", "# orders, # of them paid"),
        ("no order 502", "no order #"),
        ("since Mon, 16 Nov 2026 04:27:23 GMT", "since # # # # GMT"),
        ("in May and on Sunday", "in May and on Sunday"),
        ("no route to 2001:db8::17", "no route to #"),
        ("in shop.py:17", "in shop.py:#"),
        ("two\n\tlines", "two lines"),
        ("", ""),
    ],
)
def test_what_varies_is_replaced(text: str, expected: str) -> None:
    assert normalised(text) == expected


def test_a_missing_key_is_a_name_and_not_a_value() -> None:
    """The field that is missing is the cause; merged, two bugs would look like one."""
    total = captured(lambda: look_up("total"))

    assert normalised(total.message, keeps_names=True) == "'total'"
    assert group_of(total) != group_of(captured(lambda: look_up("price")))


def test_a_missing_key_that_is_an_id_is_a_value() -> None:
    first, second = captured(lambda: look_up("order-17")), captured(lambda: look_up("order-18"))

    assert group_of(first) == group_of(second)


def test_another_class_message_or_destination_is_another_group() -> None:
    faults = [
        a_fault("it hurts"),
        a_fault("it itches"),
        a_fault("it hurts", error_class="KeyError"),
        a_fault("it hurts", stack=stack_of(("/srv/shop.py", "pay"))),
        a_fault("it hurts", stack=stack_of(("/srv/shop.py", "ship"))),
        a_fault("it hurts", stack=stack_of(("/srv/store.py", "ship"))),
    ]

    found = [group_of(fault) for fault in faults] + [group_of(faults[0], "mail")]

    assert len(set(found)) == len(found)


def test_line_numbers_and_folders_make_no_difference() -> None:
    here = a_fault(stack=stack_of(("/srv/a/shop.py", "pay"), line=7))
    there = a_fault(stack=stack_of(("/opt/b/shop.py", "pay"), line=8))

    assert group_of(here) == group_of(there)


@pytest.mark.parametrize(
    "library",
    [
        "/srv/venv/lib/python3.13/site-packages/client/api.py",
        "/usr/lib/python3/dist-packages/client/api.py",
        "/usr/lib/python3.13/json/decoder.py",
        "<frozen importlib._bootstrap>",
    ],
)
def test_the_call_site_is_the_innermost_frame_of_ones_own(library: str) -> None:
    stack = stack_of(("/srv/main.py", "main"), ("/srv/shop.py", "pay"), (library, "request"))

    found = fingerprint(a_fault(stack=stack), "billing")

    assert found.title == "ValueError: it hurts (shop.py, pay)"


def test_a_folder_beside_the_engine_is_ones_own() -> None:
    engine = Path(redrive.__file__).parent
    stack = stack_of((f"{engine}-shop/shop.py", "pay"), (f"{engine}/app.py", "publish"))

    assert fingerprint(a_fault(stack=stack), "billing").title.endswith("(shop.py, pay)")


def test_a_stack_of_foreign_frames_only_still_has_a_site() -> None:
    stack = stack_of(("/usr/lib/python3.13/json/decoder.py", "decode"))

    assert fingerprint(a_fault(stack=stack), "billing").title.endswith("(decoder.py, decode)")


def test_the_site_is_found_in_a_group_of_exceptions() -> None:
    def fail() -> None:
        raise ExceptionGroup("two", [ValueError(1)])

    assert "(test_fingerprint.py, fail)" in fingerprint(captured(fail), "billing").title


def test_answers_are_told_apart_by_status_and_by_the_words_of_the_body() -> None:
    def answer(status: int, body: str) -> str:
        message = f"shop.example answered {status} Bad: {body}"
        fault = a_fault(message, error_class=f"HTTP {status}", code=str(status))
        return group_of(fault)

    declined = answer(422, '{"error":"card declined","request":"8f3a9c2e71"}')

    assert declined == answer(422, '{"error":"card declined","request":"17aa03c9be"}')
    assert declined != answer(422, '{"error":"no such user","request":"8f3a9c2e71"}')
    assert declined != answer(503, '{"error":"card declined","request":"8f3a9c2e71"}')


def test_only_the_start_of_a_body_counts() -> None:
    start = "<html>" + "so sorry " * 50
    faults = [
        a_fault(f"x.example answered 500 Oops: {start}{end}", error_class="HTTP 500", code="500")
        for end in ("one", "other")
    ]

    assert len({group_of(fault) for fault in faults}) == 1


def test_a_grouped_fault_is_the_same_fault_with_its_group() -> None:
    fault = a_fault("no order 17", stack=stack_of(("/srv/shop.py", "pay")))

    found = grouped(fault, "billing")

    assert (found.group, found.title) == (
        group_of(fault),
        "ValueError: no order # (shop.py, pay)",
    )
    assert (found.message, found.stack) == (fault.message, fault.stack)
