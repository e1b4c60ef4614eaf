"""What a store promises to a worker that asks for work."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from redrive.model.delivery import DeliveryId, Kind, Status
from redrive.model.limits import Limits, Rate
from redrive.model.settlement import Requeued, Snoozed
from redrive.store import Allowance, ClaimRequest, Rescue
from tests.conformance.world import (
    BILLING,
    OPERATOR,
    World,
    an_event,
    an_id,
    entries,
    ids_of,
    only,
)

__all__ = ["ClaimingConformance", "KindConformance", "RoomConformance"]

_MICROSECOND = timedelta(microseconds=1)


class ClaimingConformance:
    """`DeliveryQueue.claim`: what is leased, and what is not."""

    async def test_a_claim_leases_what_is_due(self, world: World) -> None:
        event = an_event({"n": 1}, key="order-7", headers={"a": "b"})
        [delivery_id] = await world.publish(event)
        enqueued_at = world.now
        world.clock.advance("2s")

        claim = await world.claim()

        leased = only(claim.deliveries)
        assert claim.now == world.now
        assert leased.lease.delivery_id == delivery_id
        assert (leased.destination, leased.event) == ("billing", event)
        assert (leased.attempt, leased.kind, leased.is_alone) == (1, Kind.FIRST, False)
        assert (leased.claimed_at, leased.enqueued_at) == (world.now, enqueued_at)

    async def test_a_claim_records_the_try_and_the_lease(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())

        await world.claim(worker="worker-7", lease="45s")

        delivery = await world.show(delivery_id)
        assert (delivery.status, delivery.attempts) == (Status.IN_FLIGHT, 1)
        assert (delivery.worker, delivery.lease_until) == ("worker-7", world.after("45s"))

    async def test_what_is_leased_is_not_leased_again(self, world: World) -> None:
        await world.publish(an_event())
        await world.claim()

        again = await world.claim(worker="worker-2")

        assert again.deliveries == ()

    async def test_an_overdue_lease_is_not_claimed_before_it_is_rescued(self, world: World) -> None:
        await world.publish(an_event())
        await world.claim(lease="30s")
        world.clock.advance("1h")

        assert (await world.claim()).deliveries == ()

    async def test_concurrent_claims_never_lease_the_same_delivery(self, world: World) -> None:
        ids = await world.publish(*[an_event() for _ in range(20)])

        claims = await asyncio.gather(
            *[world.claim(total=3, worker=f"worker-{number}") for number in range(10)]
        )

        leased = [one for claim in claims for one in ids_of(claim)]
        assert sorted(leased) == sorted(ids)
        assert max(len(claim.deliveries) for claim in claims) <= 3

    async def test_nothing_is_claimed_a_microsecond_before_it_is_due(self, world: World) -> None:
        due = world.now + timedelta(seconds=1, microseconds=1)
        [delivery_id] = await world.publish(an_event(due=due))
        world.clock.advance("1s")

        early = await world.claim()
        world.clock.advance(_MICROSECOND)
        on_time = await world.claim()

        assert early.deliveries == ()
        assert ids_of(on_time) == [delivery_id]

    async def test_a_claim_tells_when_the_next_delivery_comes_due(self, world: World) -> None:
        await world.publish(an_event(due=world.after("2s")), an_event(due=world.after("1s")))
        next_due = world.after("1s")

        claim = await world.claim(total=0)

        assert claim.next_due == next_due

    async def test_without_waiting_deliveries_there_is_no_next_due(self, world: World) -> None:
        await world.publish(an_event(), an_event())

        assert (await world.claim(total=1)).next_due is None

    async def test_the_next_due_is_one_that_the_worker_may_claim(self, world: World) -> None:
        soon, later = world.after("1s"), world.after("2s")
        await world.publish(an_event(due=soon), to="mailing")
        await world.publish(an_event(due=soon, generation="green"))
        await world.publish(an_event(key="a"), an_event(key="a", due=soon), to="ledger")
        await world.publish(an_event(due=later))

        claim = await world.claim("billing", "ledger", total=0)

        assert claim.next_due == later

    async def test_deliveries_are_claimed_in_publish_order_whatever_their_ids(
        self, world: World
    ) -> None:
        events = [an_event(id=an_id(number)) for number in (3, 1, 2)]
        for event in events:
            await world.publish(event)
            world.clock.advance("1s")

        claim = await world.claim()

        assert [one.event.id for one in claim.deliveries] == [an_id(3), an_id(1), an_id(2)]

    async def test_publish_order_counts_more_than_the_due_time(self, world: World) -> None:
        delayed, fresh = await world.publish(an_event(due=world.after("5s")), an_event())
        world.clock.advance("5s")

        assert ids_of(await world.claim()) == [delayed, fresh]

    async def test_the_higher_priority_goes_first(self, world: World) -> None:
        low, middle, high, also_high = await world.publish(
            *[an_event(priority=priority) for priority in (-5, 0, 9, 9)]
        )

        first = await world.claim(total=3)
        second = await world.claim(total=3)

        assert ids_of(first) == [high, also_high, middle]
        assert ids_of(second) == [low]

    async def test_a_claim_stays_within_the_total(self, world: World) -> None:
        ids = await world.publish(*[an_event() for _ in range(5)])

        assert ids_of(await world.claim(total=0)) == []
        assert ids_of(await world.claim(total=2)) == list(ids[:2])
        assert ids_of(await world.claim(total=9)) == list(ids[2:])

    async def test_only_the_destinations_asked_for_are_claimed(self, world: World) -> None:
        await world.append(entries(an_event(), to=["billing", "ledger", "mailing"]))

        claim = await world.claim("billing", "mailing")

        assert sorted(one.destination for one in claim.deliveries) == ["billing", "mailing"]

    async def test_each_destination_has_an_allowance_of_its_own(self, world: World) -> None:
        await world.append(entries(*[an_event() for _ in range(4)], to=["billing", "mailing"]))

        claim = await world.store.claim(
            ClaimRequest(
                worker="worker-1",
                allowances=(
                    Allowance(destination="billing", total=1),
                    Allowance(destination="mailing", total=3),
                ),
                generations=("default",),
                limit=1_000,
                lease=timedelta(seconds=30),
            )
        )

        claimed = [one.destination for one in claim.deliveries]
        assert sorted(claimed) == ["billing", "mailing", "mailing", "mailing"]

    async def test_a_claim_stays_within_its_limit_over_all_destinations(self, world: World) -> None:
        await world.append(entries(*[an_event() for _ in range(3)], to=["billing", "mailing"]))

        four = await world.claim("billing", "mailing", limit=4)
        rest = await world.claim("billing", "mailing", limit=4)

        assert (len(four.deliveries), len(rest.deliveries)) == (4, 2)

    async def test_an_unknown_destination_gives_nothing(self, world: World) -> None:
        await world.publish(an_event())

        assert (await world.claim("nowhere")).deliveries == ()

    async def test_only_the_generations_of_the_worker_are_claimed(self, world: World) -> None:
        blue, green, _red = await world.publish(
            *[an_event(generation=generation) for generation in ("blue", "green", "red")]
        )

        foreign = await world.claim(generations=["default"])
        own = await world.claim(generations=["green", "blue"])

        assert foreign.deliveries == ()
        assert ids_of(own) == [blue, green]

    async def test_priority_counts_over_all_generations_of_a_worker(self, world: World) -> None:
        low, high = await world.publish(
            an_event(generation="blue"), an_event(generation="green", priority=1)
        )

        claim = await world.claim(generations=["blue", "green"], total=1)

        assert ids_of(claim) == [high]
        assert (await world.show(low)).status is Status.PENDING

    async def test_a_delivery_past_its_deadline_is_not_claimed(self, world: World) -> None:
        in_time, late = await world.publish(
            an_event(deadline=world.after("1s") + _MICROSECOND),
            an_event(deadline=world.after("1s")),
        )
        world.clock.advance("1s")

        claim = await world.claim()

        assert ids_of(claim) == [in_time]
        assert (await world.show(late)).attempts == 0

    async def test_every_lease_has_a_token_of_its_own(self, world: World) -> None:
        await world.publish(an_event())
        first = await world.claim_one()
        await world.store.release([first.lease])

        second = await world.claim_one()

        assert second.lease.delivery_id == first.lease.delivery_id
        assert second.lease.token > first.lease.token

    async def test_a_worker_that_leases_something_has_been_heard_of(self, world: World) -> None:
        await world.publish(*[an_event() for _ in range(3)])

        await world.claim(worker="busy", total=2)
        world.clock.advance("1s")
        await world.claim(worker="late", total=2)

        workers = (await world.store.figures()).workers
        assert [(one.id, one.in_flight) for one in workers] == [("busy", 2), ("late", 1)]
        assert [one.seen_at for one in workers] == [world.now - timedelta(seconds=1), world.now]


class RoomConformance:
    """How many bytes `DeliveryQueue.claim` brings at once."""

    async def test_a_claim_brings_no_more_bytes_than_asked_for(self, world: World) -> None:
        ids = await world.publish(*[an_event("x" * 1_000) for _ in range(10)])

        claim = await world.claim(most_bytes=5_000)

        assert 1 < len(claim.deliveries) < 5
        assert ids_of(claim) == list(ids[: len(claim.deliveries)])
        assert claim.next_due is not None
        assert claim.next_due <= world.after("1s")

    async def test_what_is_too_large_comes_alone(self, world: World) -> None:
        ids = await world.publish(*[an_event("x" * 3_000) for _ in range(3)])

        claims = [await world.claim(most_bytes=10) for _ in range(3)]

        assert [ids_of(one) for one in claims] == [[number] for number in ids]

    async def test_what_there_is_no_room_for_is_not_overtaken(self, world: World) -> None:
        sizes = (1_000, 3_000, 1_000)
        ids = await world.publish(*[an_event("x" * size) for size in sizes])

        claims = [await world.claim(most_bytes=2_500) for _ in range(3)]

        assert [ids_of(one) for one in claims] == [[number] for number in ids]

    async def test_claims_go_on_until_all_is_claimed(self, world: World) -> None:
        """Of several kinds, destinations and tenants, with order and without."""
        events = [
            an_event("x" * (number * 97 % 1_500), tenant=f"t{number % 3}", key=f"k{number}")
            for number in range(30)
        ]
        await world.append(entries(*events, to=["billing", "ledger", "mailing"]))
        for leased in (await world.claim(total=5)).deliveries:
            await world.retry(leased, "0s")

        claimed: list[DeliveryId] = []
        for _ in range(90):
            claim = await world.claim("billing", "ledger", "mailing", most_bytes=4_000)
            sizes = [len(one.event.payload) for one in claim.deliveries]
            assert sum(sizes) <= 4_000
            claimed += ids_of(claim)
            if not claim.deliveries:
                break

        assert len(claimed) == len(set(claimed)) == 90

    async def test_only_what_was_claimed_is_taken_from_a_rate(self, world: World) -> None:
        limits = Limits(rate=Rate(per_second=10.0, burst=10.0))
        await world.store.register([msgspec.structs.replace(BILLING, limits=limits)])
        version = (await world.store.routes()).version
        await world.store.append(
            entries(*[an_event("x" * 1_000) for _ in range(20)]),
            routes_version=version,
            all_or_nothing=True,
        )

        counts = [len((await world.claim(most_bytes=2_500)).deliveries) for _ in range(9)]

        assert sum(counts) == 10

    async def test_a_payload_that_a_person_gave_counts_as_well(self, world: World) -> None:
        for _ in range(3):
            leased = await world.dead_letter()
            await world.store.edit(
                leased,
                before=msgspec.Raw(b"null"),
                payload=msgspec.Raw(msgspec.json.encode("x" * 3_000)),
                changes=(),
                more=0,
                actor=OPERATOR,
                is_replayed=False,
            )
        await world.store.replay(
            [one.id for one in await world.found(status=Status.FAILED)], actor=OPERATOR
        )

        assert len((await world.claim(most_bytes=7_000)).deliveries) <= 2


class KindConformance:
    """`DeliveryQueue.claim`: the three kinds of tries, each with a rate of its own."""

    async def test_a_failed_try_makes_the_next_one_a_retry(self, world: World) -> None:
        await world.publish(an_event())
        await world.retry(await world.claim_one(), "0s")

        retried = await world.claim_one()

        assert (retried.kind, retried.attempt) == (Kind.RETRY, 2)

    async def test_a_replayed_delivery_is_a_replay_until_it_is_retried(self, world: World) -> None:
        await world.store.replay([await world.dead_letter()], actor=OPERATOR)

        replayed = await world.claim_one()
        await world.retry(replayed, "0s")
        retried = await world.claim_one()

        assert (replayed.kind, replayed.attempt) == (Kind.REPLAY, 1)
        assert (retried.kind, retried.attempt) == (Kind.RETRY, 2)

    async def test_waiting_does_not_change_the_kind(self, world: World) -> None:
        await world.store.replay([await world.dead_letter()], actor=OPERATOR)

        snoozed = await world.claim_one()
        await world.settle(snoozed, Snoozed(until=world.now))
        released = await world.claim_one()
        await world.store.release([released.lease])
        rescued = await world.claim_one()
        world.clock.advance("30s")
        await world.store.rescue([Rescue(rescued.lease, Requeued(when=world.now, crashes=0))])

        assert (await world.claim_one()).kind is Kind.REPLAY

    async def test_a_fresh_delivery_that_waited_is_still_a_first_try(self, world: World) -> None:
        await world.publish(an_event())
        await world.settle(await world.claim_one(), Snoozed(until=world.now))

        assert (await world.claim_one()).kind is Kind.FIRST

    async def test_each_kind_has_a_rate_of_its_own(self, world: World) -> None:
        await _three_of_each_kind(world)
        await _limit(world, rate=_burst(1), retry_rate=_burst(2), replay_rate=_burst(1))

        claim = await world.claim()

        kinds = [one.kind for one in claim.deliveries]
        assert sorted(kinds) == [Kind.FIRST, Kind.REPLAY, Kind.RETRY, Kind.RETRY]

    async def test_a_kind_without_a_rate_has_only_the_total(self, world: World) -> None:
        await _three_of_each_kind(world)
        await _limit(world, retry_rate=_burst(1))

        claim = await world.claim(total=5)

        kinds = [one.kind for one in claim.deliveries]
        assert len(kinds) == 5
        assert kinds.count(Kind.RETRY) == 1

    async def test_the_total_holds_over_all_kinds(self, world: World) -> None:
        await _three_of_each_kind(world)
        await _limit(world, rate=_burst(3), retry_rate=_burst(3), replay_rate=_burst(3))

        claim = await world.claim(total=4)

        assert len(claim.deliveries) == 4

    async def test_a_kind_at_its_rate_does_not_hold_up_the_others(self, world: World) -> None:
        await _three_of_each_kind(world)
        [low] = await world.publish(an_event(priority=-100))
        await _limit(world, retry_rate=_burst(1), replay_rate=_burst(1))

        claim = await world.claim()

        assert len(claim.deliveries) == 6
        assert ids_of(claim)[-1] == low

    async def test_priority_orders_across_the_kinds(self, world: World) -> None:
        await world.publish(an_event(), an_event(priority=1))
        for leased in (await world.claim(total=1)).deliveries:
            await world.retry(leased, "0s")

        claim = await world.claim()

        assert [one.kind for one in claim.deliveries] == [Kind.RETRY, Kind.FIRST]


async def _three_of_each_kind(world: World) -> None:
    dead = [await world.dead_letter() for _ in range(3)]
    await world.publish(*[an_event() for _ in range(3)])
    for leased in (await world.claim()).deliveries:
        await world.retry(leased, "0s")
    await world.store.replay(dead, actor=OPERATOR)
    await world.publish(*[an_event() for _ in range(3)])


def _burst(count: int) -> Rate:
    return Rate(per_second=1.0, burst=float(count))


async def _limit(world: World, **rates: Rate) -> None:
    limits = msgspec.structs.replace(Limits(), **rates)
    await world.declare(msgspec.structs.replace(BILLING, limits=limits))
