"""What a store promises about order: one key, one delivery at a time, in publish order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redrive.model.delivery import DeliveryId, Leased, Status
from redrive.model.settlement import Delivered, FailureReason, Snoozed
from tests.conformance.world import (
    OPERATOR,
    World,
    an_event,
    an_id,
    entries,
    ids_of,
    only,
)

__all__ = ["LaneConformance"]


class LaneConformance:
    """`DeliveryQueue.claim` at a destination that keeps order; `a`, `b` and so on are keys."""

    async def test_only_the_head_of_a_lane_is_claimed(self, world: World) -> None:
        first, _second, _third = await _publish(world, "aaa")

        claim = await world.claim("ledger")

        assert ids_of(claim) == [first]

    async def test_while_the_head_runs_its_lane_waits(self, world: World) -> None:
        await _publish(world, "aa")
        await world.claim_one("ledger")

        assert (await world.claim("ledger")).deliveries == ()

    async def test_a_delivered_head_frees_the_next(self, world: World) -> None:
        first, second, third = await _publish(world, "aaa")

        delivered = [await _deliver_one(world) for _ in range(3)]

        assert delivered == [first, second, third]

    async def test_lanes_follow_publish_order_whatever_the_event_ids(self, world: World) -> None:
        for number in (3, 1, 2):
            await world.publish(an_event(id=an_id(number), key="a"), to="ledger")

        claimed = []
        for _ in range(3):
            leased = await world.claim_one("ledger")
            claimed.append(leased.event.id)
            await world.settle(leased, Delivered())

        assert claimed == [an_id(3), an_id(1), an_id(2)]

    async def test_other_keys_go_on_in_parallel(self, world: World) -> None:
        a, _, b, c = await _publish(world, "aabc")

        assert ids_of(await world.claim("ledger")) == [a, b, c]

    async def test_events_without_a_key_form_no_lane(self, world: World) -> None:
        ids = await world.publish(an_event(), an_event(), to="ledger")

        assert ids_of(await world.claim("ledger")) == list(ids)

    async def test_a_destination_without_order_has_no_lanes(self, world: World) -> None:
        ids = await world.publish(an_event(key="a"), an_event(key="a"))

        assert ids_of(await world.claim()) == list(ids)

    async def test_destinations_do_not_wait_for_each_other(self, world: World) -> None:
        events = [an_event(key="a"), an_event(key="a")]
        await world.append(entries(*events, to=["billing", "ledger"]))
        await world.fail(await world.claim_one("ledger"))

        assert len((await world.claim("billing")).deliveries) == 2

    async def test_nobody_waits_for_nobody(self, world: World) -> None:
        first, *_ = await _publish(world, "aaabb")
        seen = [await world.store.stuck()]
        leased = await world.claim_one("ledger")
        seen.append(await world.store.stuck())
        await world.fail(leased)
        seen.append(await world.store.stuck())
        await world.store.resolve([first], actor=OPERATOR)
        seen.append(await world.store.stuck())
        await _deliver_one(world)

        assert [list(one) for one in (*seen, await world.store.stuck())] == [[]] * 5

    async def test_priority_does_not_overtake_within_a_lane(self, world: World) -> None:
        first, urgent = await world.publish(
            an_event(key="a"), an_event(key="a", priority=100), to="ledger"
        )

        assert ids_of(await world.claim("ledger")) == [first]
        assert (await world.show(urgent)).behind == first

    async def test_a_delayed_head_holds_its_lane(self, world: World) -> None:
        due = world.after("1m")
        first, _ = await world.publish(an_event(key="a", due=due), an_event(key="a"), to="ledger")

        early = await world.claim("ledger")
        world.clock.advance("1m")
        on_time = await world.claim("ledger")

        assert (early.deliveries, early.next_due) == ((), due)
        assert ids_of(on_time) == [first]

    async def test_a_head_that_waits_for_its_retry_holds_its_lane(self, world: World) -> None:
        first, second = await _publish(world, "aa")
        await world.retry(await world.claim_one("ledger"), "10s")

        waiting = await world.claim("ledger")
        world.clock.advance("10s")
        retried = await _deliver_one(world)

        assert waiting.deliveries == ()
        assert [retried, await _deliver_one(world)] == [first, second]

    async def test_a_snoozed_head_holds_its_lane(self, world: World) -> None:
        await _publish(world, "aa")
        await world.settle(await world.claim_one("ledger"), Snoozed(until=world.after("1m")))

        assert (await world.claim("ledger")).deliveries == ()

    async def test_a_released_head_goes_first_again(self, world: World) -> None:
        first, _ = await _publish(world, "aa")
        leased = await world.claim_one("ledger")
        world.clock.advance("5s")

        await world.store.release([leased.lease])

        assert ids_of(await world.claim("ledger")) == [first]

    async def test_a_head_whose_worker_is_lost_holds_its_lane(self, world: World) -> None:
        first, _ = await _publish(world, "aa")
        await world.claim_one("ledger")
        world.clock.advance("1h")

        lost = await world.claim("ledger")
        overdue = only(await world.store.overdue())

        assert lost.deliveries == ()
        assert overdue.lease.delivery_id == first

    async def test_a_suspect_at_the_head_holds_its_lane(self, world: World) -> None:
        await world.suspect(an_event(key="a"), to="ledger")
        await _publish(world, "a")

        claim = await world.claim("ledger")

        assert (claim.deliveries, claim.suspects) == ((), 1)

    async def test_a_head_of_a_foreign_generation_holds_its_lane(self, world: World) -> None:
        await world.publish(an_event(key="a", generation="green"), an_event(key="a"), to="ledger")

        assert (await world.claim("ledger")).deliveries == ()

    async def test_a_failed_head_parks_its_lane(self, world: World) -> None:
        first, second, other = await _publish(world, "aab")
        await world.fail(await world.claim_one("ledger"))

        claim = await world.claim("ledger")

        assert ids_of(claim) == [other]
        assert (await world.show(second)).behind == first

    async def test_an_expired_head_parks_its_lane(self, world: World) -> None:
        deadline = world.after("1s")
        await world.publish(an_event(key="a", deadline=deadline), an_event(key="a"), to="ledger")
        world.clock.advance("1s")

        overdue = await world.claim("ledger")
        await world.expire()
        expired = await world.claim("ledger")

        assert (overdue.deliveries, expired.deliveries) == ((), ())

    async def test_a_cancelled_head_parks_its_lane(self, world: World) -> None:
        first, _ = await _publish(world, "aa")

        await world.cancel([first])

        assert (await world.claim("ledger")).deliveries == ()

    async def test_what_comes_later_parks_too(self, world: World) -> None:
        [first] = await _publish(world, "a")
        await world.fail(await world.claim_one("ledger"))

        [later] = await _publish(world, "a")

        assert (await world.claim("ledger")).deliveries == ()
        assert (await world.show(later)).behind == first

    async def test_deleting_the_head_frees_its_lane(self, world: World) -> None:
        first, second, third = await _publish(world, "aaa")
        await world.fail(await world.claim_one("ledger"))

        await world.store.delete([first], actor=OPERATOR)

        assert (await world.show(third)).behind == second
        assert ids_of(await world.claim("ledger")) == [second]

    async def test_resolving_the_head_frees_its_lane(self, world: World) -> None:
        first, second, _ = await _publish(world, "aaa")
        await world.fail(await world.claim_one("ledger"))

        await world.store.resolve([first], actor=OPERATOR)

        assert ids_of(await world.claim("ledger")) == [second]

    async def test_a_replayed_head_goes_before_what_waited_for_it(self, world: World) -> None:
        first, second = await _publish(world, "aa")
        await world.fail(await world.claim_one("ledger"))
        world.clock.advance("1h")

        await world.store.replay([first], actor=OPERATOR)

        assert (await world.show(second)).behind == first
        assert [await _deliver_one(world), await _deliver_one(world)] == [first, second]

    async def test_several_of_a_lane_are_replayed_in_publish_order(self, world: World) -> None:
        ids = await _publish(world, "aaa")
        await world.fail(await world.claim_one("ledger"))
        await world.cancel(ids[1:])

        replayed = await world.store.replay(list(reversed(ids)), actor=OPERATOR)

        assert sorted(replayed) == sorted(ids)
        assert [await _deliver_one(world) for _ in range(3)] == list(ids)

    async def test_one_in_the_middle_that_is_gone_leaves_the_rest_in_order(
        self, world: World
    ) -> None:
        first, middle, last = await _publish(world, "aaa")
        await world.cancel([middle])
        await world.store.delete([middle], actor=OPERATOR)

        while_first_waits = (await world.show(last)).behind
        delivered = [await _deliver_one(world), await _deliver_one(world)]

        assert while_first_waits == first
        assert delivered == [first, last]

    async def test_a_failure_in_the_middle_parks_what_is_behind_it(self, world: World) -> None:
        first, middle, last = await _publish(world, "aaa")
        await world.cancel([middle])

        delivered = await _deliver_one(world)

        assert delivered == first
        assert (await world.claim("ledger")).deliveries == ()
        assert (await world.show(last)).behind == middle

    async def test_a_delivery_names_the_head_it_is_behind(self, world: World) -> None:
        first, second, third = await _publish(world, "aaa")

        before = [(await world.show(one)).behind for one in (first, second, third)]
        await _deliver_one(world)
        after = [(await world.show(one)).behind for one in (first, second, third)]

        assert before == [None, first, first]
        assert after == [None, None, second]

    async def test_the_figures_count_what_is_behind(self, world: World) -> None:
        await _publish(world, "aaab")

        figures = await world.figures_of("ledger")

        assert (figures.pending, figures.behind) == (4, 2)

    async def test_concurrent_claims_lease_the_head_once_and_nothing_behind_it(
        self, world: World
    ) -> None:
        first, *_ = await _publish(world, "aaaaa")

        claims = await asyncio.gather(
            *[world.claim("ledger", worker=f"worker-{number}") for number in range(5)]
        )

        assert [one for claim in claims for one in ids_of(claim)] == [first]

    async def test_a_hot_lane_takes_no_allowance_from_the_others(self, world: World) -> None:
        await _publish(world, "a" * 30)
        await world.claim_one("ledger")
        [other] = await _publish(world, "b")

        assert ids_of(await world.claim("ledger", total=1)) == [other]

    async def test_an_attempt_of_a_key_never_overlaps_with_another(self, world: World) -> None:
        ids = await _publish(world, "aaaa")
        leased = await world.claim_one("ledger")
        await world.retry(leased, "0s")
        again = await world.claim_one("ledger")
        await world.fail(again, FailureReason.EXHAUSTED)
        await world.store.replay([ids[0]], actor=OPERATOR)
        await world.claim_one("ledger")

        assert (await world.claim("ledger")).deliveries == ()
        assert [one.id for one in await world.found(status=Status.IN_FLIGHT)] == [ids[0]]


async def _publish(world: World, keys: str) -> Sequence[DeliveryId]:
    return await world.publish(*[an_event(key=key) for key in keys], to="ledger")


async def _deliver_one(world: World) -> DeliveryId:
    leased: Leased = await world.claim_one("ledger")
    assert not await world.settle(leased, Delivered())
    return leased.lease.delivery_id
