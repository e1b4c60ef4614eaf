"""What a store promises about schedules: a tick is published once, with the schedule's advance."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

import msgspec
import pytest

from redrive.errors import UsageError
from redrive.model.delivery import Status
from redrive.model.schedule import Overlap, Schedule, ScheduleRun, ScheduleStanding
from redrive.model.settlement import Delivered
from redrive.store import Append, Appended, Declarer, Entry, RoutesChanged, Ticked
from tests.conformance.world import OPERATOR, World, an_event, entries, only

__all__ = ["TickConformance"]

_HOURLY = Schedule(name="hourly", type="order.paid", cron="0 * * * *", overlap=Overlap.SKIP)
_ONE = Declarer(worker="one", host="shop-1")


async def _declare(world: World, *schedules: Schedule, by: Declarer = _ONE) -> None:
    await world.store.declare_schedules(schedules or [_HOURLY], by=by)


async def _standing(world: World, name: str = "hourly") -> ScheduleStanding:
    return only((await world.store.timetable([name])).schedules).standing


async def _tick(
    world: World,
    since: datetime,
    until: datetime,
    given: Sequence[Entry] | None = None,
    *,
    run: ScheduleRun | None = None,
) -> Append | None:
    """Publish an event and let the schedule come from one instant to another."""
    if given is None:
        key = f"hourly {until.isoformat()}"
        given = entries(an_event(source="redrive-schedule", idempotency_key=key))
    version = await world.version()
    ticked = Ticked(
        schedule="hourly", since=since, until=until, last_tick=until if given else None, run=run
    )
    return await world.store.publish_ticks(ticked, given, routes_version=version)


class TickConformance:
    """`Schedules`."""

    async def test_a_schedule_counts_from_when_it_is_first_seen(self, world: World) -> None:
        seen_at = world.now

        await _declare(world)
        world.clock.advance("3h")
        await _declare(world)

        standing = await _standing(world)
        assert (standing.since, standing.in_force) == (seen_at, _HOURLY)
        entry = only([one for one in await world.store.audit() if one.action == "declare"])
        assert (entry.detail, entry.why) == ("schedule hourly: new", _ONE.why)

    async def test_the_store_tells_the_time_and_those_asked_for(self, world: World) -> None:
        other = msgspec.structs.replace(_HOURLY, name="another")
        await _declare(world, _HOURLY, other)

        everything, some = await world.store.timetable(), await world.store.timetable(["hourly"])

        assert everything.now == some.now == world.now
        names = [one.standing.name for one in everything.schedules]
        assert (names, len(some.schedules)) == (["another", "hourly"], 1)
        assert (await world.store.timetable(["no such"])).schedules == ()

    async def test_a_tick_and_its_event_are_one(self, world: World) -> None:
        await _declare(world)
        since, until = world.now, world.after("1h")

        appended = await _tick(world, since, until)

        assert isinstance(appended, Appended)
        event = only(await world.logged(1)).event
        standing = await _standing(world)
        assert (standing.since, standing.last_tick) == (until, until)
        assert standing.last_event == event.id
        assert only(await world.found(status=Status.PENDING)).event_id == event.id

    async def test_of_those_who_publish_a_tick_at_once_one_does(self, world: World) -> None:
        await _declare(world)
        since, until = world.now, world.after("1h")

        done = await asyncio.gather(*(_tick(world, since, until) for _ in range(5)))

        assert sum(one is not None for one in done) == 1
        assert len(await world.logged(1)) == 1

    async def test_a_tick_is_not_published_again_when_all_goes_on(self, world: World) -> None:
        await _declare(world)
        since, until = world.now, world.after("1h")
        await _tick(world, since, until)

        again = await _tick(world, since, until, entries(an_event()))

        assert again is None
        assert len(await world.logged(1)) == 1

    async def test_a_schedule_that_fell_back_publishes_no_tick_twice(self, world: World) -> None:
        await _declare(world)
        start, until = world.now, world.after("1h")
        key = {"source": "redrive-schedule", "idempotency_key": "hourly 13:00"}
        first = entries(an_event({"is": "first"}, **key))
        await _tick(world, start, until, first)

        await _tick(world, until, start, ())
        await _tick(world, start, until, entries(an_event({"is": "second"}, **key)))

        assert only(await world.logged(1)).event.id == first[0].event.id
        assert (await _standing(world)).last_event == first[0].event.id

    async def test_what_cannot_be_stored_lets_the_schedule_stay(self, world: World) -> None:
        await _declare(world)
        since, until = world.now, world.after("1h")

        with pytest.raises(UsageError, match="nobody"):
            await _tick(world, since, until, entries(an_event(), to=["nobody"]))

        assert (await _standing(world)).since == since
        assert await world.read_events() == ()

    async def test_old_routes_are_refused_with_the_new_ones(self, world: World) -> None:
        await _declare(world)
        since = world.now
        ticked = Ticked(schedule="hourly", since=since, until=world.after("1h"))

        refused = await world.store.publish_ticks(ticked, entries(an_event()), routes_version=99)

        assert isinstance(refused, RoutesChanged)
        assert (await _standing(world)).since == since

    async def test_a_tick_may_be_left_out(self, world: World) -> None:
        await _declare(world)
        since, until = world.now, world.after("1h")

        assert await _tick(world, since, until, ()) == Appended(())

        standing = await _standing(world)
        assert (standing.since, standing.last_tick) == (until, None)

    async def test_who_waits_for_work_hears_of_a_tick(self, world: World) -> None:
        await _declare(world)
        since, until = world.now, world.after("1h")

        assert await world.wakes(lambda: _tick(world, since, until))

    async def test_deliveries_of_the_last_event_are_told_while_they_run_or_wait(
        self, world: World
    ) -> None:
        await _declare(world)
        before = only((await world.store.timetable()).schedules).is_under_way
        await _tick(world, world.now, world.after("1h"))
        waiting = only((await world.store.timetable()).schedules).is_under_way
        leased = await world.claim_one()
        running = only((await world.store.timetable()).schedules).is_under_way
        await world.settle(leased, Delivered())
        after = only((await world.store.timetable()).schedules).is_under_way

        assert (before, waiting, running, after) == (False, True, True, False)

    async def test_a_paused_schedule_publishes_nothing(self, world: World) -> None:
        await _declare(world)
        since = world.now

        assert await world.store.pause_schedule("hourly", actor=OPERATOR) is True
        assert await world.store.pause_schedule("hourly", actor=OPERATOR) is False
        assert await _tick(world, since, world.after("1h")) is None

        pause = (await _standing(world)).pause
        assert pause is not None
        assert (pause.by, pause.why, pause.at) == (OPERATOR.by, OPERATOR.why, since)
        entry = (await world.store.audit())[0]
        assert (entry.action, entry.detail, entry.by) == ("pause_schedule", "hourly", "ada")

    async def test_what_a_paused_schedule_would_have_ticked_was_not_missed(
        self, world: World
    ) -> None:
        await _declare(world)
        await world.store.pause_schedule("hourly", actor=OPERATOR)
        world.clock.advance("5h")

        assert await world.store.resume_schedule("hourly", actor=OPERATOR) is True
        assert await world.store.resume_schedule("hourly", actor=OPERATOR) is False

        standing = await _standing(world)
        assert (standing.since, standing.pause) == (world.now, None)

    async def test_what_a_person_asks_for_is_published_once_and_moves_no_tick(
        self, world: World
    ) -> None:
        await _declare(world)
        since = world.now
        await world.store.pause_schedule("hourly", actor=OPERATOR)

        assert await world.store.run_schedule("hourly", actor=OPERATOR) is True
        assert await world.store.run_schedule("hourly", actor=OPERATOR) is False
        run = (await _standing(world)).run
        first = await _tick(world, since, since, entries(an_event()), run=run)
        second = await _tick(world, since, since, entries(an_event()), run=run)

        assert run == ScheduleRun(by=OPERATOR.by, why=OPERATOR.why, at=since)
        assert (first is not None, second) == (True, None)
        standing = await _standing(world)
        assert (standing.since, standing.run) == (since, None)
        assert (await world.store.audit())[0].action == "run_schedule"

    async def test_a_tick_leaves_what_a_person_asks_for(self, world: World) -> None:
        await _declare(world)
        await world.store.run_schedule("hourly", actor=OPERATOR)

        await _tick(world, world.now, world.after("1h"))

        assert (await _standing(world)).run is not None

    async def test_nothing_is_done_to_a_schedule_that_is_not_there(self, world: World) -> None:
        store = world.store

        assert await store.pause_schedule("hourly", actor=OPERATOR) is None
        assert await store.resume_schedule("hourly", actor=OPERATOR) is None
        assert await store.run_schedule("hourly", actor=OPERATOR) is None
        assert await _tick(world, world.now, world.after("1h")) is None

    async def test_one_declaration_of_a_schedule_is_in_force(self, world: World) -> None:
        new = msgspec.structs.replace(_HOURLY, cron="30 * * * *")
        two = Declarer(worker="two")
        await _declare(world)
        await _declare(world, new, by=two)
        beside = await _standing_after(world, _HOURLY, _ONE)

        world.clock.advance("16s")
        alone = await _standing_after(world, _HOURLY, _ONE)

        assert (beside.in_force, alone.in_force) == (new, _HOURLY)
        changes = [one.detail for one in await world.store.audit() if one.action == "declare"]
        assert changes[0] == 'schedule hourly: cron: "30 * * * *" → "0 * * * *"'

    async def test_all_who_declare_a_schedule_at_once_are_known(self, world: World) -> None:
        workers = [Declarer(worker=name) for name in "abcd"]

        for _ in range(2):
            await asyncio.gather(*(_declare(world, by=one) for one in workers))

        assert sorted((await _standing(world)).declared) == list("abcd")


async def _standing_after(world: World, declared: Schedule, by: Declarer) -> ScheduleStanding:
    await _declare(world, declared, by=by)
    return await _standing(world)
