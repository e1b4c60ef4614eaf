"""Schedules: what people see of them, and what they may do."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from redrive import Redrive
from redrive.model.schedule import Schedule
from redrive.store import Declarer, Store, Ticked
from tests.cli.shell import Shell, Shop

NIGHTLY = Schedule(
    name="nightly",
    type="report.due",
    cron="0 2 * * *",
    timezone="Europe/Berlin",
    payload='{"kind":"sales","password":"hunter2"}',
    tenant="acme",
)


@pytest.fixture
def nightly(shop: Shop) -> Shop:
    """A shop whose worker, alive, declares a schedule."""

    async def declare(app: Redrive) -> None:
        await _store(app).declare_schedules([NIGHTLY], by=Declarer(worker="one"))

    shop.do(declare)
    return shop


def _store(app: Redrive) -> Store:
    session = app._sessions.current()  # noqa: SLF001 - there is no worker that lives long enough
    assert session is not None
    return session.store


def test_schedules_are_listed_with_when_they_tick_next(shell: Shell, nightly: Shop) -> None:
    said = shell("schedule", "list").out

    assert re.search(r"^nightly +ticking +in .* +- +report.due, 0 2 \* \* \*", said, re.MULTILINE)
    [one] = shell("schedule", "list", "--json").json["schedules"]
    assert (one["schedule"]["name"], one["state"], one["workers"]) == ("nightly", "ticking", 1)


def test_one_is_shown_with_all_of_it_but_secrets(shell: Shell, nightly: Shop) -> None:
    said = shell("schedule", "show", "nightly").out

    for word in ("0 2 * * * (Europe/Berlin)", "acme", '"kind":"sales"', "once", "1 live worker"):
        assert word in said
    assert "hunter2" not in said
    assert shell("schedule", "show", "nightly", "--json").json["schedule"]["tenant"] == "acme"
    assert "hunter2" not in shell("schedule", "show", "nightly", "--json").out


def test_a_store_without_schedules_says_so(shell: Shell, shop: Shop) -> None:
    shop.publish(1)

    assert shell("schedule", "list").out.startswith("No schedule yet;")


def test_a_schedule_that_nobody_declares_has_stopped(shell: Shell, nightly: Shop) -> None:
    nightly.do(lambda app: _store(app).retire("one"))

    said = shell("schedule", "list").out

    assert "stopped" in said
    assert "no live worker declares it" in said
    assert "No live worker declares the schedule nightly" in shell("status").out


def test_pausing_resuming_and_running_are_on_record(shell: Shell, nightly: Shop) -> None:
    paused = shell("schedule", "pause", "nightly", "--why", "a move", "--by", "ann")
    again = shell("schedule", "pause", "nightly", "--json")
    listed, status = shell("schedule", "list").out, shell("status").out
    resumed = shell("schedule", "resume", "nightly", "--json")
    not_paused = shell("schedule", "resume", "nightly")
    run = shell("schedule", "run", "nightly")
    twice = shell("schedule", "run", "nightly")

    assert (paused.code, paused.out) == (0, "Paused nightly.\n")
    assert (again.code, again.json) == (1, {"changed": [], "unchanged": ["nightly"]})
    assert "paused by ann" in listed
    assert "The schedule nightly was paused by ann, because: a move." in status
    assert (resumed.code, resumed.json["changed"]) == (0, ["nightly"])
    assert (not_paused.code, not_paused.out) == (1, "nightly was not paused.\n")
    assert run.out.startswith("A worker publishes an event of nightly")
    assert (twice.code, twice.out) == (1, "nightly is about to be run already.\n")
    assert "asked for it" in shell("schedule", "show", "nightly").out
    entries = shell("audit", "--json").json["entries"]
    acts = [one["action"] for one in entries if one["action"].endswith("_schedule")]
    assert acts == ["run_schedule", "resume_schedule", "pause_schedule"]


def test_a_name_that_is_not_there_is_told_with_the_nearest(shell: Shell, nightly: Shop) -> None:
    for command in ("show", "pause", "resume", "run"):
        answer = shell("schedule", command, "nightli")

        assert answer.code == 2
        assert "did you mean 'nightly'?" in answer.err


@pytest.mark.parametrize("command", ["list", "show", "pause", "resume", "run"])
def test_help_has_an_example(shell: Shell, command: str) -> None:
    assert f"\n    redrive schedule {command}" in shell("schedule", command, "--help").out


def test_a_late_tick_is_told(shell: Shell, shop: Shop) -> None:
    async def let_it_be_late(app: Redrive) -> None:
        store = _store(app)
        await store.declare_schedules([NIGHTLY], by=Declarer(worker="one"))
        [known] = (await store.timetable()).schedules
        since = known.standing.since
        ticked = Ticked(schedule="nightly", since=since, until=since - timedelta(days=2))
        await store.publish_ticks(ticked, (), routes_version=0)

    shop.do(let_it_be_late)

    assert "The schedule nightly is late: a tick has been due for" in shell("status").out
