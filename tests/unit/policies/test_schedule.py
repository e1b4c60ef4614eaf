"""Schedules: when they come due, and which are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from redrive import AutoReplay, ConfigurationError
from redrive.policies.schedule import is_due, next_due

QUARTERLY = AutoReplay(schedule="*/15 * * * *")


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-01T{text}+00:00")


@pytest.mark.parametrize(
    ("after", "due"),
    [("12:00:00", "12:15:00"), ("12:14:59.999999", "12:15:00"), ("12:15:00.000001", "12:30:00")],
)
def test_the_next_due_time_lies_behind_the_last(after: str, due: str) -> None:
    assert next_due(QUARTERLY, at(after)) == at(due)


def test_a_due_time_counts_once_however_late_it_is_seen() -> None:
    assert not is_due(QUARTERLY, at("12:00:00"), at("12:14:59"))
    assert is_due(QUARTERLY, at("12:00:00"), at("12:15:00"))
    assert is_due(QUARTERLY, at("12:00:00"), at("18:00:00"))
    assert not is_due(QUARTERLY, at("18:00:00"), at("18:14:00"))


def test_schedules_are_read_in_utc() -> None:
    from_elsewhere = at("12:00:00").astimezone(UTC)

    assert next_due(AutoReplay(schedule="0 13 * * *"), from_elsewhere) == at("13:00:00")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"schedule": "every day"}, "schedule is 'every day': it has five fields"),
        ({"schedule": "* * * * * *"}, "it has five fields"),
        ({"schedule": None}, "schedule is None"),
        ({"schedule": "61 * * * *"}, "bad minute"),
        ({"schedule": "0 0 31 2 *"}, "bad day-of-month"),
        ({"schedule": "0 0 * * *", "batch": 0}, "batch is 0"),
        ({"schedule": "0 0 * * *", "cycles": -1}, "cycles is -1"),
        ({"schedule": "0 0 * * *", "max_age": "0s"}, "max_age is 0s"),
        ({"schedule": "0 0 * * *", "max_age": "old"}, "max_age"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(
    given: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        AutoReplay(**given)  # type: ignore[arg-type]


def test_a_schedule_survives_being_written_down() -> None:
    schedule = AutoReplay(schedule="0 3 * * 1", batch=7, max_age="36h", cycles=1)

    read = msgspec.json.decode(msgspec.json.encode(schedule), type=AutoReplay)

    assert read == schedule
    assert read.max_age == timedelta(hours=36)
