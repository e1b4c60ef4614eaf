"""What a store promises about trends: older ones take less room, and nothing is counted twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from redrive.model.trend import Measure, TrendPoint
from redrive.store import EVERYWHERE
from tests.conformance.world import World

__all__ = ["TrendConformance"]

_WEEK = timedelta(days=7)
_ONE = Measure(delivered=3, retried=2, failed=1, overdue=7, latencies=(4, 0, 1, *(0,) * 8, 1))


async def _points(
    world: World, name: str = "billing", back: timedelta = _WEEK
) -> Sequence[TrendPoint]:
    return (await world.store.trends([name], back=back)).points[name]


async def _total(world: World, name: str = "billing") -> Measure:
    total = Measure()
    for one in await _points(world, name):
        total += one.measure
    return total


async def _roll_up(world: World) -> None:
    for _ in range(100):
        if not await world.store.roll_up_trends(limit=50):
            return
    raise AssertionError("it never comes to an end")


def _lies_on(start: datetime, minutes: int) -> bool:
    return (start.hour * 60 + start.minute) % minutes == 0 and start.second == 0


class TrendConformance:
    """`Trends`."""

    async def test_what_became_of_deliveries_is_added_up_by_the_minute(self, world: World) -> None:
        minute = world.now.replace(second=0, microsecond=0)
        world.clock.advance(minute + timedelta(minutes=1) - world.now)
        await world.store.add_trends({"billing": _ONE, "mailing": Measure(delivered=1)})
        world.clock.advance("50s")
        await world.store.add_trends({"billing": Measure(delivered=1, overdue=5)})
        world.clock.advance("20s")
        await world.store.add_trends({"billing": Measure(failed=1)})

        kept = await world.store.trends(["billing", EVERYWHERE, "unheard"], back=_WEEK)

        begin, next_one = minute + timedelta(minutes=1), minute + timedelta(minutes=2)
        both = Measure(delivered=4, retried=2, failed=1, overdue=7, latencies=_ONE.latencies)
        failed = TrendPoint(start=next_one, measure=Measure(failed=1))
        assert kept.now == world.now
        assert list(kept.points["billing"]) == [TrendPoint(start=begin, measure=both), failed]
        everywhere = both + Measure(delivered=1)
        assert list(kept.points[EVERYWHERE]) == [
            TrendPoint(start=begin, measure=everywhere),
            failed,
        ]
        assert list(kept.points["unheard"]) == []

    async def test_what_was_added_at_once_is_all_there(self, world: World) -> None:
        await asyncio.gather(*(world.store.add_trends({"billing": _ONE}) for _ in range(5)))

        assert (await _total(world)).delivered == (await _total(world, EVERYWHERE)).delivered == 15

    async def test_trends_are_kept_by_less_time_the_newer_they_are(self, world: World) -> None:
        begun = world.now
        for _ in range(9):
            await world.store.add_trends({"billing": Measure(delivered=1)})
            world.clock.advance("1m")
        await _roll_up(world)
        assert len(await _points(world)) == 9

        world.clock.advance("2h30m")
        await _roll_up(world)
        assert len(await _points(world)) == 9

        world.clock.advance("3h")
        await _roll_up(world)
        points = await _points(world)
        assert len(points) <= 2
        assert all(_lies_on(one.start, 10) for one in points)

        world.clock.advance("2d4h")
        await _roll_up(world)
        points = await _points(world)
        assert len(points) <= 2
        assert all(_lies_on(one.start, 60) for one in points)
        assert points[0].start <= begun < points[0].start + timedelta(hours=1)
        assert (await _total(world)).delivered == (await _total(world, EVERYWHERE)).delivered == 9

    async def test_what_is_rolled_up_is_neither_lost_nor_counted_twice(self, world: World) -> None:
        for name in ("billing", "mailing", "ledger"):
            for _ in range(4):
                await world.store.add_trends({name: _ONE})
                world.clock.advance("7m")
        world.clock.advance("4h")
        await world.store.add_trends({"billing": _ONE})

        await asyncio.gather(*(world.store.roll_up_trends(limit=3) for _ in range(4)))
        await _roll_up(world)
        world.clock.advance("3h")
        await _roll_up(world)

        latencies = tuple(5 * one for one in _ONE.latencies)
        assert await _total(world) == Measure(
            delivered=15, retried=10, failed=5, overdue=7, latencies=latencies
        )
        assert (await _total(world, EVERYWHERE)).delivered == 39

    async def test_trends_are_forgotten_after_a_week(self, world: World) -> None:
        await world.store.add_trends({"billing": _ONE})
        world.clock.advance("6d23h")
        await _roll_up(world)
        assert await _total(world) == _ONE

        world.clock.advance("2d")
        await _roll_up(world)

        assert await _points(world, back=timedelta(days=30)) == []

    async def test_of_a_short_while_little_is_read(self, world: World) -> None:
        await world.store.add_trends({"billing": _ONE})
        world.clock.advance("5h")
        await world.store.add_trends({"billing": Measure(delivered=1)})

        lately = await _points(world, back=timedelta(hours=1))

        assert [one.measure.delivered for one in lately] == [1]
