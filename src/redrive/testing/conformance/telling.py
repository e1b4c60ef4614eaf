"""What a store promises to people who ask why: the last exchange, and what workers serve."""

from __future__ import annotations

from redrive.model.delivery import Leased
from redrive.model.outcome import Exchange
from redrive.model.settlement import Delivered, Failed, FailureReason, RetryAt, Settlement, Snoozed
from redrive.store import Serving, Settled
from redrive.testing.conformance.world import OPERATOR, World, a_fault, an_event, only

__all__ = ["ExchangeConformance", "WorkerConformance"]


class ExchangeConformance:
    """`Settled.exchange` and `Delivery.exchange`."""

    async def test_a_failed_try_leaves_what_was_sent_and_answered(self, world: World) -> None:
        [retried] = await world.publish(an_event())
        leased = await world.claim_one()
        again = RetryAt(when=world.after("1m"), fault=a_fault())
        await _settle(world, leased, again, _exchange("busy"))
        [failed] = await world.publish(an_event())
        leased = await world.claim_one()
        await _settle(world, leased, _failed(), _exchange("z" * 2**16))

        assert (await world.show(retried)).exchange == _exchange("busy")
        assert (await world.show(failed)).exchange == _exchange("z" * 2**16)

    async def test_lists_leave_exchanges_out(self, world: World) -> None:
        await world.publish(an_event())
        await _settle(world, await world.claim_one(), _failed(), _exchange("gone"))

        assert only(await world.found()).exchange is None

    async def test_only_the_exchange_of_the_last_try_is_kept(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        now = RetryAt(when=world.now, fault=a_fault())
        await _settle(world, await world.claim_one(), now, _exchange("first"))
        await _settle(world, await world.claim_one(), now, _exchange("second"))
        second = (await world.show(delivery_id)).exchange

        snoozed = Snoozed(until=world.now)
        await _settle(world, await world.claim_one(), snoozed, None)

        assert second == _exchange("second")
        assert (await world.show(delivery_id)).exchange is None

    async def test_neither_delivery_nor_replay_keeps_an_exchange(self, world: World) -> None:
        [delivered] = await world.publish(an_event())
        now = RetryAt(when=world.now, fault=a_fault())
        await _settle(world, await world.claim_one(), now, _exchange("busy"))
        await _settle(world, await world.claim_one(), Delivered(), None)
        [replayed] = await world.publish(an_event())
        await _settle(world, await world.claim_one(), _failed(), _exchange("gone"))

        await world.store.replay([replayed], actor=OPERATOR)

        assert (await world.show(delivered)).exchange is None
        assert (await world.show(replayed)).exchange is None

    async def test_a_late_settlement_leaves_no_exchange(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        world.clock.advance("30s")

        settled = Settled(lease=leased.lease, settlement=_failed(), exchange=_exchange("late"))
        refused = await world.store.settle([settled])

        assert list(refused) == [leased.lease]
        assert (await world.show(delivery_id)).exchange is None


class WorkerConformance:
    """`DeliveryQueue.announce` and `Inspection.workers`."""

    async def test_a_worker_is_listed_with_what_it_serves(self, world: World) -> None:
        blue = Serving(destinations=("billing", "ledger"), generations=("blue",))
        await world.store.announce("worker-2", blue)
        await world.store.heartbeat("worker-1", [], lease=world.after("30s") - world.now)
        world.clock.advance("1s")
        await world.store.heartbeat("worker-2", [], lease=world.after("30s") - world.now)

        listed = tuple(await world.store.workers())

        assert [(one.id, one.serving) for one in listed] == [("worker-1", None), ("worker-2", blue)]
        assert listed[1].seen_at == world.now
        assert listed == (await world.store.figures()).workers

    async def test_what_it_said_last_counts(self, world: World) -> None:
        blue = Serving(destinations=("billing",), generations=("blue",))
        green = Serving(destinations=("billing",), generations=("green",))
        await world.store.announce("worker-1", blue)

        await world.store.announce("worker-1", green)

        assert only(await world.store.workers()).serving == green

    async def test_a_worker_that_comes_back_must_say_again_what_it_serves(
        self, world: World
    ) -> None:
        serving = Serving(destinations=("billing",), generations=("default",))
        await world.store.announce("worker-1", serving)
        await world.store.retire("worker-1")

        await world.store.heartbeat("worker-1", [], lease=world.after("30s") - world.now)

        assert only(await world.store.workers()).serving is None


async def _settle(
    world: World, leased: Leased, settlement: Settlement, exchange: Exchange | None
) -> None:
    settled = Settled(lease=leased.lease, settlement=settlement, exchange=exchange)
    assert list(await world.store.settle([settled])) == []


def _failed() -> Failed:
    return Failed(reason=FailureReason.TERMINAL, fault=a_fault())


def _exchange(body: str) -> Exchange:
    return Exchange(
        method="POST",
        url="https://api.example.com/hooks",
        headers={"content-type": "application/json"},
        size=12,
        status=500,
        reason="Internal Server Error",
        answer_headers={"x-request": "r-7"},
        body=body,
        is_cut=len(body) >= 2**16,
    )
