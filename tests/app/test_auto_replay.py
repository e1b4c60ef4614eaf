"""Automatic replay: dead letters that are sent again by an auto-replay, within bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redrive import (
    AutoReplay,
    Breaker,
    ConfigurationError,
    Event,
    NewEvent,
    Redrive,
    Retry,
    Terminal,
)
from redrive.observer import ReplayStarted
from redrive.testing import Kit
from tests.app.recorder import Recorder

HOURLY = "0 * * * *"


class Shop:
    """Billing that is down until it is mended, and replayed by itself; it is noon."""

    def __init__(self, store: str, auto_replay: AutoReplay | None, **options: Any) -> None:  # noqa: ANN401 - any option
        self.app = Redrive("memory://")
        self.is_mended = False
        self.received: list[int] = []
        self.tried = 0
        declare: Any = self.app.handler
        declare(
            "order.*",
            name="billing",
            retry=Retry(max_attempts=1),
            auto_replay=auto_replay,
            replay_rate=None,
            **options,
        )(self.bill)
        self.recorder = Recorder()
        self.app.observe(self.recorder)
        self.kit = Kit(self.app, store=store)

    async def bill(self, event: Event[Any]) -> None:
        self.tried += 1
        if not self.is_mended:
            raise Terminal("down")
        self.received.append(event.payload)

    async def fail(self, count: int) -> None:
        await self.app.publish_many(
            [NewEvent(type="order.paid", payload=number) for number in range(count)]
        )
        await self.kit.drain()


async def test_a_destination_without_an_auto_replay_is_left_alone(store: str) -> None:
    shop = Shop(store, None)
    async with shop.kit:
        await shop.fail(3)
        shop.is_mended = True

        await shop.kit.run_for("30d")

        assert shop.received == []
        assert list(await shop.kit.operations.replays()) == []


async def test_cron_is_when_dead_letters_are_sent_again(store: str) -> None:
    shop = Shop(store, AutoReplay(cron="30 14 * * *"))
    async with shop.kit:
        await shop.fail(3)
        shop.is_mended = True

        await shop.kit.run_for("2h29m")
        before = list(shop.received)
        [auto_replay] = await shop.kit.operations.auto_replays()
        await shop.kit.run_for("1m")

        [replay] = await shop.kit.operations.replays()
        assert (before, shop.received) == ([], [0, 1, 2])
        assert auto_replay.next_at.isoformat() == "2026-01-01T14:30:00+00:00"
        assert (replay.by, replay.why, replay.state) == ("auto-replay", "30 14 * * *", "done")
        assert (replay.selected, replay.delivered) == (3, 3)
        [entry] = await shop.kit.operations.audit()
        assert (entry.action, entry.by, entry.count) == ("start_replay", "auto-replay", 3)
        assert len(shop.recorder.of(ReplayStarted)) == 1


async def test_batch_bounds_what_one_run_takes(store: str) -> None:
    shop = Shop(store, AutoReplay(cron=HOURLY, batch=2))
    async with shop.kit:
        await shop.fail(5)
        shop.is_mended = True
        received = []

        for _ in range(3):
            await shop.kit.run_for("1h")
            received.append(len(shop.received))

    assert received == [2, 4, 5]


async def test_max_age_leaves_what_is_old_for_a_person(store: str) -> None:
    shop = Shop(store, AutoReplay(cron="0 0 * * *", max_age="1d"))
    async with shop.kit:
        await shop.fail(2)
        await shop.kit.operations.pause("billing", by="ada")
        await shop.kit.run_for("25h")
        shop.is_mended = True
        await shop.kit.operations.resume("billing", by="ada")

        await shop.kit.run_for("3d")

        assert shop.received == []
        assert len(shop.kit.dead_letters()) == 2


async def test_cycles_bounds_how_often_one_letter_is_sent(store: str) -> None:
    shop = Shop(store, AutoReplay(cron=HOURLY, cycles=3))
    async with shop.kit:
        await shop.fail(1)

        await shop.kit.run_for("1d")

        [dead] = shop.kit.dead_letters()
        assert (shop.tried, dead.auto_replays) == (1 + 3, 3)
        assert [one.replayed_by for one in dead.cycles] == ["auto-replay"] * 3


async def test_nothing_is_sent_while_the_destination_is_held(store: str) -> None:
    """The due time is not lost: it counts as soon as the destination is free."""
    shop = Shop(store, AutoReplay(cron="0 13 * * *"), breaker=Breaker())
    async with shop.kit:
        await shop.fail(2)
        shop.is_mended = True
        act = shop.kit.operations

        await act.open_breaker("billing", by="ada")
        await shop.kit.run_for("90m")
        while_open = len(await act.replays())
        await act.reset_breaker("billing", by="ada")
        await act.pause("billing", by="ada")
        await shop.kit.drain()
        while_paused = len(await act.replays())
        await act.resume("billing", by="ada")
        await shop.kit.drain()

        assert (while_open, while_paused) == (0, 0)
        assert shop.received == [0, 1]


async def test_of_many_workers_one_starts_it(store: str) -> None:
    shop = Shop(store, AutoReplay(cron=HOURLY))
    async with shop.kit:
        await shop.fail(4)
        shop.is_mended = True
        shop.kit.clock.advance("2h")

        await asyncio.gather(*[shop.app.drain() for _ in range(4)])

        assert len(await shop.kit.operations.replays()) == 1
        assert sorted(shop.received) == [0, 1, 2, 3]


def test_an_auto_replay_that_is_none_is_refused() -> None:
    app = Redrive("memory://")

    with pytest.raises(ConfigurationError, match="auto_replay is 'hourly'; pass an AutoReplay"):
        app.handler("order.*", auto_replay="hourly")(print)  # type: ignore[call-overload]
