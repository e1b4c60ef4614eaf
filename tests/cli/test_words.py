"""How single values look."""

from datetime import UTC, datetime, timedelta

import pytest

from redrive.cli.show.words import ago, counted, first_line, instant, safe, safe_lines, short

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("passed", "expected"),
    [
        (timedelta(0), "just now"),
        (timedelta(milliseconds=-900), "just now"),
        (timedelta(seconds=12.9), "12 s ago"),
        (timedelta(minutes=3, seconds=59), "3 min ago"),
        (timedelta(hours=2), "2 h ago"),
        (timedelta(hours=2, minutes=5), "2 h 5 min ago"),
        (timedelta(days=1), "1 day ago"),
        (timedelta(days=8, hours=3), "8 days 3 h ago"),
        (timedelta(minutes=-3), "in 3 min"),
    ],
)
def test_ago_is_what_a_person_would_say(passed: timedelta, expected: str) -> None:
    assert ago(NOW - passed, NOW) == expected


def test_an_instant_is_said_exactly_and_in_relation() -> None:
    assert instant(NOW - timedelta(minutes=3), NOW) == "2026-01-31 11:57:00 UTC (3 min ago)"


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "-"), (7, "7"), (99_999, "99,999"), (123_456, "123k"), (12_345_678, "12.3M")],
)
def test_a_count_stays_short(count: int, expected: str) -> None:
    assert short(count) == expected


def test_a_counted_word_has_its_plural() -> None:
    assert counted(1, "event") == "1 event"
    assert counted(0, "try", "tries") == "0 tries"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain → ü", "plain → ü"),
        ("two\nlines\tand tabs", "two\\nlines\\tand tabs"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("back\rwards\u202e", "back\\rwards\\u202e"),
        ("c1 \x9b2J", "c1 \\x9b2J"),
    ],
)
def test_only_what_can_be_shown_is_shown(text: str, expected: str) -> None:
    assert safe(text) == expected


def test_lines_may_stay_lines() -> None:
    assert safe_lines("two\nlines\tand \x9b2J") == "two\nlines    and \\x9b2J"


def test_the_first_line_is_the_first_with_something_on_it() -> None:
    assert first_line("\n  \n it broke\nbecause") == "it broke"
    assert first_line("") == ""
