"""Auto-replays: when they come due, and which are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from redrive import AutoReplay, ConfigurationError
from redrive.model.replay import ReplayState
from redrive.policies.auto_replay import is_due, next_due
from redrive.store import Replay

QUARTERLY = AutoReplay(cron="*/15 * * * *")


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


def test_auto_replays_are_read_in_utc() -> None:
    from_elsewhere = at("12:00:00").astimezone(UTC)

    assert next_due(AutoReplay(cron="0 13 * * *"), from_elsewhere) == at("13:00:00")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"cron": "every day"}, "cron is 'every day': it has five fields"),
        ({"cron": "* * * * * *"}, "it has five fields"),
        ({"cron": None}, "cron is None"),
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "0 0 31 2 *"}, "bad day-of-month"),
        ({"cron": "0 0 * * *", "batch": 0}, "batch is 0"),
        ({"cron": "0 0 * * *", "cycles": -1}, "cycles is -1"),
        ({"cron": "0 0 * * *", "max_age": "0s"}, "max_age is 0s"),
        ({"cron": "0 0 * * *", "max_age": "old"}, "max_age"),
    ],
)
def test_an_auto_replay_that_makes_no_sense_is_refused(
    given: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        AutoReplay(**given)  # type: ignore[arg-type]


def test_an_auto_replay_survives_being_written_down() -> None:
    auto_replay = AutoReplay(cron="0 3 * * 1", batch=7, max_age="36h", cycles=1)

    read = msgspec.json.decode(msgspec.json.encode(auto_replay), type=AutoReplay)

    assert read == auto_replay
    assert read.max_age == timedelta(hours=36)


def test_what_earlier_releases_wrote_down_is_read() -> None:
    written = b'{"schedule":"0 3 * * *","batch":7}'

    assert msgspec.json.decode(written, type=AutoReplay) == AutoReplay(cron="0 3 * * *", batch=7)


@pytest.mark.parametrize(
    ("by", "is_automatic"), [("auto-replay", True), ("schedule", True), ("anna", False)]
)
def test_replays_that_began_by_themselves_are_told_apart(by: str, *, is_automatic: bool) -> None:
    replay = Replay(
        id=1,
        state=ReplayState.DONE,
        by=by,
        why="",
        started_at=at("12:00:00"),
        changed_at=at("12:00:00"),
        selected=1,
    )

    assert replay.is_automatic is is_automatic
