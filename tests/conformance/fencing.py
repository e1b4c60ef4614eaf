"""What a store promises about leases that are lost: whoever held one changes nothing any more."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redrive.model.delivery import DeliveryId, Lease, Leased, Status
from redrive.model.settlement import Delivered, Failed, FailureReason, RetryAt
from redrive.store import Settled
from tests.conformance.world import OPERATOR, World, a_fault, an_event

__all__ = ["FencingConformance"]

_LEASE = timedelta(seconds=30)
_MICROSECOND = timedelta(microseconds=1)


class FencingConformance:
    """`DeliveryQueue`: only the current lease may write."""

    async def test_a_late_worker_cannot_settle_a_reclaimed_delivery(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        late = await world.crash()
        current = await world.claim_one(worker="worker-2")
        before = await world.show(delivery_id)

        refused = await world.settle(late, Delivered())

        assert refused == [late.lease]
        assert await world.show(delivery_id) == before
        assert await world.settle(current, Delivered()) == []

    async def test_a_lease_is_lost_at_the_instant_it_runs_out(self, world: World) -> None:
        [kept_id] = await world.publish(an_event())
        kept = await world.claim_one()
        world.clock.advance(_LEASE - _MICROSECOND)
        in_time = await world.settle(kept, Delivered())
        [lost_id] = await world.publish(an_event())
        lost = await world.claim_one()
        world.clock.advance(_LEASE)

        too_late = await world.settle(lost, Delivered())

        assert (in_time, too_late) == ([], [lost.lease])
        assert (await world.show(kept_id)).status is Status.DELIVERED
        assert (await world.show(lost_id)).status is Status.IN_FLIGHT

    async def test_a_lease_settles_once(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        await world.settle(leased, Delivered())

        refused = await world.fail(leased)

        assert refused == [leased.lease]
        assert (await world.show(delivery_id)).status is Status.DELIVERED

    async def test_a_lease_settles_once_within_one_batch(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        twice = [
            Settled(lease=leased.lease, settlement=RetryAt(when=world.now, fault=a_fault())),
            Settled(lease=leased.lease, settlement=Delivered()),
        ]

        refused = await world.store.settle(twice)

        assert list(refused) == [leased.lease]
        assert (await world.show(delivery_id)).status is Status.PENDING

    async def test_concurrent_settlements_of_one_lease_have_one_winner(self, world: World) -> None:
        await world.publish(an_event())
        leased = await world.claim_one()

        answers = await asyncio.gather(*[world.settle(leased, Delivered()) for _ in range(5)])

        assert sorted(len(refused) for refused in answers) == [0, 1, 1, 1, 1]

    async def test_a_stale_lease_beside_the_current_one_is_refused(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        stale = await world.crash()
        current = await world.claim_one()

        refused = await world.store.settle(
            [
                Settled(
                    lease=stale.lease,
                    settlement=Failed(reason=FailureReason.TERMINAL, fault=a_fault()),
                ),
                Settled(lease=current.lease, settlement=Delivered()),
            ]
        )

        assert list(refused) == [stale.lease]
        assert (await world.show(delivery_id)).status is Status.DELIVERED

    async def test_one_refused_lease_does_not_hold_up_the_batch(self, world: World) -> None:
        _lost_id, kept_id = await world.publish(an_event(), an_event())
        lost = await world.crash()
        *_, kept = (await world.claim(worker="worker-2")).deliveries

        refused = await world.store.settle(
            [Settled(lease=one.lease, settlement=Delivered()) for one in (lost, kept)]
        )

        assert list(refused) == [lost.lease]
        assert (await world.show(kept_id)).status is Status.DELIVERED

    async def test_the_lease_of_an_earlier_cycle_is_refused(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        old = await world.claim_one()
        await world.fail(old)
        await world.store.replay([delivery_id], actor=OPERATOR)
        await world.claim_one()

        refused = await world.settle(old, Delivered())

        assert refused == [old.lease]
        assert (await world.show(delivery_id)).status is Status.IN_FLIGHT

    async def test_the_lease_of_an_unknown_delivery_is_refused(self, world: World) -> None:
        unknown = Lease(DeliveryId(999_999), 1)

        settled = await world.store.settle([Settled(lease=unknown, settlement=Delivered())])
        released = await world.store.release([unknown])
        extended = await world.store.heartbeat("worker-1", [unknown], lease=_LEASE)

        assert [list(settled), list(released), list(extended)] == [[unknown]] * 3

    async def test_refused_settlements_are_counted(self, world: World) -> None:
        await world.publish(an_event())
        leased = await world.claim_one()
        await world.settle(leased, Delivered())
        for _ in range(2):
            await world.settle(leased, Delivered())
        await world.store.release([leased.lease])
        await world.store.heartbeat("worker-1", [leased.lease], lease=_LEASE)

        assert (await world.store.figures()).refused_settlements == 2

    async def test_a_late_worker_cannot_release_a_reclaimed_delivery(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        late = await world.crash()
        await world.claim_one(worker="worker-2")
        before = await world.show(delivery_id)

        refused = await world.store.release([late.lease])

        assert list(refused) == [late.lease]
        assert await world.show(delivery_id) == before

    async def test_a_settled_delivery_cannot_be_released(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        await world.settle(leased, Delivered())

        refused = await world.store.release([leased.lease])

        assert list(refused) == [leased.lease]
        assert (await world.show(delivery_id)).status is Status.DELIVERED

    async def test_a_late_worker_cannot_extend_a_reclaimed_lease(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        late = await world.crash()
        await world.claim_one(worker="worker-2")
        before = await world.show(delivery_id)

        refused = await _heartbeat(world, late, "1h")

        assert refused == [late.lease]
        assert await world.show(delivery_id) == before

    async def test_a_lost_lease_cannot_be_revived(self, world: World) -> None:
        await world.publish(an_event())
        leased = await world.claim_one()
        world.clock.advance(_LEASE)

        extended = await _heartbeat(world, leased, "1h")
        released = await world.store.release([leased.lease])
        settled = await world.settle(leased, Delivered())

        assert [extended, list(released), settled] == [[leased.lease]] * 3
        assert [one.lease for one in await world.store.overdue()] == [leased.lease]


async def _heartbeat(world: World, leased: Leased, span: str) -> list[Lease]:
    lease = world.after(span) - world.now
    return list(await world.store.heartbeat("worker-1", [leased.lease], lease=lease))
