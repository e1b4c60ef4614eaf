"""Schedules: which ticks there are, also when clocks are set, and which of them are published."""

from __future__ import annotations

import itertools
import zoneinfo
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from redrive import ConfigurationError
from redrive.model.gate import Pause
from redrive.model.schedule import Missed, Overlap, Schedule, ScheduleStanding
from redrive.policies.declaring import brought_schedule, schedule_changed
from redrive.policies.schedule import (
    MOST_AT_ONCE,
    MOST_MISSED,
    DueTicks,
    ScheduleState,
    due_ticks,
    next_tick,
    state_of,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECONDLY = Schedule(name="a", type="a", every=timedelta(seconds=1))
LEASE = timedelta(seconds=15)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def cron(expression: str, timezone: str = "Europe/Berlin") -> Schedule:
    return Schedule(name="a", type="a", cron=expression, timezone=timezone)


def ticks(schedule: Schedule, after: str, count: int) -> list[str]:
    """Return ticks one after the other, each found from the one before, as workers do."""
    found, since = [], at(after)
    for _ in range(count):
        since = next_tick(schedule, since)
        found.append(since.astimezone(schedule.zone).isoformat())
    return found


def due(schedule: Schedule, since: datetime, now: datetime, *, busy: bool = False) -> DueTicks:
    found = due_ticks(schedule, since, now, is_under_way=busy)
    assert found is not None
    return found


def with_(schedule: Schedule, **fields: object) -> Schedule:
    return msgspec.structs.replace(schedule, **fields)


def test_a_time_that_does_not_exist_in_spring_comes_when_the_clock_was_set() -> None:
    assert ticks(cron("30 2 * * *"), "2026-03-28T00:00+00:00", 3) == [
        "2026-03-28T02:30:00+01:00",
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_that_comes_twice_in_autumn_ticks_once() -> None:
    assert ticks(cron("30 2 * * *"), "2026-10-24T22:00+00:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    between_the_two = at("2026-10-25T01:10+00:00")
    assert next_tick(cron("30 2 * * *"), between_the_two) == at("2026-10-26T02:30+01:00")


def test_every_hour_ticks_in_each_hour_there_is() -> None:
    spring = ticks(cron("0 * * * *"), "2026-03-28T23:30+00:00", 3)
    autumn = ticks(cron("0 * * * *"), "2026-10-24T23:30+00:00", 3)

    assert [one[11:] for one in spring] == ["01:00:00+01:00", "03:00:00+02:00", "04:00:00+02:00"]
    assert [one[11:] for one in autumn] == ["02:00:00+02:00", "02:00:00+01:00", "03:00:00+01:00"]


def test_zones_whose_clocks_are_set_by_half_an_hour_have_all_their_quarters() -> None:
    lord_howe = cron("*/15 * * * *", "Australia/Lord_Howe")

    found = [at(one) for one in ticks(lord_howe, "2026-04-04T13:00+00:00", 20)]

    steps = {(later - one) for one, later in itertools.pairwise(found)}
    assert steps == {timedelta(minutes=15)}


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_every_so_often_does_not_mind_clocks_that_are_set(day: str) -> None:
    quarterly = Schedule(name="a", type="a", every=timedelta(minutes=15))

    found = [at(one) for one in ticks(quarterly, f"{day}T00:00+00:00", 12)]

    assert found == [at(f"{day}T00:00+00:00") + n * timedelta(minutes=15) for n in range(1, 13)]


def test_a_day_of_another_zone_begins_there() -> None:
    assert next_tick(cron("0 0 * * *", "Asia/Kolkata"), NOON) == at("2026-01-01T18:30+00:00")


def test_zones_are_known_without_those_of_the_system() -> None:
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(())
    zoneinfo.ZoneInfo.clear_cache()
    try:
        assert ticks(cron("30 2 * * *"), "2026-03-29T00:00+00:00", 1)[0].endswith("03:00:00+02:00")
    finally:
        zoneinfo.reset_tzpath(before)
        zoneinfo.ZoneInfo.clear_cache()


def test_nothing_is_due_before_the_first_tick() -> None:
    assert due_ticks(SECONDLY, NOON, NOON + timedelta(milliseconds=999), is_under_way=False) is None


def test_late_ticks_are_published_each_whatever_the_policy() -> None:
    for missed in Missed:
        found = due(with_(SECONDLY, missed=missed), NOON, NOON + timedelta(seconds=3.2))

        assert found.ticks == tuple(NOON + timedelta(seconds=n) for n in (1, 2, 3))
        assert (found.missed, found.left_out) == (0, 0)


@pytest.mark.parametrize(
    ("missed", "seconds", "left_out"),
    [
        (Missed.SKIP, [6, 7, 8, 9, 10], 5),
        (Missed.ONCE, [5, 6, 7, 8, 9, 10], 4),
        (Missed.ALL, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0),
    ],
)
def test_missed_ticks_go_by_their_policy(missed: Missed, seconds: list[int], left_out: int) -> None:
    found = due(with_(SECONDLY, missed=missed), NOON, NOON + timedelta(seconds=10.5))

    assert found.ticks == tuple(NOON + timedelta(seconds=n) for n in seconds)
    assert (found.until, found.missed, found.left_out) == (
        NOON + timedelta(seconds=10),
        5,
        left_out,
    )


def test_of_very_many_the_latest_are_published_in_turn() -> None:
    schedule, now = with_(SECONDLY, missed=Missed.ALL), NOON + timedelta(hours=2)

    since = NOON
    found: list[datetime] = []
    for _ in range(MOST_MISSED // MOST_AT_ONCE):
        part = due(schedule, since, now)
        assert len(part.ticks) == MOST_AT_ONCE
        assert part.has_more is (since == NOON)
        since = part.until
        found += part.ticks

    assert found == [now - n * timedelta(seconds=1) for n in range(MOST_MISSED - 1, -1, -1)]
    assert due_ticks(schedule, since, now, is_under_way=False) is None


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    ("expression", "count", "has_more"), [("* * * * *", 2, True), ("0 3 1 * *", 1, False)]
)
def test_years_of_missed_ticks_are_looked_at_no_longer_than_need_be(
    expression: str, count: int, *, has_more: bool
) -> None:
    found = due(cron(expression), NOON - timedelta(days=3_650), NOON)

    assert (len(found.ticks), found.has_more) == (count, has_more)


def test_what_overlaps_is_left_out_while_the_last_one_is_under_way() -> None:
    apart = with_(SECONDLY, overlap=Overlap.SKIP)
    now = NOON + timedelta(seconds=2)

    busy, free = due(apart, NOON, now, busy=True), due(apart, NOON, now)

    assert (busy.ticks, busy.until, busy.overlapping) == ((), now, 2)
    assert (free.ticks, free.until, free.overlapping) == ((now,), now, 1)


def test_what_may_overlap_does() -> None:
    assert len(due(SECONDLY, NOON, NOON + timedelta(seconds=2), busy=True).ticks) == 2


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "@hourly"}, "it has five fields"),
        ({"cron": "* * * * *", "every": timedelta(seconds=1)}, "and not both"),
        ({}, "needs a cron expression or every="),
        ({"every": timedelta(milliseconds=500)}, "at most once a second"),
        ({"every": timedelta(days=1), "timezone": "Europe/Berlin"}, "every=, which counts in UTC"),
        ({"cron": "* * * * *", "timezone": "Europe/Berlim"}, "timezone is 'Europe/Berlim'"),
        ({"cron": "* * * * *", "timezone": ""}, "timezone is ''"),
        ({"cron": "* * * * *", "type": "not a type"}, "The event type is"),
        ({"cron": "* * * * *", "name": "a b"}, "The schedule's name is 'a b'"),
        ({"cron": "* * * * *", "missed": "never"}, "missed is 'never'; it is one of skip"),
        ({"cron": "* * * * *", "overlap": "no"}, "overlap is 'no'; it is one of allow"),
        ({"cron": "* * * * *", "priority": 200}, "priority is 200"),
        ({"cron": "* * * * *", "missed": "all", "overlap": "skip"}, "all of them would"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(
    fields: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Schedule(**{"name": "a", "type": "a", **fields})  # type: ignore[arg-type]


def test_a_schedule_survives_being_written_down() -> None:
    schedule = Schedule(
        name="a", type="b", cron="0 3 * * *", timezone="Europe/Berlin", missed=Missed.ALL, key="k"
    )

    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


def brought(
    before: ScheduleStanding | None,
    declared: Schedule,
    worker: str = "one",
    others: tuple[str, ...] = (),
    *,
    now: datetime = NOON,
) -> ScheduleStanding:
    return brought_schedule(before, declared, worker=worker, others=others, now=now, lease=LEASE)


def test_one_never_seen_is_in_force_at_once() -> None:
    old, new = cron("0 1 * * *"), cron("0 2 * * *")
    first = brought(None, old)

    after = brought(first, new, "two", ("one",))

    assert after.in_force == new
    assert schedule_changed(first, after) == 'schedule a: cron: "0 1 * * *" → "0 2 * * *"'


def test_one_seen_before_waits_until_nobody_declares_what_is_in_force() -> None:
    old, new = cron("0 1 * * *"), cron("0 2 * * *")
    standing = brought(brought(None, old), new, "two", ("one",))

    beside = brought(standing, old, "one", ("two",))
    alone = brought(standing, old, "one")

    assert (beside.in_force, alone.in_force) == (new, old)
    assert alone.returned_at == NOON


def test_releases_that_take_turns_at_crashing_change_it_once_a_lease() -> None:
    old, new = cron("0 1 * * *"), cron("0 2 * * *")
    back = brought(brought(brought(None, old), new, "two"), old, "three")

    soon = brought(back, new, "four", now=NOON + timedelta(seconds=1))
    later = brought(back, new, "four", now=NOON + LEASE)

    assert (soon.in_force, later.in_force) == (old, new)


def test_other_times_count_from_when_they_are_in_force() -> None:
    standing = brought(None, cron("0 1 * * *"))
    later = NOON + timedelta(days=1)

    same_times = brought(standing, with_(cron("0 1 * * *"), payload="1"), now=later)
    other_times = brought(standing, cron("0 2 * * *"), now=later)

    assert (same_times.since, other_times.since) == (NOON, later)


def test_workers_that_are_gone_are_forgotten() -> None:
    standing = brought(brought(None, SECONDLY, "one"), SECONDLY, "two", ("one",))

    after = brought(standing, SECONDLY, "three", ("two",))

    assert sorted(after.declared) == ["three", "two"]


@pytest.mark.parametrize(
    ("fields", "is_declared", "state"),
    [
        ({}, True, ScheduleState.TICKING),
        ({"since": NOON - timedelta(minutes=1)}, True, ScheduleState.LATE),
        ({}, False, ScheduleState.STOPPED),
        ({"pause": Pause(by="ada", why="", at=NOON)}, True, ScheduleState.PAUSED),
    ],
)
def test_how_a_schedule_fares_is_told(
    fields: dict[str, object], state: ScheduleState, *, is_declared: bool
) -> None:
    standing = with_standing(**fields)

    assert state_of(standing, NOON, is_declared=is_declared) is state


def with_standing(**fields: object) -> ScheduleStanding:
    return msgspec.structs.replace(ScheduleStanding(in_force=SECONDLY, since=NOON), **fields)
