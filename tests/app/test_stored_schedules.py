"""Schedules that the store describes: published once, by workers that serve what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redrive import Event, Redrive
from redrive.errors import ConfigurationError, NotFoundError, UsageError
from redrive.operations import GatewayDocument
from redrive.policies.schedule import ScheduleState
from redrive.testing import Kit
from tests.waiting import eventually

WHO = "ada"
HOURLY: dict[str, Any] = {"event": "report.due", "every": "1h", "payload": {"kind": "sales"}}


class Office:
    """Takes reports; it is noon of the first of January 2026."""

    def __init__(self, store: str = "memory://") -> None:
        self.app = Redrive("memory://")
        self.reports: list[Event[Any]] = []
        self.app.handler("report.*", name="reports")(self.take)
        self.kit = Kit(self.app, store=store)

    async def take(self, event: Event[Any]) -> None:
        self.reports.append(event)

    @property
    def times(self) -> list[str]:
        return [f"{one.occurred_at:%H:%M}" for one in self.reports]

    async def pass_time(self, span: str) -> None:
        self.kit.clock.advance(span)
        await self.app.drain(services=True)


@asynccontextmanager
async def office(store: str = "memory://", **schedules: dict[str, Any]) -> AsyncIterator[Office]:
    """An office whose store has schedules, and whose worker has looked at them."""
    found = Office(store)
    async with found.kit:
        for name, document in schedules.items():
            await found.app.operations.save_schedule(name, document, by=WHO, is_new=True)
        await found.app.drain(services=True)
        yield found


async def test_a_stored_schedule_is_published_by_workers_that_serve_services(store: str) -> None:
    async with office(store, hourly=HOURLY) as found:
        await found.pass_time("1h")
        await found.pass_time("1h")
        found.kit.clock.advance("1h")
        await found.app.drain()
        [listed] = await found.app.operations.schedules()

    assert found.times == ["13:00", "14:00"]
    assert found.reports[0].payload == {"kind": "sales"}
    assert found.reports[0].headers == {"redrive-schedule": "hourly"}
    assert (listed.name, listed.schedule.stored, listed.workers) == ("hourly", 1, 0)


async def test_each_tick_is_published_once_by_several_workers(store: str) -> None:
    async with office(store, hourly=HOURLY) as found:
        for _ in range(3):
            found.kit.clock.advance("1h")
            await asyncio.gather(*(found.app.drain(services=True) for _ in range(3)))

    assert found.times == ["13:00", "14:00", "15:00"]


async def test_a_change_takes_effect_and_ticks_from_then_on(store: str) -> None:
    async with office(store, hourly=HOURLY) as found:
        await found.app.operations.alter_schedule(
            "hourly", {"every": None, "cron": "30 * * * *", "payload": 2}, by=WHO, why="earlier"
        )
        await found.pass_time("30m")
        await found.pass_time("30m")
        await found.app.operations.delete_schedule("hourly", by=WHO)
        await found.pass_time("2h")
        versions = await found.app.operations.past_versions("schedule", "hourly")
        said = [one.detail for one in await found.app.operations.audit() if one.by == WHO]
        left = await found.app.operations.schedules()

    assert found.times == ["12:30"]
    assert found.reports[0].payload == 2
    assert [(one.kept.version, one.why) for one in versions] == [(2, "earlier"), (1, "")]
    assert said[0] == "schedule hourly: deleted"
    assert said[1] == (
        'schedule hourly: every: "1h" → nothing; payload: {"kind":"sales"} → 2; '
        'cron: nothing → "30 * * * *"'
    )
    assert said[2] == "schedule hourly: new"
    assert list(left) == []


async def test_a_paused_one_stays_paused_whatever_is_applied() -> None:
    async with office(hourly=HOURLY) as found:
        operations = found.app.operations
        wanted = await operations.export_gateway()
        await operations.pause_schedule("hourly", by=WHO)
        plan = await operations.plan_gateway(wanted)
        other = {"hourly": {**HOURLY, "payload": None}}
        await operations.apply_gateway(GatewayDocument(schedules=other), by=WHO)
        await found.pass_time("1h")
        [paused] = await operations.schedules()
        await operations.run_schedule("hourly", by=WHO)
        await found.app.drain(services=True)
        await operations.resume_schedule("hourly", by=WHO)
        await found.pass_time("1h")

    assert plan.steps == ()
    assert paused.state is ScheduleState.PAUSED
    assert [one.payload for one in found.reports] == [None, None]
    assert found.times == ["13:00", "14:00"]


async def test_who_comes_second_to_a_name_is_refused(store: str) -> None:
    async with office(store) as found:
        found.app.schedule(every="1h", type="report.due", name="hourly")
        operations = found.app.operations
        async with found.app.worker(services=True):
            await eventually(lambda: _is_ticking(found), what="the schedule is known")

            with pytest.raises(ConfigurationError, match="'hourly' belongs to a schedule that an"):
                await operations.save_schedule("hourly", HOURLY, by=WHO)
            with pytest.raises(UsageError, match="a live worker declares the schedule 'hourly'"):
                await operations.delete_schedule("hourly", by=WHO)

        assert await operations.delete_schedule("hourly", by=WHO)
        assert not await operations.delete_schedule("hourly", by=WHO)
        await operations.save_schedule("hourly", HOURLY, by=WHO)
        with pytest.raises(ConfigurationError, match=r"stored \(version 1\); give the schedule of"):
            await found.app.drain()


async def test_an_apply_with_one_name_that_is_taken_changes_nothing(store: str) -> None:
    async with office(store) as found:
        found.app.schedule(every="1h", type="report.due", name="hourly")
        await found.app.drain()
        wanted = GatewayDocument(schedules={"another": HOURLY, "hourly": HOURLY})

        with pytest.raises(ConfigurationError, match="'hourly' belongs to"):
            await found.app.operations.apply_gateway(wanted, by=WHO)

        assert (await found.app.operations.export_gateway()).schedules == {}
        assert [one.name for one in await found.app.operations.schedules()] == ["hourly"]


async def test_names_that_are_not_there_are_told_with_the_nearest() -> None:
    async with office(hourly=HOURLY) as found:
        with pytest.raises(NotFoundError, match="'hurly'; did you mean 'hourly'"):
            await found.app.operations.alter_schedule("hurly", {"priority": 1}, by=WHO)
        with pytest.raises(NotFoundError, match="did you mean 'hourly'"):
            await found.app.operations.past_versions("schedule", "hurly")
        with pytest.raises(UsageError, match="schedule 'hourly' already"):
            await found.app.operations.save_schedule("hourly", HOURLY, by=WHO, is_new=True)


async def _is_ticking(found: Office) -> bool:
    listed = await found.app.operations.schedules()
    return any(one.state is ScheduleState.TICKING for one in listed)
