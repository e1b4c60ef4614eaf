"""Replays of many: planned, begun with one, driven by workers, stopped by themselves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import (
    ConfigurationError,
    Event,
    NewEvent,
    NotFoundError,
    Operations,
    Query,
    Redrive,
    Replay,
    ReplayStopped,
    Retry,
    Terminal,
    UsageError,
)
from redrive.model.delivery import Status
from redrive.observer import Operated, ReplayEnded, ReplayStarted, WaveSent
from redrive.testing import Kit
from tests.app.recorder import Recorder
from tests.scale import IS_LONG

MANY = 10_000 if IS_LONG else 600


def cause(number: int) -> Exception:
    """Return one of three failures, made anew: each raise would lengthen its traceback."""
    match number % 3:
        case 0:
            return ConnectionError("no route")
        case 1:
            return KeyError("total")
        case _:
            return Terminal("unknown account")


class Shop:
    """An app whose billing fails of one of three causes until it is mended."""

    def __init__(self, store: str, **options: Any) -> None:  # noqa: ANN401 - any option
        self.app = Redrive("memory://")
        self.broken: set[int] = set()
        self.is_mended = False
        self.received: Counter[int] = Counter()
        options = {"retry": Retry(max_attempts=1), "replay_rate": None, **options}
        declare: Any = self.app.handler
        declare("order.*", name="billing", **options)(self.bill)
        self.recorder = Recorder()
        self.app.observe(self.recorder)
        self.kit = Kit(self.app, store=store)
        self.operations = self.app.operations

    async def bill(self, event: Event[Any]) -> None:
        number = event.payload["order"]
        if not self.is_mended or number in self.broken:
            raise cause(number)
        self.received[number] += 1

    async def fail(self, count: int, **attributes: Any) -> None:  # noqa: ANN401 - any attribute
        """Publish orders that become dead letters."""
        begin = len(self.kit.published())
        await self.app.publish_many(
            [
                NewEvent(type="order.paid", payload={"order": begin + n}, **attributes)
                for n in range(count)
            ]
        )
        await self.kit.drain()

    async def start(self, selection: Any = None, **options: Any) -> Replay:  # noqa: ANN401 - as it takes
        return await self.operations.start_replay(selection, by="ada", why="fixed", **options)

    async def replay(self, replay: Replay) -> Replay:
        return await self.operations.show_replay(replay.id)

    async def dead(self) -> int:
        return (await self.operations.status()).destinations[0].failed


@pytest.fixture
async def shop(store: str) -> AsyncIterator[Shop]:
    shop = Shop(store)
    async with shop.kit:
        yield shop


def counts(replay: Replay) -> tuple[int, int, int, int, int]:
    return replay.selected, replay.sent, replay.delivered, replay.failed, replay.skipped


async def test_ten_thousand_dead_letters_of_three_causes_are_replayed_by_group(
    tmp_path: Path,
) -> None:
    """A wrong fix costs one letter; the right one ramps up, and every count is exact."""
    shop = Shop(f"sqlite:///{tmp_path}/redrive.db")
    async with shop.kit:
        await shop.fail(MANY)
        groups = await shop.operations.groups()
        largest = groups[0]
        query = Query(group=largest.id)

        wrong = await shop.start(query)
        await shop.kit.drain()
        stopped = await shop.replay(wrong)
        left = await shop.dead()
        shop.is_mended = True
        right = await shop.start(query)
        await shop.kit.drain()
        done = await shop.replay(right)

        sizes = [one.count for one in groups]
        assert (len(sizes), sum(sizes)) == (3, MANY)
        assert max(sizes) - min(sizes) <= 1
        assert (stopped.state, stopped.reason) == ("stopped", "1 of 1 in the canary failed again")
        assert counts(stopped) == (largest.count, 1, 0, 1, 0)
        assert left == MANY
        assert done.state == "done"
        assert counts(done) == (largest.count, largest.count, largest.count, 0, 0)
        assert await shop.dead() == MANY - largest.count
        assert set(shop.received.values()) == {1}
        assert len(shop.received) == largest.count
        sent = Counter(one.replay.wave.number for one in shop.recorder.of(WaveSent))
        waves = [
            sum(len(one.deliveries) for one in shop.recorder.of(WaveSent) if _is(one, right, n))
            for n in sorted(sent)
        ]
        assert waves[:7] == [1, 2, 4, 8, 16, 32, 64]
        assert sum(waves) == largest.count


def _is(fact: WaveSent, replay: Replay, wave: int) -> bool:
    return fact.replay.id == replay.id and fact.replay.wave.number == wave


async def test_replays_of_overlapping_selections_share_the_letters(tmp_path: Path) -> None:
    """Each letter is sent by one of them, and the other counts it as skipped."""
    count = MANY // 3
    shop = Shop(f"sqlite:///{tmp_path}/redrive.db")
    async with shop.kit:
        await shop.fail(count)
        shop.is_mended = True
        first, second, third = [
            await shop.start(Query(), canary=7),
            await shop.start(Query(destination="billing"), canary=3),
            await shop.start(Query(error_class="KeyError")),
        ]

        tallies = await asyncio.gather(*[shop.app.drain() for _ in range(3)])
        await shop.kit.drain()

        replays = [await shop.replay(one) for one in (first, second, third)]
        assert [one.state for one in replays] == ["done"] * 3
        assert sum(one.sent for one in replays) == count
        assert all(one.sent + one.skipped == one.selected for one in replays)
        assert all(one.delivered == one.sent for one in replays)
        assert sum(one.delivered for one in tallies) == count
        assert set(shop.received.values()) == {1}
        assert len(shop.received) == count


async def test_a_plan_counts_and_changes_nothing(shop: Shop) -> None:
    await shop.fail(30, tenant="acme")
    before = await shop.operations.status()
    await shop.operations.pause("billing", by="ada")

    plan = await shop.operations.plan_replay(Query(tenant="acme"), rate="2/s")

    assert plan.survey.selected == 30
    assert plan.survey.destinations == (("billing", 30),)
    assert plan.survey.tenants == (("acme", 30),)
    assert [count for *_, count in plan.survey.groups] == [10, 10, 10]
    assert dict(plan.survey.reasons) == {"exhausted": 20, "terminal": 10}
    assert (plan.paused, plan.broken) == (("billing",), ())
    assert plan.takes_at_least == timedelta(seconds=14.5)
    assert await shop.operations.status() == before
    assert list(await shop.operations.replays()) == []


async def test_a_plan_tells_of_breakers_and_the_destinations_own_rate(store: str) -> None:
    shop = Shop(store, replay_rate="10/s")
    async with shop.kit:
        await shop.fail(31)
        await shop.operations.open_breaker("billing", by="ada")

        plan = await shop.operations.plan_replay([1, 2, 3])
        whole = await shop.operations.plan_replay()

    assert (plan.survey.selected, plan.broken) == (3, ("billing",))
    assert whole.takes_at_least == timedelta(seconds=3)


async def test_what_fails_meanwhile_is_counted_and_left_alone(shop: Shop) -> None:
    await shop.fail(5)
    replay = await shop.start(Query(destination="billing"))
    shop.kit.clock.advance("1s")
    await shop.fail(4)
    shop.is_mended = True

    await shop.kit.drain()

    after = await shop.replay(replay)
    assert (counts(after), after.newcomers) == ((5, 1, 0, 1, 0), 4)
    await shop.operations.resume_replay(replay.id, by="ada")
    await shop.kit.drain()
    after = await shop.replay(replay)
    assert (counts(after), after.newcomers) == ((5, 5, 4, 1, 0), 4)
    assert await shop.dead() == 5


async def test_a_rate_is_kept_and_the_destinations_bucket_holds_beside_it(store: str) -> None:
    shop = Shop(store, replay_rate="5/s")
    async with shop.kit:
        await shop.fail(40)
        shop.is_mended = True
        await shop.start(rate="100/s", canary=40)
        begun = shop.kit.clock.now()

        await shop.kit.drain(until="1m")

        assert len(shop.received) == 40
        assert shop.kit.clock.now() - begun >= timedelta(seconds=39 / 5)


async def test_rate_bounds_what_is_sent(shop: Shop) -> None:
    await shop.fail(21)
    shop.is_mended = True
    replay = await shop.start(rate="2/s", canary=21)
    begun = shop.kit.clock.now()

    await shop.kit.drain()
    at_once = len(shop.received)
    await shop.kit.drain(until="1m")

    assert at_once == 1
    assert shop.kit.clock.now() - begun == timedelta(seconds=10)
    assert (await shop.replay(replay)).state == "done"


async def test_canary_is_how_many_go_first(shop: Shop) -> None:
    await shop.fail(30)

    replay = await shop.start(canary=4)
    await shop.kit.drain()

    assert counts(await shop.replay(replay)) == (30, 4, 0, 4, 0)


async def test_largest_wave_bounds_how_many_go_at_once(shop: Shop) -> None:
    await shop.fail(20)
    shop.is_mended = True

    await shop.start(largest_wave=5)
    await shop.kit.drain()

    waves = [len(one.deliveries) for one in shop.recorder.of(WaveSent)]
    assert waves == [1, 2, 4, 5, 5, 3]


@pytest.mark.parametrize(
    ("limit", "state", "sent"), [(0.0, "stopped", 60), (0.05, "stopped", 60), (0.1, "done", 100)]
)
async def test_failure_limit_is_the_share_of_a_wave_that_may_fail(
    shop: Shop, limit: float, state: str, sent: int
) -> None:
    await shop.fail(100)
    shop.is_mended, shop.broken = True, {30, 31, 32}

    replay = await shop.start(canary=20, failure_limit=limit)
    await shop.kit.drain()

    after = await shop.replay(replay)
    assert (after.state, counts(after)) == (state, (100, sent, sent - 3, 3, 0))


async def test_generation_is_what_the_letters_are_given(shop: Shop) -> None:
    await shop.fail(3)
    shop.is_mended = True

    replay = await shop.start(generation="green")
    await shop.kit.drain()

    page = await shop.operations.deliveries(Query(status=Status.PENDING))
    assert [(one.generation, one.replay) for one in page.deliveries] == [("green", replay.id)]


async def test_a_replay_is_paused_resumed_and_cancelled_by_people(shop: Shop) -> None:
    await shop.fail(9)
    shop.is_mended = True
    replay = await shop.start()
    act = shop.operations

    assert await act.pause_replay(replay.id, by="bob", why="wait for the deploy")
    assert not await act.pause_replay(replay.id, by="bob")
    await shop.kit.drain()
    paused = await shop.replay(replay)
    assert await act.resume_replay(replay.id, by="bob")
    assert await act.cancel_replay(replay.id, by="eve", why="wrong group")
    await shop.kit.drain()
    cancelled = await shop.replay(replay)

    assert (paused.state, paused.reason, paused.changed_by) == (
        "paused",
        "wait for the deploy",
        "bob",
    )
    assert counts(paused) == (9, 0, 0, 0, 0)
    assert (cancelled.state, cancelled.reason, cancelled.changed_by) == (
        "cancelled",
        "wrong group",
        "eve",
    )
    acts = [(one.action, one.by, one.replay) for one in shop.recorder.of(Operated)]
    assert acts == [
        ("pause_replay", "bob", replay.id),
        ("resume_replay", "bob", replay.id),
        ("cancel_replay", "eve", replay.id),
    ]
    entries = await act.audit()
    assert [one.action for one in entries] == [
        "cancel_replay",
        "resume_replay",
        "pause_replay",
        "start_replay",
    ]


async def test_every_step_is_told_and_a_stop_calls_the_hook(shop: Shop) -> None:
    told: list[ReplayStopped] = []
    shop.app.on_replay_stopped(told.append)
    await shop.fail(4)

    wrong = await shop.start()
    await shop.kit.drain()
    shop.is_mended = True
    await shop.start()
    await shop.kit.drain()

    [stop] = told
    assert (stop.replay.id, stop.replay.failed) == (wrong.id, 1)
    names = [one for one in shop.recorder.names if one.startswith(("Replay", "Wave"))]
    assert names == [
        "ReplayStarted",
        "WaveSent",
        "ReplayStopped",
        "ReplayStarted",
        "WaveSent",
        "WaveSent",
        "WaveSent",
        "ReplayEnded",
    ]
    assert shop.recorder.of(ReplayStarted)[0].replay.selected == 4
    assert counts(shop.recorder.of(ReplayEnded)[0].replay) == (4, 4, 4, 0, 0)


async def test_a_worker_goes_from_wave_to_wave_without_waiting_for_the_clock(shop: Shop) -> None:
    """Many waves must take seconds, not as many rounds of the caretaker."""
    await shop.fail(100)
    shop.is_mended = True
    async with shop.app.worker():
        replay = await shop.start()
        shop.kit.clock.advance("1s")

        await shop.recorder.wait_for(ReplayEnded)

        assert shop.kit.clock.now() - replay.started_at == timedelta(seconds=1)
        assert counts(await shop.replay(replay)) == (100, 100, 100, 0, 0)


async def test_a_worker_goes_on_as_soon_as_the_rate_allows() -> None:
    shop = Shop("memory://")
    async with shop.kit, shop.app.worker():
        await shop.fail(4)
        shop.is_mended = True
        replay = await shop.start(rate="4/s", canary=4)
        for wait in ("1s", "250ms", "250ms", "250ms"):
            shop.kit.clock.advance(wait)
            for _ in range(200):
                await shop.kit.clock.sleep(0)

        assert shop.kit.clock.now() - replay.started_at == timedelta(seconds=1.75)
        assert (await shop.replay(replay)).state == "done"


async def test_letters_of_a_parked_key_are_replayed_in_order(store: str) -> None:
    shop = Shop(store, order="park")
    async with shop.kit:
        await shop.fail(6, key="customer-1")
        waiting = await shop.operations.deliveries(Query(status=Status.PENDING))
        await shop.operations.cancel([one.id for one in waiting.deliveries[:3]], by="ada")
        billing = shop.kit.script("billing")

        replay = await shop.start(canary=10)
        await shop.kit.drain()

        seen = [one.payload["order"] for one in billing.received]
        assert seen == [0, 1, 2, 3, 4, 5]
        assert counts(await shop.replay(replay)) == (4, 4, 4, 0, 0)


async def test_a_head_that_fails_again_does_not_hang_the_replay(store: str) -> None:
    shop = Shop(store, order="park")
    async with shop.kit:
        await shop.fail(4, key="customer-1")
        waiting = await shop.operations.deliveries(Query(status=Status.PENDING))
        await shop.operations.cancel([one.id for one in waiting.deliveries], by="ada")

        replay = await shop.start(canary=3)
        await shop.kit.drain()
        stopped = await shop.replay(replay)
        whole = await shop.start([1, 4])
        await shop.kit.drain()
        done = await shop.replay(whole)

        assert (stopped.state, counts(stopped)) == ("stopped", (4, 3, 0, 1, 0))
        assert (stopped.under_way, stopped.left) == (2, 1)
        assert (done.state, counts(done)) == ("stopped", (2, 1, 0, 1, 0))


async def test_a_letter_alone_behind_a_dead_letter_is_skipped(store: str) -> None:
    shop = Shop(store, order="park")
    async with shop.kit:
        await shop.fail(2, key="customer-1")
        await shop.operations.cancel([2], by="ada")

        replay = await shop.start([2])
        await shop.kit.drain()

        assert counts(await shop.replay(replay)) == (1, 0, 0, 0, 1)
        assert (await shop.replay(replay)).state == "done"
        assert (await shop.operations.plan_replay([2])).survey.behind == 1


async def test_a_blocked_destination_is_replayed_as_a_whole(store: str) -> None:
    shop = Shop(store, order="block")
    async with shop.kit:
        for key in "abc":
            await shop.app.publish("order.paid", {"order": ord(key)}, key=key)
        await shop.kit.drain()
        shop.is_mended = True

        replay = await shop.start()
        await shop.kit.drain()

        assert counts(await shop.replay(replay)) == (3, 3, 3, 0, 0)


async def test_nothing_to_replay_is_said(shop: Shop) -> None:
    with pytest.raises(NotFoundError, match="No dead letter matches"):
        await shop.start()
    with pytest.raises(NotFoundError, match="There is no replay 7; `redrive replay list`"):
        await shop.operations.show_replay(7)
    with pytest.raises(NotFoundError, match="There is no replay 7"):
        await shop.operations.pause_replay(7, by="ada")
    with pytest.raises(UsageError, match="asks for pending deliveries; only dead letters"):
        await shop.start(Query(status=Status.PENDING))
    with pytest.raises(ConfigurationError, match="rate is 'fast'"):
        await shop.start(rate="fast")
    with pytest.raises(ConfigurationError, match="canary is 0"):
        await shop.start(canary=0)
    with pytest.raises(ConfigurationError, match="say who acts"):
        await shop.operations.start_replay(by=" ")


async def test_replays_have_a_synchronous_door(shop: Shop) -> None:
    await shop.fail(2)
    operate = shop.app.sync.operate

    def act() -> Replay:
        replay = operate(Operations.start_replay, [1, 2], by="ada")
        operate(Operations.pause_replay, replay.id, by="ada")
        return operate(Operations.show_replay, replay.id)

    replay = await asyncio.to_thread(act)
    await asyncio.to_thread(shop.app.sync.close)

    assert (replay.state, replay.selected) == ("paused", 2)
