"""What a store promises to a worker that holds leases."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.model.delivery import Attempt, Lease, Leased, Status
from redrive.model.settlement import Delivered, Failed, FailureReason, RetryAt, Settlement, Snoozed
from redrive.store import Left, Settled
from tests.conformance.world import (
    World,
    a_fault,
    an_attempt,
    an_event,
    only,
)

__all__ = ["LeaseConformance", "SettlingConformance"]

_LEASE = timedelta(seconds=30)
_MICROSECOND = timedelta(microseconds=1)


class SettlingConformance:
    """`DeliveryQueue.settle`: each decision is carried out."""

    async def test_a_delivered_delivery_is_done(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        world.clock.advance("1s")

        refused = await world.settle(leased, Delivered())

        delivery = await world.show(delivery_id)
        assert refused == []
        assert (delivery.status, delivery.attempts) == (Status.DELIVERED, 1)
        assert delivery.settled_at == world.now
        assert (await world.claim()).deliveries == ()

    async def test_a_retry_waits_for_its_time(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        when = world.now + timedelta(milliseconds=100, microseconds=7)

        await world.settle(await world.claim_one(), RetryAt(when=when, fault=a_fault()))

        claim = await world.claim()
        delivery = await world.show(delivery_id)
        assert (delivery.status, delivery.due, delivery.attempts) == (Status.PENDING, when, 1)
        assert (claim.deliveries, claim.next_due) == ((), when)

    async def test_a_retry_comes_exactly_when_it_is_due(self, world: World) -> None:
        await world.publish(an_event())
        when = world.now + timedelta(milliseconds=100)
        await world.settle(await world.claim_one(), RetryAt(when=when, fault=a_fault()))

        world.clock.advance(timedelta(milliseconds=100) - _MICROSECOND)
        early = await world.claim()
        world.clock.advance(_MICROSECOND)
        on_time = await world.claim()

        assert early.deliveries == ()
        assert [one.attempt for one in on_time.deliveries] == [2]

    async def test_a_retry_tells_what_went_wrong_and_when(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        attempt = an_attempt(leased, "first")
        world.clock.advance("1s")
        first_failed_at = world.now
        await world.settle(leased, RetryAt(when=world.now, fault=a_fault("first")), attempt)
        again = await world.claim_one()
        world.clock.advance("1s")

        await world.settle(again, RetryAt(when=world.now, fault=a_fault("second")))

        delivery = await world.show(delivery_id)
        assert delivery.fault == a_fault("second")
        assert delivery.log == (attempt,)
        assert (delivery.first_failed_at, delivery.last_failed_at) == (first_failed_at, world.now)
        assert (delivery.settled_at, delivery.reason) == (None, None)

    async def test_a_failed_delivery_is_a_dead_letter_with_its_story(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        attempt = an_attempt(leased, "no such account")
        world.clock.advance("1s")

        await world.settle(
            leased,
            Failed(reason=FailureReason.TERMINAL, fault=a_fault("no such account")),
            attempt,
        )

        delivery = await world.show(delivery_id)
        assert delivery.is_dead_letter
        assert (delivery.reason, delivery.attempts) == (FailureReason.TERMINAL, 1)
        assert (delivery.fault, delivery.log) == (a_fault("no such account"), (attempt,))
        assert delivery.settled_at == delivery.first_failed_at == world.now
        assert delivery.last_failed_at == world.now
        assert (await world.claim()).deliveries == ()

    async def test_a_snooze_waits_and_spends_no_attempt(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        until = world.after("5m")

        refused = await world.settle(await world.claim_one(), Snoozed(until=until))

        delivery = await world.show(delivery_id)
        assert refused == []
        assert (delivery.status, delivery.due) == (Status.PENDING, until)
        assert (delivery.attempts, delivery.snoozes) == (0, 1)
        assert (delivery.first_failed_at, delivery.log) == (None, ())

    async def test_snoozes_are_counted_and_told_with_the_lease(self, world: World) -> None:
        await world.publish(an_event())
        for _ in range(2):
            await world.settle(await world.claim_one(), Snoozed(until=world.now))

        leased = await world.claim_one()

        assert (leased.attempt, leased.snoozes) == (1, 2)

    async def test_a_snooze_with_an_attempt_joins_the_story(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        attempt = an_attempt(leased, "too many requests")

        await world.settle(leased, Snoozed(until=world.now), attempt)

        assert (await world.show(delivery_id)).log == (attempt,)

    async def test_only_the_last_attempts_are_kept(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())

        for _ in range(world.history + 3):
            await world.retry(await world.claim_one(), "0s")

        delivery = await world.show(delivery_id)
        kept = [attempt.number for attempt in delivery.log]
        assert delivery.attempts == world.history + 3
        assert kept == list(range(4, world.history + 4))

    async def test_a_batch_carries_out_every_decision(self, world: World) -> None:
        ids = await world.publish(*[an_event() for _ in range(4)])
        leased = (await world.claim()).deliveries
        settlements: list[Settlement] = [
            Delivered(),
            RetryAt(when=world.after("1s"), fault=a_fault()),
            Snoozed(until=world.after("1s")),
            Failed(reason=FailureReason.EXHAUSTED, fault=a_fault()),
        ]

        refused = await world.store.settle(
            [
                Settled(lease=one.lease, settlement=settlement)
                for one, settlement in zip(leased, settlements, strict=True)
            ]
        )

        statuses = [(await world.show(one)).status for one in ids]
        assert len(refused) == 0
        assert statuses == [Status.DELIVERED, Status.PENDING, Status.PENDING, Status.FAILED]

    async def test_an_empty_batch_does_nothing(self, world: World) -> None:
        assert len(await world.store.settle([])) == 0
        assert len(await world.store.release([])) == 0
        assert len(await world.store.rescue([])) == 0


class LeaseConformance:
    """`DeliveryQueue`: heartbeat, extend, release and retire."""

    async def test_a_heartbeat_extends_a_lease_from_now_on(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        world.clock.advance("20s")

        refused = await _heartbeat(world, leased, "30s")

        assert refused == []
        assert (await world.show(delivery_id)).lease_until == world.after("30s")
        world.clock.advance("29s")
        assert await world.settle(leased, Delivered()) == []

    async def test_a_heartbeat_without_leases_shows_that_the_worker_lives(
        self, world: World
    ) -> None:
        await world.store.heartbeat("worker-1", [], lease=_LEASE)
        world.clock.advance("5s")

        await world.store.heartbeat("worker-1", [], lease=_LEASE)

        worker = only((await world.store.figures()).workers)
        assert (worker.id, worker.seen_at, worker.in_flight) == ("worker-1", world.now, 0)

    async def test_a_worker_that_retires_is_forgotten(self, world: World) -> None:
        await world.store.heartbeat("worker-1", [], lease=_LEASE)
        await world.store.heartbeat("worker-2", [], lease=_LEASE)

        await world.store.retire("worker-1")
        await world.store.retire("nobody")

        assert [one.id for one in (await world.store.figures()).workers] == ["worker-2"]

    async def test_what_a_worker_leaves_behind_can_be_held_and_joins_its_story(
        self, world: World
    ) -> None:
        await world.publish(an_event(), an_event())
        await world.store.heartbeat("leaving", [], lease=_LEASE)
        held = await world.claim_one(worker="leaving")
        lost = only((await world.claim(total=1, worker="leaving", lease="5s")).deliveries)
        world.clock.advance("20s")
        left = [Left(one.lease, _interrupted(one)) for one in (held, lost)]

        for _ in range(2):  # the answer to the first was lost
            await world.store.retire("leaving", left=left)
        refused = await world.store.extend([held.lease, lost.lease], lease=_LEASE)

        assert list(refused) == [lost.lease]
        kept = await world.show(held.lease.delivery_id)
        assert (kept.log, kept.lease_until) == ((left[0].attempt,), world.after("30s"))
        assert (await world.show(lost.lease.delivery_id)).log == ()
        assert (await world.store.figures()).workers == ()
        world.clock.advance("29s")
        assert await world.settle(held, Delivered()) == []

    async def test_nobody_has_crashed_when_what_was_left_behind_runs_out(
        self, world: World
    ) -> None:
        await world.publish(an_event())
        leased = await world.claim_one(worker="leaving")
        await world.store.retire("leaving", left=[Left(leased.lease, _interrupted(leased))])
        world.clock.advance("20s")
        await world.store.extend([leased.lease], lease=_LEASE)
        world.clock.advance("29s")
        assert len(await world.store.overdue()) == 0
        world.clock.advance("1s")

        overdue = only(await world.store.overdue())

        assert (overdue.owner_is_alive, overdue.seen_at) == (True, None)

    async def test_a_released_delivery_is_due_at_once_and_has_spent_nothing(
        self, world: World
    ) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        world.clock.advance("5s")

        refused = await world.store.release([leased.lease])

        delivery = await world.show(delivery_id)
        assert len(refused) == 0
        assert (delivery.status, delivery.attempts) == (Status.PENDING, 0)
        assert (delivery.crashes, delivery.snoozes, delivery.log) == (0, 0, ())
        assert delivery.due <= world.now
        assert (await world.claim_one()).attempt == 1

    async def test_a_released_delivery_keeps_its_place(self, world: World) -> None:
        first, second = await world.publish(an_event(), an_event())
        leased = await world.claim_one()
        world.clock.advance("5s")

        await world.store.release([leased.lease])

        claim = await world.claim()
        assert [one.lease.delivery_id for one in claim.deliveries] == [first, second]

    async def test_a_worker_silent_for_long_is_forgotten_at_the_next_heartbeat(
        self, world: World
    ) -> None:
        await world.store.heartbeat("worker-1", [], lease=_LEASE)
        world.clock.advance("23h")
        await world.store.heartbeat("worker-2", [], lease=_LEASE)
        assert [one.id for one in (await world.store.figures()).workers] == ["worker-1", "worker-2"]
        world.clock.advance("2h")

        await world.store.heartbeat("worker-3", [], lease=_LEASE)

        assert [one.id for one in (await world.store.figures()).workers] == ["worker-2", "worker-3"]


async def _heartbeat(world: World, leased: Leased, span: str) -> list[Lease]:
    lease = world.after(span) - world.now
    return list(await world.store.heartbeat("worker-1", [leased.lease], lease=lease))


def _interrupted(leased: Leased) -> Attempt:
    return msgspec.structs.replace(an_attempt(leased), result="interrupted", fault=None)
