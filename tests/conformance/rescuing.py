"""What a store promises about lost leases, crashes, suspects and deadlines."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redrive.model.delivery import Kind, Status
from redrive.model.settlement import Delivered, Failed, FailureReason, Requeued
from redrive.store import Rescue
from tests.conformance.world import (
    OPERATOR,
    World,
    a_fault,
    an_event,
    blame,
    ids_of,
    only,
)

__all__ = ["DeadlineConformance", "RescueConformance", "SuspectConformance"]

_LEASE = timedelta(seconds=30)
_MICROSECOND = timedelta(microseconds=1)


class RescueConformance:
    """`DeliveryQueue.overdue` and `rescue`."""

    async def test_a_lease_is_overdue_from_the_instant_it_runs_out(self, world: World) -> None:
        await world.publish(an_event())
        leased = await world.claim_one()

        world.clock.advance(_LEASE - _MICROSECOND)
        before = await world.store.overdue()
        world.clock.advance(_MICROSECOND)
        after = await world.store.overdue()

        assert len(before) == 0
        assert [one.lease for one in after] == [leased.lease]

    async def test_overdue_tells_what_is_needed_to_decide(self, world: World) -> None:
        event = an_event()
        await world.publish(event)
        await world.crash()
        crashed_at = world.now
        leased = await world.claim_one(worker="worker-7")
        world.clock.advance(_LEASE)

        overdue = only(await world.store.overdue())

        assert (overdue.lease, overdue.event_id) == (leased.lease, event.id)
        assert (overdue.destination, overdue.worker) == ("billing", "worker-7")
        assert (overdue.attempt, overdue.crashes, overdue.last_crash_at) == (1, 1, crashed_at)
        assert (overdue.was_alone, overdue.owner_is_alive) == (False, False)
        assert overdue.now == world.now

    async def test_the_oldest_overdue_lease_comes_first(self, world: World) -> None:
        first, second, third = await world.publish(*[an_event() for _ in range(3)])
        for lease in ("30s", "10s", "20s"):
            await world.claim(total=1, lease=lease)
        world.clock.advance("1m")

        overdue = [one.lease.delivery_id for one in await world.store.overdue()]
        limited = [one.lease.delivery_id for one in await world.store.overdue(limit=2)]

        assert overdue == [second, third, first]
        assert limited == [second, third]

    async def test_a_worker_heard_of_after_its_lease_ended_is_alive(self, world: World) -> None:
        await world.publish(an_event())
        await world.claim_one(worker="paused")
        world.clock.advance(_LEASE + _MICROSECOND)
        await world.store.heartbeat("paused", [], lease=_LEASE)

        overdue = only(await world.store.overdue())

        assert overdue.owner_is_alive
        assert overdue.seen_at == world.now

    async def test_a_worker_last_heard_of_before_its_lease_ended_is_not_alive(
        self, world: World
    ) -> None:
        await world.publish(an_event())
        await world.claim_one(worker="gone")
        world.clock.advance(_LEASE - _MICROSECOND)
        await world.store.heartbeat("gone", [], lease=_LEASE)
        heard_at = world.now
        world.clock.advance("1h")

        overdue = only(await world.store.overdue())

        assert not overdue.owner_is_alive
        assert overdue.seen_at == heard_at

    async def test_a_worker_that_retired_has_not_crashed(self, world: World) -> None:
        """It stopped in good order: only the answer to a claim, or its last words, were lost."""
        await world.publish(an_event())
        await world.claim_one(worker="retired")
        world.clock.advance("1m")
        await world.store.heartbeat("retired", [], lease=_LEASE)
        await world.store.retire("retired")

        overdue = only(await world.store.overdue())

        assert (overdue.owner_is_alive, overdue.seen_at) == (True, None)

    async def test_a_crash_is_counted_and_spends_no_attempt(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        world.clock.advance(_LEASE)
        crashed_at, when = world.now, world.after("10s")

        refused = await world.store.rescue(
            [Rescue(leased.lease, Requeued(when=when, crashes=1, last_crash_at=crashed_at))]
        )

        delivery = await world.show(delivery_id)
        assert len(refused) == 0
        assert (delivery.status, delivery.due) == (Status.PENDING, when)
        assert (delivery.attempts, delivery.crashes) == (0, 1)
        world.clock.advance("10s")
        again = await world.claim_one()
        assert (again.attempt, again.crashes, again.last_crash_at) == (1, 1, crashed_at)

    async def test_losing_touch_counts_for_nothing(self, world: World) -> None:
        await world.publish(an_event())
        leased = await world.claim_one()
        world.clock.advance(_LEASE)

        await world.store.rescue([Rescue(leased.lease, Requeued(when=world.now, crashes=0))])

        again = await world.claim_one()
        assert (again.attempt, again.kind) == (1, Kind.FIRST)
        assert (again.crashes, again.last_crash_at) == (0, None)

    async def test_the_crash_counter_may_start_over(self, world: World) -> None:
        delivery_id = await world.suspect()
        leased = await world.claim_one(alone=True)
        world.clock.advance("100h")
        crashed_at = world.now
        requeued = Requeued(when=world.now, crashes=1, last_crash_at=crashed_at)

        await world.store.rescue([Rescue(leased.lease, requeued)])

        assert (await world.show(delivery_id)).crashes == 1
        assert (await world.claim_one()).last_crash_at == crashed_at

    async def test_a_rescued_delivery_keeps_its_tries(self, world: World) -> None:
        await world.publish(an_event())
        await world.retry(await world.claim_one(), "0s")

        crashed = await world.crash()

        again = await world.claim_one()
        assert (crashed.attempt, again.attempt) == (2, 2)
        assert again.kind is Kind.RETRY

    async def test_a_current_lease_cannot_be_rescued(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        before = await world.show(delivery_id)
        requeued = Requeued(when=world.now, crashes=1, last_crash_at=world.now)

        refused = await world.store.rescue([Rescue(leased.lease, requeued)])

        assert list(refused) == [leased.lease]
        assert await world.show(delivery_id) == before

    async def test_a_rescue_does_not_touch_the_next_lease(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        old = await world.crash()
        await world.claim_one()
        world.clock.advance("1h")
        before = await world.show(delivery_id)

        refused = await world.store.rescue(
            [Rescue(old.lease, Requeued(when=world.now, crashes=9, last_crash_at=world.now))]
        )

        assert list(refused) == [old.lease]
        assert await world.show(delivery_id) == before

    async def test_concurrent_rescues_of_one_lease_have_one_winner(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        world.clock.advance(_LEASE)
        rescue = Rescue(leased.lease, Requeued(when=world.now, crashes=1, last_crash_at=world.now))

        answers = await asyncio.gather(*[world.store.rescue([rescue]) for _ in range(4)])

        assert sorted(len(refused) for refused in answers) == [0, 1, 1, 1]
        assert (await world.show(delivery_id)).attempts == 0

    async def test_a_crash_loop_ends_as_a_dead_letter(self, world: World) -> None:
        delivery_id = await world.suspect()
        leased = await world.claim_one(alone=True)
        world.clock.advance(_LEASE)
        fault = a_fault("the worker died three times", "CrashLoop")

        await world.store.rescue(
            [Rescue(leased.lease, Failed(reason=FailureReason.CRASH_LOOP, fault=fault))]
        )

        delivery = await world.show(delivery_id)
        assert delivery.is_dead_letter
        assert (delivery.reason, delivery.fault) == (FailureReason.CRASH_LOOP, fault)
        assert (delivery.attempts, delivery.crashes) == (0, 3)
        assert delivery.settled_at == delivery.first_failed_at == world.now


class SuspectConformance:
    """`DeliveryQueue.claim`: what crashed twice runs alone."""

    async def test_one_crash_makes_no_suspect(self, world: World) -> None:
        await world.publish(an_event())
        await world.crash()

        claim = await world.claim()

        assert (len(claim.deliveries), claim.suspects) == (1, 0)

    async def test_a_suspect_is_counted_but_not_claimed_in_company(self, world: World) -> None:
        await world.suspect()
        [innocent] = await world.publish(an_event())

        claim = await world.claim()

        assert (ids_of(claim), claim.suspects) == ([innocent], 1)

    async def test_a_request_to_run_alone_gets_one_suspect_and_nothing_else(
        self, world: World
    ) -> None:
        first = await world.suspect()
        second = await world.suspect()
        await world.publish(an_event(priority=9))

        claim = await world.claim(alone=True)

        leased = only(claim.deliveries)
        assert leased.lease.delivery_id == first
        assert leased.is_alone
        assert (leased.crashes, claim.suspects) == (2, 1)
        assert (await world.show(second)).status is Status.PENDING

    async def test_without_suspects_a_request_to_run_alone_gets_nothing(self, world: World) -> None:
        await world.publish(an_event())

        assert (await world.claim(alone=True)).deliveries == ()

    async def test_the_suspect_of_higher_priority_runs_first(self, world: World) -> None:
        await world.suspect()
        urgent = await world.suspect(an_event(priority=5), to="mailing")

        claim = await world.claim("billing", "mailing", alone=True)

        assert ids_of(claim) == [urgent]

    async def test_a_suspect_too_needs_its_time_an_allowance_and_its_generation(
        self, world: World
    ) -> None:
        suspect = await world.suspect()

        without = await world.claim(alone=True, total=0)
        foreign = await world.claim(alone=True, generations=["green"])
        await world.store.reschedule([suspect], due=world.after("1s"), actor=OPERATOR)
        early = await world.claim(alone=True)
        world.clock.advance("1s")
        on_time = await world.claim(alone=True)

        assert [ids_of(one) for one in (without, foreign, early)] == [[], [], []]
        assert (foreign.suspects, early.suspects) == (0, 0)
        assert ids_of(on_time) == [suspect]

    async def test_a_crash_while_alone_is_told_as_such(self, world: World) -> None:
        await world.suspect()
        await world.claim_one(alone=True)
        world.clock.advance(_LEASE)

        overdue = only(await world.store.overdue())

        assert (overdue.was_alone, overdue.crashes) == (True, 2)

    async def test_a_suspect_that_runs_through_is_delivered(self, world: World) -> None:
        suspect = await world.suspect()

        refused = await world.settle(await world.claim_one(alone=True), Delivered())

        assert refused == []
        assert (await world.show(suspect)).status is Status.DELIVERED

    async def test_a_replay_clears_the_suspicion(self, world: World) -> None:
        suspect = await world.suspect()
        await world.fail(await world.claim_one(alone=True))

        await world.store.replay([suspect], actor=OPERATOR)

        claim = await world.claim()
        leased = only(claim.deliveries)
        assert (leased.lease.delivery_id, leased.crashes, claim.suspects) == (suspect, 0, 0)
        assert leased.last_crash_at is None


class DeadlineConformance:
    """`DeliveryQueue.expire`."""

    async def test_a_pending_delivery_expires_at_its_deadline(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event(deadline=world.after("1m")))

        world.clock.advance(timedelta(minutes=1) - _MICROSECOND)
        early = await world.expire()
        world.clock.advance(_MICROSECOND)
        expired = await world.expire()

        assert len(early) == 0
        assert [one.id for one in expired] == [delivery_id]
        assert list(expired) == [await world.show(delivery_id)]

    async def test_an_expired_delivery_is_a_dead_letter_that_says_why(self, world: World) -> None:
        await world.publish(an_event(deadline=world.after("1m")))
        world.clock.advance("1h")

        expired = only(await world.expire())

        assert expired.is_dead_letter
        assert (expired.reason, expired.attempts) == (FailureReason.EXPIRED, 0)
        assert expired.fault == blame("billing")
        assert expired.settled_at == expired.first_failed_at == expired.last_failed_at == world.now

    async def test_an_expired_retry_keeps_its_story(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event(deadline=world.after("1m")))
        await world.retry(await world.claim_one())
        retried = await world.show(delivery_id)
        world.clock.advance("1h")

        expired = only(await world.expire())

        assert (expired.log, expired.attempts) == (retried.log, 1)
        assert expired.first_failed_at == retried.first_failed_at
        assert expired.last_failed_at == world.now

    async def test_what_is_in_flight_or_settled_does_not_expire(self, world: World) -> None:
        deadline = world.after("1s")
        await world.publish(*[an_event(deadline=deadline) for _ in range(3)])
        _running, delivered, failed = (await world.claim()).deliveries
        await world.settle(delivered, Delivered())
        await world.fail(failed)
        world.clock.advance("2s")

        assert len(await world.expire()) == 0

    async def test_deliveries_without_a_deadline_never_expire(self, world: World) -> None:
        await world.publish(an_event())
        world.clock.advance("9999h")

        assert len(await world.expire()) == 0

    async def test_expiring_stops_at_the_limit(self, world: World) -> None:
        await world.publish(*[an_event(deadline=world.after("1s")) for _ in range(3)])
        world.clock.advance("1s")

        first = await world.expire(limit=2)
        rest = await world.expire(limit=2)

        assert (len(first), len(rest)) == (2, 1)
