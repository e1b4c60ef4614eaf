"""Schedules: what is published by the clock, when, how often, and what people may do about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from redrive import ConfigurationError, Event, NotFoundError, Redrive, Retry
from redrive.app.declaration import Ports
from redrive.errors import StoreUnavailableError
from redrive.observer import ScheduleFailed, StoreLost, TicksLeftOut, TicksPublished
from redrive.policies.schedule import ScheduleState
from redrive.store import Timetable
from redrive.stores.memory import MemoryStore
from redrive.testing import FakeClock, Kit
from tests.app.recorder import Recorder
from tests.waiting import eventually, spend


class Office:
    """Takes reports; it is noon of the first of January 2026."""

    def __init__(self, store: str = "memory://") -> None:
        self.app = Redrive("memory://")
        self.reports: list[Event[Any]] = []
        self.recorder = Recorder()
        self.app.observe(self.recorder)
        self.app.handler("report.*", name="reports")(self.take)
        self.kit = Kit(self.app, store=store)

    async def take(self, event: Event[Any]) -> None:
        self.reports.append(event)

    @property
    def times(self) -> list[str]:
        return [f"{one.occurred_at:%H:%M:%S}" for one in self.reports]


@pytest.fixture
def office() -> Office:
    return Office()


async def test_cron_is_when_events_are_published(store: str) -> None:
    office = Office(store)
    office.app.schedule("*/20 * * * *", "report.due", payload={"kind": "sales"})

    async with office.kit as kit:
        await kit.run_for("1h")

        assert office.times == ["12:20:00", "12:40:00", "13:00:00"]
        first = office.reports[0]
        assert (first.type, first.payload) == ("report.due", {"kind": "sales"})
        assert first.headers == {"redrive-schedule": "report.due"}
        assert first.published_at == first.occurred_at
        told = office.recorder.of(TicksPublished)
        assert [len(one.ticks) for one in told] == [1, 1, 1]


async def test_every_is_how_often_events_are_published(office: Office) -> None:
    office.app.schedule(every="90s", type="report.due")

    async with office.kit as kit:
        await kit.run_for("5m")

        assert office.times == ["12:01:30", "12:03:00", "12:04:30"]


async def test_timezone_is_where_the_times_of_a_day_are_read(office: Office) -> None:
    office.app.schedule("30 14 * * *", "report.due", timezone="Europe/Berlin")

    async with office.kit as kit:
        await kit.run_for("1d")

        assert office.times == ["13:30:00"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_gives_the_payload_of_each_tick(office: Office, *, is_async: bool) -> None:
    if is_async:

        @office.app.schedule("0 * * * *", "report.due", timezone="Europe/Berlin")
        async def compute(at: datetime) -> dict[str, str]:
            return {"at": at.isoformat()}

    else:

        @office.app.schedule("0 * * * *", "report.due", timezone="Europe/Berlin")
        def compute_at_once(at: datetime) -> dict[str, str]:
            return {"at": at.isoformat()}

    async with office.kit as kit:
        await kit.run_for("1h")

        assert [one.payload for one in office.reports] == [{"at": "2026-01-01T14:00:00+01:00"}]


async def test_a_function_that_fails_is_asked_again(office: Office) -> None:
    answers = iter([ConnectionError("no database"), {"count": 1}])

    @office.app.schedule(every="1h", type="report.due")
    def compute(at: datetime) -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with office.kit as kit:
        await kit.drain()
        kit.clock.advance("1h")
        await kit.drain()
        before = len(office.reports)
        kit.clock.advance("2s")
        await kit.drain()

        told = office.recorder.of(ScheduleFailed)
        assert [one.error for one in told] == ["ConnectionError: no database"]
        assert (before, office.times) == (0, ["13:00:00"])


async def test_a_payload_that_is_too_large_is_told(office: Office) -> None:
    @office.app.schedule(every="1h", type="report.due")
    def compute(at: datetime) -> object:
        return "x" * 2_000_000

    async with office.kit as kit:
        await kit.run_for("1h")

        assert "more than the limit" in office.recorder.of(ScheduleFailed)[0].error
        kit.assert_nothing_published()


async def test_name_key_tenant_and_priority_are_those_of_the_events(office: Office) -> None:
    office.app.schedule(
        every="1h", type="report.due", name="hourly", key="sales", tenant="acme", priority=7
    )

    async with office.kit as kit:
        await kit.run_for("1h")

        event = office.reports[0]
        assert (event.key, event.tenant, event.priority) == ("sales", "acme", 7)
        assert event.headers == {"redrive-schedule": "hourly"}


@pytest.mark.parametrize(
    ("missed", "times"),
    [
        ("skip", ["12:00:06", "12:00:07", "12:00:08", "12:00:09", "12:00:10"]),
        ("once", ["12:00:05", "12:00:06", "12:00:07", "12:00:08", "12:00:09", "12:00:10"]),
        ("all", [f"12:00:{n:02}" for n in range(1, 11)]),
    ],
)
async def test_missed_says_what_comes_of_ticks_in_an_outage_of_the_store(
    missed: Any,  # noqa: ANN401 - a word of the option
    times: list[str],
) -> None:
    async with live("1s", missed=missed) as (office, clock, store):
        store.is_down = True
        clock.advance("9500ms")
        await office.recorder.wait_for(StoreLost)
        store.is_down = False
        clock.advance("1s")
        await eventually(lambda: len(office.reports) >= len(times), what="they are published")

        assert office.times == times
        left_out = sum(one.count for one in office.recorder.of(TicksLeftOut))
        assert left_out == 10 - len(times)


async def test_a_worker_wakes_for_each_tick() -> None:
    async with live("1s") as (office, clock, _):
        for number in range(1, 4):
            clock.advance("1s")
            await eventually(partial(has_reports, office, number), what="a tick")

        assert office.times == ["12:00:01", "12:00:02", "12:00:03"]


async def test_a_worker_without_schedules_never_asks_for_them() -> None:
    async with live(None) as (_, clock, store):
        for _ in range(10):
            clock.advance("1s")
            await spend(0)

        assert store.looks == 0


async def test_an_app_with_schedules_alone_has_workers(store: str) -> None:
    app = Redrive("memory://")
    app.schedule(every="1h", type="report.due")

    async with Kit(app, store=store) as kit:
        await kit.run_for("3h")

        kit.assert_published("report.due", times=3)


async def test_overlap_skips_ticks_while_the_last_event_is_under_way(office: Office) -> None:
    tried: list[str] = []

    @office.app.handler("slow.*", retry=Retry(max_attempts=2, base="150s", jitter="none"))
    def slow(event: Event[Any]) -> None:
        tried.append(f"{event.occurred_at:%H:%M}")
        if len(tried) == 1:
            raise ConnectionError("try again later")

    office.app.schedule(every="1m", type="slow.due", overlap="skip")

    async with office.kit as kit:
        await kit.run_for("5m")

        assert tried == ["12:01", "12:01", "12:04", "12:05"]
        told = office.recorder.of(TicksLeftOut)
        assert [(one.count, one.why) for one in told] == [
            (1, "the last event is still under way")
        ] * 2


async def test_pausing_stops_the_ticks_until_it_is_resumed(store: str) -> None:
    office = Office(store)
    office.app.schedule(every="1h", type="report.due")

    async with office.kit as kit:
        operations = kit.operations
        await kit.drain()
        assert await operations.pause_schedule("report.due", by="ada", why="the printer is broken")
        assert not await operations.pause_schedule("report.due", by="ada")
        await kit.run_for("150m")
        paused = await operations.show_schedule("report.due")
        assert await operations.resume_schedule("report.due", by="ada")
        await kit.run_for("1h")

        assert (paused.state, paused.next_at) == (ScheduleState.PAUSED, None)
        assert office.times == ["15:00:00"]
        actions = [one.action for one in await operations.audit() if one.by == "ada"]
        assert actions == ["resume_schedule", "pause_schedule"]


async def test_running_one_now_publishes_its_event_and_leaves_its_ticks(store: str) -> None:
    office = Office(store)
    office.app.schedule(every="1h", type="report.due", payload=1)

    async with office.kit as kit:
        await kit.drain()
        kit.clock.advance("10m")
        assert await kit.operations.run_schedule("report.due", by="ada", why="now, please")
        assert not await kit.operations.run_schedule("report.due", by="ben")
        await kit.drain()
        await kit.run_for("50m")

        assert office.times == ["12:10:00", "13:00:00"]
        assert [one.payload for one in office.reports] == [1, 1]
        assert (await kit.operations.show_schedule("report.due")).run is None


async def test_a_schedule_that_nobody_declares_any_more_has_stopped(office: Office) -> None:
    office.app.schedule(every="1h", type="report.due")
    new = Office()

    async with office.kit as kit:
        kit.connect(new.app)
        await kit.drain()
        kit.clock.advance("3h")
        await new.app.drain()
        [listed] = await kit.operations.schedules()

        assert (listed.name, listed.state, listed.workers) == (
            "report.due",
            ScheduleState.STOPPED,
            0,
        )
        kit.assert_nothing_published()


async def test_other_times_take_effect_when_a_worker_brings_them(office: Office) -> None:
    office.app.schedule(every="1h", type="report.due")
    other = Office()
    other.app.schedule("30 * * * *", "report.due", payload="new")

    async with office.kit as kit:
        kit.connect(other.app)
        await kit.drain()
        kit.clock.advance("10m")
        await other.app.drain()
        kit.clock.advance("20m")
        await other.app.drain()

        assert other.times == ["12:30:00"]
        assert (await kit.operations.show_schedule("report.due")).schedule.cron == "30 * * * *"


async def test_a_worker_without_the_function_leaves_the_tick_to_others(office: Office) -> None:
    office.app.schedule(every="5s", type="report.due", payload="plain")
    other = Office()

    @other.app.schedule(every="5s", type="report.due")
    def compute(at: datetime) -> str:
        return "computed"

    async with office.kit as kit:
        kit.connect(other.app)
        await kit.drain()
        async with other.app.worker():
            await eventually(lambda: in_force(kit, is_computed=True), what="it is in force")
            kit.clock.advance("5s")
            await kit.drain()
            await eventually(lambda: other.reports or office.reports, what="it was published")

        assert [one.payload for one in other.reports + office.reports] == ["computed"]


async def test_names_that_are_not_there_are_told_with_the_nearest(office: Office) -> None:
    office.app.schedule(every="1h", type="report.due", name="nightly")

    async with office.kit as kit:
        await kit.drain()
        with pytest.raises(NotFoundError, match="did you mean 'nightly'"):
            await kit.operations.show_schedule("nightli")
        with pytest.raises(NotFoundError, match="did you mean 'nightly'"):
            await kit.operations.pause_schedule("nightli", by="ada")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"cron": "0 * * * *"}, "needs the type of the events"),
        ({"type": "report.due"}, "needs a cron expression or every="),
        ({"every": "often", "type": "report.due"}, "every is 'often'"),
        ({"every": "500d", "type": "report.due"}, "which is too long"),
        ({"every": "1h", "type": "report.due", "payload": {1, object()}}, "not JSON"),
        ({"every": "1h", "type": "report.due", "tennant": "acme"}, "did you mean 'tenant'"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(
    office: Office, given: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Exception, match=complaint) as refused:
        office.app.schedule(**given)

    assert refused.type.__module__ == "redrive.errors"


def test_two_schedules_of_one_name_are_refused(office: Office) -> None:
    office.app.schedule(every="1h", type="report.due")

    with pytest.raises(ConfigurationError, match="two schedules named"):
        office.app.schedule(every="2h", type="report.due")


def test_a_payload_and_a_function_are_one_too_many(office: Office) -> None:
    with pytest.raises(ConfigurationError, match="a payload and a function"):
        office.app.schedule(every="1h", type="report.due", payload=1)(lambda at: at.isoformat())


def test_a_function_that_takes_no_time_is_refused(office: Office) -> None:
    declare: Any = office.app.schedule(every="1h", type="report.due")

    def compute() -> None: ...

    with pytest.raises(ConfigurationError, match=r"write `def compute\(at: datetime\)`"):
        declare(compute)


class Flaky(MemoryStore):
    """A store that can be out of reach for schedules, and counts who looks at them."""

    is_down = False
    looks = 0

    async def timetable(self, names: Any = None) -> Timetable:  # noqa: ANN401 - as it is
        self.looks += 1
        if self.is_down:
            raise StoreUnavailableError("out of reach")
        return await super().timetable(names)


@asynccontextmanager
async def live(
    every: str | None,
    **options: Any,  # noqa: ANN401 - any option
) -> AsyncIterator[tuple[Office, FakeClock, Flaky]]:
    """Run a worker beside the block, on a clock that obeys, whose schedule is known."""
    office, clock = Office(), FakeClock()
    store = Flaky(clock)
    if every is not None:
        office.app.schedule(every=every, type="report.due", **options)
    with office.app.rewired(Ports(clock=clock), lambda: store):
        async with office.app, office.app.worker():
            if every is not None:
                await eventually(lambda: store.looks > 1, what="the schedule is known")
            yield office, clock, store


def has_reports(office: Office, count: int) -> bool:
    return len(office.reports) == count


async def in_force(kit: Kit, *, is_computed: bool) -> bool:
    kit.clock.advance("1s")
    found = await kit.operations.show_schedule("report.due")
    return found.schedule.is_computed is is_computed
