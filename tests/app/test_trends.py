"""Trends: a worker writes down what became of deliveries, and people look at it later."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from redrive import Event, Redrive, Retry, StoreUnavailableError, Terminal
from redrive.clock import SystemRng
from redrive.errors import NotFoundError, UsageError
from redrive.model.trend import LATENCIES, Measure, Trend
from redrive.stores.memory import MemoryStore
from redrive.testing import Kit
from redrive.testing.clock import FakeClock
from redrive.worker.recorder import Recorder


def shop() -> Redrive:
    app = Redrive("memory://")

    @app.handler("order.*", name="billing", retry=Retry(max_attempts=3))
    async def bill(event: Event[Any]) -> None:
        if event.payload == "terminal":
            raise Terminal("no such customer")
        if event.payload == "always":
            raise ConnectionError("down")

    @app.handler("order.*", name="mail")
    async def mail(event: Event[Any]) -> None: ...

    return app


async def total(kit: Kit, *names: str, over: str = "hour") -> Measure:
    [trend] = await kit.operations.trends(names, over=over)
    return trend.total


async def test_what_became_of_deliveries_is_told_by_destination_and_for_all(store: str) -> None:
    app = shop()
    async with Kit(app, store=store) as kit:
        for payload in ("fine", "fine", "terminal", "always"):
            await app.publish("order.paid", payload)
        await kit.drain(until="1h")

        billing, both = await total(kit, "billing"), await total(kit)
        assert (billing.delivered, billing.retried, billing.failed) == (2, 2, 2)
        assert sum(billing.latencies) == 6
        assert (both.delivered, both.retried, both.failed) == (6, 2, 2)


async def test_what_was_never_tried_has_failed_too() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", "always", deadline="2s")
        await kit.run_for("1m")

        billing = await total(kit, "billing")
        assert (billing.delivered, billing.failed) == (0, 1)


async def test_points_follow_each_other_to_the_present() -> None:
    app = shop()
    async with Kit(app) as kit:
        await app.publish("order.paid", "fine")
        await kit.drain()
        await kit.run_for("30m")
        await app.publish("order.paid", "fine")
        await kit.drain()

        found: dict[str, Trend] = {}
        for window in ("hour", "day", "week"):
            [found[window]] = await kit.operations.trends(["billing"], over=window)

        assert {one: len(trend.points) for one, trend in found.items()} == {
            "hour": 60,
            "day": 144,
            "week": 168,
        }
        for trend in found.values():
            starts = [one.start for one in trend.points]
            assert {b - a for a, b in pairwise(starts)} == {trend.step}
            assert starts[-1] <= trend.now < starts[-1] + trend.step
            assert trend.total.delivered == 2
        assert [one.measure.delivered for one in found["hour"].points if one.measure.delivered] == [
            1,
            1,
        ]


async def test_what_nobody_knows_or_nobody_may_ask_is_refused() -> None:
    app = shop()
    async with Kit(app) as kit:
        await kit.drain()
        assert await total(kit, "billing") == Measure()

        with pytest.raises(NotFoundError, match="did you mean 'billing'"):
            await kit.operations.trends(["biling"])
        with pytest.raises(UsageError, match="hour, day, week; not over 'year'"):
            await kit.operations.trends(over="year")
        with pytest.raises(UsageError, match="name at most 100"):
            await kit.operations.trends("billing")
        with pytest.raises(UsageError, match="name at most 100"):
            await kit.operations.trends([f"d{n}" for n in range(101)])


class Flaky(MemoryStore):
    """A store that is out of reach when somebody writes a trend for the first time."""

    fails = True

    async def add_trends(self, measures: Mapping[str, Measure]) -> None:
        if self.fails:
            self.fails = False
            raise StoreUnavailableError("gone")
        await super().add_trends(measures)


async def test_what_could_not_be_written_is_written_later() -> None:
    app, clock = shop(), FakeClock()
    store = Flaky(clock)
    recorder = Recorder(store, clock, SystemRng())
    async with Kit(app) as kit:
        app.observe(recorder)
        await app.publish("order.paid", "fine")
        await kit.drain()

    with pytest.raises(StoreUnavailableError):
        await recorder.write()
    await recorder.write()
    await recorder.write()

    kept = await store.trends(["billing"], back=clock.now() - clock.now())
    [point] = kept.points["billing"]
    assert point.measure.delivered == 1


@pytest.mark.parametrize(
    ("latencies", "share", "seconds"),
    [
        ((0,) * 12, 0.5, None),
        ((10, *(0,) * 11), 0.5, 0.0025),
        ((0, 10, 10, *(0,) * 9), 0.5, 0.01),
        ((0, 10, 10, *(0,) * 9), 0.75, 0.0175),
        ((*(0,) * 11, 4), 0.95, LATENCIES[-1]),
    ],
)
def test_a_latency_is_read_off_the_buckets(
    latencies: tuple[int, ...], share: float, seconds: float | None
) -> None:
    assert Measure(latencies=latencies).latency(share) == pytest.approx(seconds)
