"""What a store promises about order when one of a key fails for good."""

from __future__ import annotations

import msgspec

from redrive.model.delivery import DeliveryId, Status
from redrive.model.destination import Destination, Order
from redrive.model.gate import Hold
from redrive.model.settlement import Delivered, Failed, FailureReason
from redrive.store import Claim, LaneFigures, Rescue
from tests.conformance.world import (
    LEDGER,
    OPERATOR,
    World,
    a_fault,
    an_event,
    entries,
    ids_of,
    only,
)

__all__ = ["OrderConformance"]


class OrderConformance:
    """What a failure for good does to a lane, by the destination's order."""

    async def test_a_blocking_destination_stops_at_a_dead_letter(self, world: World) -> None:
        gated = await _ordered(world, Order.BLOCK, "aabb")
        await _fail_one(world)

        assert ids_of(await _claim(world)) == []
        [figures] = [one for one in await world.store.gates() if one.destination == "ordered"]
        assert figures.hold is Hold.BLOCKED

        await world.store.replay([gated[0]], actor=OPERATOR)
        assert ids_of(await _claim(world)) == [gated[0], gated[2]]

    async def test_resolving_or_deleting_unblocks_a_destination(self, world: World) -> None:
        first, second, third = await _ordered(world, Order.BLOCK, "abc")
        await _fail_one(world)
        await world.store.resolve([first], actor=OPERATOR)
        await _fail_one(world)
        assert ids_of(await _claim(world)) == []
        await world.store.delete([second], actor=OPERATOR)

        assert ids_of(await _claim(world)) == [third]

    async def test_a_reopened_letter_holds_up_nobody(self, world: World) -> None:
        for order in (Order.PARK, Order.BLOCK):
            first, second, third = await _ordered(world, order, "aaa")
            await _fail_one(world)
            await world.store.resolve([first], actor=OPERATOR)

            await world.store.reopen([first], actor=OPERATOR)

            leased = only((await _claim(world)).deliveries)
            assert leased.lease.delivery_id == second
            assert (await world.show(third)).behind == second
            await world.settle(leased, Delivered())
            await world.settle(only((await _claim(world)).deliveries), Delivered())

    async def test_a_reopened_letter_goes_before_what_waits_when_it_is_replayed(
        self, world: World
    ) -> None:
        first, second = await _ordered(world, Order.PARK, "aa")
        await _fail_one(world)
        await world.store.resolve([first], actor=OPERATOR)
        await world.store.reopen([first], actor=OPERATOR)

        await world.store.replay([first], actor=OPERATOR)

        for expected in (first, second):
            leased = only((await _claim(world)).deliveries)
            assert leased.lease.delivery_id == expected
            await world.settle(leased, Delivered())

    async def test_an_event_without_a_key_blocks_nothing(self, world: World) -> None:
        _, second = await _ordered(world, Order.BLOCK, "-a")
        await _fail_one(world)

        assert ids_of(await _claim(world)) == [second]

    async def test_a_skipping_destination_passes_a_dead_letter_by(self, world: World) -> None:
        _, second, third = await _ordered(world, Order.SKIP, "aaa")
        await _fail_one(world)

        leased = only((await _claim(world)).deliveries)
        assert leased.lease.delivery_id == second
        await world.settle(leased, Delivered())

        assert ids_of(await _claim(world)) == [third]

    async def test_dead_letters_of_some_types_are_passed_by(self, world: World) -> None:
        """By the first pattern that fits, whatever the order of the others."""
        passing = (("order.paid", False), ("order.*", True))
        await world.declare(msgspec.structs.replace(LEDGER, passing=passing))
        events = [an_event(type=kind, key="a") for kind in ("order.sent", "order.paid")]
        sent, paid, _ = await world.publish(*events, an_event(key="a"), to="ledger")
        assert not await world.fail(await world.claim_one("ledger"))
        second = await world.claim_one("ledger")
        assert not await world.fail(second)

        assert second.lease.delivery_id == paid
        assert ids_of(await world.claim("ledger")) == []
        assert (await world.show(sent)).status is Status.FAILED

    async def test_nothing_is_behind_a_dead_letter_that_is_passed_by(self, world: World) -> None:
        first, second, third = await _ordered(world, Order.SKIP, "aaa")

        await world.cancel([first])

        assert (await world.show(second)).behind is None
        assert (await world.show(third)).behind == second
        assert (await world.figures_of("ordered")).behind == 1

    async def test_a_replayed_letter_takes_its_place_in_a_lane_again(self, world: World) -> None:
        first, second, third = await _ordered(world, Order.SKIP, "aaa")
        await _fail_one(world)
        under_way = only((await _claim(world)).deliveries)

        await world.store.replay([first], actor=OPERATOR)

        assert (under_way.lease.delivery_id, ids_of(await _claim(world))) == (second, [])
        await world.retry(under_way, "0s")
        for expected in (first, second, third):
            leased = only((await _claim(world)).deliveries)
            assert leased.lease.delivery_id == expected
            assert ids_of(await _claim(world)) == []
            await world.settle(leased, Delivered())

    async def test_what_is_in_flight_is_what_the_others_of_its_lane_are_behind(
        self, world: World
    ) -> None:
        first, second, third = await _ordered(world, Order.SKIP, "aaa")
        await _fail_one(world)
        assert ids_of(await _claim(world)) == [second]

        await world.store.replay([first], actor=OPERATOR)

        assert (await world.show(first)).behind == second
        assert (await world.show(third)).behind == second

    async def test_replayed_letters_of_a_key_go_one_after_the_other(self, world: World) -> None:
        letters = await _ordered(world, Order.SKIP, "aaaa")
        await world.cancel(letters[1:3])
        await world.cancel(letters[:1])

        await world.store.replay(letters[:3], actor=OPERATOR)

        for expected in letters:
            leased = only((await _claim(world)).deliveries)
            assert leased.lease.delivery_id == expected
            await world.settle(leased, Delivered())

    async def test_released_and_rescued_ones_go_behind_a_replayed_letter(
        self, world: World
    ) -> None:
        first, second = await _ordered(world, Order.SKIP, "aa")
        await _fail_one(world)
        released = only((await _claim(world)).deliveries)
        await world.store.replay([first], actor=OPERATOR)

        await world.store.release([released.lease])

        leased = only((await _claim(world)).deliveries)
        assert leased.lease.delivery_id == first
        await world.settle(leased, Delivered())
        assert ids_of(await _claim(world)) == [second]

    async def test_a_new_order_holds_for_what_waits_already(self, world: World) -> None:
        first, second, _third = await _ordered(world, Order.PARK, "aaa")
        await _fail_one(world)
        assert ids_of(await _claim(world)) == []

        await world.declare(_destination(Order.SKIP))

        leased = only((await _claim(world)).deliveries)
        assert leased.lease.delivery_id == second
        assert ids_of(await _claim(world)) == []
        await world.declare(_destination(Order.PARK))
        await world.store.replay([first], actor=OPERATOR)
        assert ids_of(await _claim(world)) == []
        await world.settle(leased, Delivered())
        assert ids_of(await _claim(world)) == [first]

    async def test_what_runs_already_when_order_begins_is_waited_for(self, world: World) -> None:
        first, second, third = await _ordered(world, Order.NONE, "aaa")
        running = (await _claim(world, total=2)).deliveries

        await world.declare(_destination(Order.PARK))

        (waiting,) = await world.found(status=Status.PENDING)
        assert [one.lease.delivery_id for one in running] == [first, second]
        assert (waiting.id, waiting.behind) == (third, first)
        for one in running:
            assert ids_of(await _claim(world)) == []
            await world.settle(one, Delivered())
        assert ids_of(await _claim(world)) == [third]

    async def test_order_can_be_given_up_and_taken_up(self, world: World) -> None:
        letters = await _ordered(world, Order.PARK, "aab")
        await world.declare(_destination(Order.NONE))
        assert len(ids_of(await _claim(world, total=2))) == 2

        await world.declare(_destination(Order.PARK))

        assert ids_of(await _claim(world)) == letters[2:]

    async def test_skipping_keeps_the_order_of_the_rest(self, world: World) -> None:
        _, second, _third = await _ordered(world, Order.SKIP, "aaa")
        await _fail_one(world)

        assert ids_of(await _claim(world)) == [second]
        assert ids_of(await _claim(world)) == []

    async def test_whatever_fails_it_a_head_is_passed_by(self, world: World) -> None:
        first, second, third = await _ordered(world, Order.SKIP, "aaa")
        await world.cancel([first])
        leased = only((await _claim(world)).deliveries)
        assert leased.lease.delivery_id == second
        world.clock.advance("1h")
        crashed = Failed(reason=FailureReason.CRASH_LOOP, fault=a_fault())
        await world.store.rescue([Rescue(leased.lease, crashed)])

        assert ids_of(await _claim(world)) == [third]

    async def test_stopped_lanes_are_listed_the_longest_first(self, world: World) -> None:
        first, second, *_ = await _ordered(world, Order.PARK, "abaac")
        await _fail_one(world)
        failed_at = world.now
        world.clock.advance("5m")
        await _fail_one(world)

        assert list(await world.store.lanes()) == [
            LaneFigures(
                destination="ordered",
                key="a",
                head=first,
                since=failed_at,
                reason=FailureReason.TERMINAL,
                waiting=2,
            ),
            LaneFigures(
                destination="ordered",
                key="b",
                head=second,
                since=world.now,
                reason=FailureReason.TERMINAL,
                waiting=0,
            ),
        ]
        assert [one.key for one in await world.store.lanes(limit=1)] == ["a"]
        assert len(await world.store.lanes(destination="ordered")) == 2
        assert list(await world.store.lanes(destination="billing")) == []

    async def test_a_lane_that_moves_is_not_listed(self, world: World) -> None:
        first, *_ = await _ordered(world, Order.PARK, "aa")
        await _fail_one(world)
        assert len(await world.store.lanes()) == 1

        await world.store.replay([first], actor=OPERATOR)

        assert list(await world.store.lanes()) == []


async def _ordered(world: World, order: Order, keys: str) -> list[DeliveryId]:
    """Publish one event for each key, `-` for none, to a destination that keeps this order."""
    routes = await world.store.register([_destination(order)])
    events = [an_event(key=None if key == "-" else key) for key in keys]
    batch = entries(*events, to=["ordered"])
    await world.store.append(batch, routes_version=routes.version, all_or_nothing=True)
    return [(await world.find_one(event, "ordered")).id for event in events]


def _destination(order: Order) -> Destination:
    return Destination(name="ordered", patterns=("order.*",), order=order)


async def _claim(world: World, *, total: int = 100) -> Claim:
    return await world.claim("ordered", total=total)


async def _fail_one(world: World) -> None:
    leased = only((await _claim(world, total=1)).deliveries)
    failed = Failed(reason=FailureReason.TERMINAL, fault=a_fault())
    assert await world.settle(leased, failed) == []
