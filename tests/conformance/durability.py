"""What a store promises about its own life: waiting, closing, and opening again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import msgspec

from redrive.model.delivery import Status
from redrive.model.destination import Destination
from redrive.model.event import Receipt
from redrive.model.replay import AutoReplay, ReplayState
from redrive.model.schedule import Schedule
from redrive.model.settlement import Delivered, Requeued
from redrive.store import Conflict, Declarer, Rescue, Ticked
from tests.conformance.letters import (
    advance,
    counts_of,
    deliver,
    found,
    letters_of,
    start,
)
from tests.conformance.world import OPERATOR, World, an_event, entries, ids_of

__all__ = ["DurabilityConformance", "WaitingConformance"]


class WaitingConformance:
    """`DeliveryQueue.wait` and the end of a store."""

    async def test_a_wait_ends_when_its_time_is_up(self, world: World) -> None:
        waiting = asyncio.ensure_future(world.store.wait(at_most=timedelta(seconds=5)))

        assert await world.settles(waiting, within="10s", give_up=True)

    async def test_a_wait_without_news_does_not_return_at_once(self, world: World) -> None:
        await world.claim()
        waiting = asyncio.ensure_future(world.store.wait(at_most=timedelta(hours=1)))

        assert not await world.settles(waiting, within="0s", give_up=True)

    async def test_a_publish_ends_the_wait(self, world: World) -> None:
        await world.version()

        assert await world.wakes(lambda: world.append(entries(an_event())))

    async def test_a_publish_between_claim_and_wait_is_not_slept_through(
        self, world: World
    ) -> None:
        await world.claim()
        await world.publish(an_event())
        waiting = asyncio.ensure_future(world.store.wait(at_most=timedelta(hours=1)))

        assert await world.settles(waiting, within="1m", give_up=True)

    async def test_everybody_who_waits_is_woken(self, world: World) -> None:
        await world.version()
        await world.claim()
        waiting = asyncio.gather(*[world.store.wait(at_most=timedelta(hours=1)) for _ in range(3)])
        everybody = asyncio.ensure_future(_all(waiting))
        await world.settles(everybody, within="0s")

        await world.publish(an_event())

        assert await world.settles(everybody, within="1m", give_up=True)

    async def test_who_waits_is_woken_for_what_was_written_past_the_store(
        self, world: World
    ) -> None:
        assert await world.wakes(lambda: asyncio.to_thread(world.store.wake))

    async def test_a_release_ends_the_wait(self, world: World) -> None:
        await world.publish(an_event())
        leased = await world.claim_one()

        assert await world.wakes(lambda: world.store.release([leased.lease]))

    async def test_a_rescue_ends_the_wait(self, world: World) -> None:
        await world.publish(an_event())
        leased = await world.claim_one()
        world.clock.advance("30s")
        rescue = Rescue(leased.lease, Requeued(when=world.now, crashes=0))

        assert await world.wakes(lambda: world.store.rescue([rescue]))

    async def test_a_replay_ends_the_wait(self, world: World) -> None:
        dead = await world.dead_letter()

        assert await world.wakes(lambda: world.store.replay([dead], actor=OPERATOR))

    async def test_a_new_due_time_ends_the_wait(self, world: World) -> None:
        [pending] = await world.publish(an_event(due=world.after("1d")))

        assert await world.wakes(
            lambda: world.store.reschedule([pending], due=world.now, actor=OPERATOR)
        )

    async def test_a_freed_lane_ends_the_wait(self, world: World) -> None:
        await world.publish(an_event(key="a"), an_event(key="a"), to="ledger")
        leased = await world.claim_one("ledger")

        assert await world.wakes(partial(world.settle, leased, Delivered()))

    async def test_a_wait_can_be_cancelled(self, world: World) -> None:
        await world.claim()
        waiting = asyncio.ensure_future(world.store.wait(at_most=timedelta(hours=1)))
        await world.settles(waiting, within="0s")

        waiting.cancel()
        await asyncio.wait([waiting])

        assert waiting.cancelled()
        await world.publish(an_event())
        assert len((await world.claim()).deliveries) == 1

    async def test_closing_twice_does_nothing_more(self, world: World) -> None:
        await world.publish(an_event())

        await world.store.close()
        await world.store.close()


class DurabilityConformance:
    """What is still there when the store is opened again, or opened twice."""

    async def test_a_replay_goes_on_after_a_restart(self, world: World) -> None:
        letters = await letters_of(world, 7)
        replay = await start(world)
        await advance(world)
        await deliver(world)
        sent = await advance(world)
        await world.reopen()

        early = await advance(world)
        while await deliver(world):
            await advance(world)

        after = await found(world, replay)
        assert (sent, early) == (letters[1:3], [])
        assert counts_of(after) == (7, 7, 7, 0, 0)
        assert after.state is ReplayState.DONE

    async def test_two_stores_drive_one_replay(self, world: World) -> None:
        await letters_of(world, 12)
        replay = await start(world, canary=4)
        async with world.another() as other:
            steps = await asyncio.gather(
                *[one.store.advance_replays() for _ in range(3) for one in (world, other)]
            )
            sent = [one for each in steps for step in each.steps for one in step.sent]
            assert len(sent) == len(set(sent)) == 4
            for leased in (await other.claim()).deliveries:
                await other.settle(leased, Delivered())

        assert len(await advance(world)) == 8
        assert counts_of(await found(world, replay)) == (12, 12, 4, 0, 0)

    async def test_edits_auto_replays_and_what_was_counted_survive_a_restart(
        self, world: World
    ) -> None:
        letter = await world.dead_letter(an_event({}))
        await world.store.edit(
            letter,
            before=msgspec.Raw(b"{}"),
            payload=msgspec.Raw(b"[1]"),
            changes=(),
            more=0,
            actor=OPERATOR,
            is_replayed=False,
        )
        scheduled = Destination(
            name="hourly", patterns=("*",), auto_replay=AutoReplay(cron="0 * * * *")
        )
        await world.store.register([scheduled])
        await world.store.start_auto_replays(due=lambda *_: False)
        seen_at = world.now
        world.clock.advance("1m")
        await world.reopen()

        [auto_replay] = await world.store.auto_replays()
        await world.store.replay([letter], actor=OPERATOR)

        assert bytes((await world.claim_one()).event.payload) == b"[1]"
        assert auto_replay.since == seen_at

    async def test_a_schedule_goes_on_where_it_was_whoever_publishes_its_ticks(
        self, world: World
    ) -> None:
        hourly = Schedule(name="hourly", type="order.paid", cron="0 * * * *")
        await world.store.declare_schedules([hourly], by=Declarer(worker="one"))
        ticked = Ticked(schedule="hourly", since=world.now, until=world.after("1h"))
        version = await world.version()
        async with world.another() as other:
            done = await asyncio.gather(
                *(
                    one.store.publish_ticks(ticked, entries(an_event()), routes_version=version)
                    for one in (world, other)
                )
            )
        await world.reopen()

        standing = (await world.store.timetable()).schedules[0].standing
        assert sum(one is not None for one in done) == len(await world.logged(1)) == 1
        assert (standing.in_force, standing.since) == (hourly, ticked.until)

    async def test_deliveries_outlive_the_store_with_their_story(self, world: World) -> None:
        dead = await world.dead_letter(an_event(b'{ "n": 1.0 }', key="k", headers={"a": "b"}))
        await world.store.replay([dead], actor=OPERATOR, generation="green")
        await world.publish(an_event(due=world.after("1h"), deadline=world.after("2h")))
        await world.retry((await world.claim(generations=["green"])).deliveries[0])
        before = await _everything(world)

        await world.reopen()

        assert await _everything(world) == before

    async def test_a_lease_outlives_the_store(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()

        await world.reopen()

        assert (await world.claim()).deliveries == ()
        assert await world.settle(leased, Delivered()) == []
        assert (await world.show(delivery_id)).status is Status.DELIVERED

    async def test_fencing_outlives_the_store(self, world: World) -> None:
        await world.publish(an_event())
        stale = await world.crash()

        await world.reopen()

        current = await world.claim_one()
        assert await world.settle(stale, Delivered()) == [stale.lease]
        assert await world.settle(current, Delivered()) == []

    async def test_idempotency_outlives_the_store(self, world: World) -> None:
        first = an_event({"n": 1}, idempotency_key="k")
        await world.append(entries(first))

        await world.reopen()

        same, other = (
            await world.append(
                entries(
                    an_event({"n": 1}, idempotency_key="k"), an_event({"n": 2}, idempotency_key="k")
                )
            )
        ).results
        assert isinstance(same, Receipt)
        assert same.event_id == first.id
        assert other == Conflict(first.id)

    async def test_order_outlives_the_store(self, world: World) -> None:
        first, second = await world.publish(an_event(key="a"), an_event(key="a"), to="ledger")

        await world.reopen()

        [third] = await world.publish(an_event(key="a"), to="ledger")
        assert ids_of(await world.claim("ledger")) == [first]
        assert first < second < third

    async def test_two_stores_on_the_same_data_never_lease_the_same_delivery(
        self, world: World
    ) -> None:
        ids = await world.publish(*[an_event() for _ in range(20)])

        async with world.another() as other:
            claims = await asyncio.gather(
                *[one.claim(total=2) for one in (world, other) for _ in range(5)]
            )

        assert sorted(one for claim in claims for one in ids_of(claim)) == sorted(ids)

    async def test_two_stores_on_the_same_data_see_the_same(self, world: World) -> None:
        await world.publish(an_event())

        async with world.another() as other:
            leased = await other.claim_one()
            assert await world.settle(leased, Delivered()) == []
            assert await _everything(other) == await _everything(world)


async def _all(several: asyncio.Future[list[None]]) -> None:
    await several


async def _everything(world: World) -> list[object]:
    routes = await world.store.routes()
    found = [await world.found(status=status, with_resolved=True) for status in Status]
    return [
        (routes.version, routes.destinations),
        list(await world.read_events()),
        found,
        await world.store.figures(),
        list(await world.store.audit()),
    ]
