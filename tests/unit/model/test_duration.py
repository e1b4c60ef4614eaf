"""Durations are read as people write them, and written the way they are read."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.model.duration import LONGEST, duration, spell_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("100ms", timedelta(milliseconds=100)),
        ("0.5ms", timedelta(microseconds=500)),
        ("1h30m", timedelta(minutes=90)),
        ("1h 30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("1.5s", timedelta(seconds=1.5)),
        ("0s", timedelta(0)),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, expected: timedelta) -> None:
    assert duration(text) == expected


def test_a_timedelta_is_a_duration_already() -> None:
    assert duration(timedelta(seconds=3)) == timedelta(seconds=3)


@given(st.timedeltas(min_value=timedelta(0), max_value=LONGEST))
def test_a_duration_reads_back_as_it_was_spelled(span: timedelta) -> None:
    assert duration(spell_duration(span)) == span


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(days=1, hours=2), "1d2h"),
        (timedelta(milliseconds=100), "100ms"),
        (timedelta(microseconds=100), "0.1ms"),
    ],
)
def test_a_duration_is_spelled_with_the_largest_units_first(span: timedelta, text: str) -> None:
    assert spell_duration(span) == text


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "30",
        "s",
        "1x",
        "1s2",
        "1.2.3s",
        "-1s",
        "1e3s",
        "٣s",
        30,
        1.5,
        None,
        True,
        "9" * 400 + "d",
    ],
)
def test_what_is_not_a_duration_is_refused_with_advice(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=r"timeout is .* not a duration; .*30s") as refusal:
        duration(wrong, name="timeout")

    assert repr(wrong) in str(refusal.value)


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be negative"):
        duration(timedelta(seconds=-1))
