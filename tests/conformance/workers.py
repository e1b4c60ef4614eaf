"""What a store promises to people who ask why: the last exchange, and what workers serve."""

from __future__ import annotations

from datetime import timedelta

from redrive.model.delivery import Leased
from redrive.model.outcome import Addressees, Exchange
from redrive.model.settlement import Delivered, Failed, FailureReason, RetryAt, Settlement, Snoozed
from redrive.store import Query, Serving, Settled
from tests.conformance.world import OPERATOR, World, a_fault, an_event, only

__all__ = ["AddresseesConformance", "ExchangeConformance", "WorkerConformance"]


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


class AddresseesConformance:
    """`Settled.addressees` and `Delivery.addressees`."""

    async def test_who_has_answered_for_good_is_kept_over_tries_and_replays(
        self, world: World
    ) -> None:
        [delivery_id] = await world.publish(an_event())
        first = Addressees(accepted=("ann@example.com",))
        both = Addressees(accepted=("ann@example.com",), refused={"bob@example.com": "550"})
        now = RetryAt(when=world.now, fault=a_fault())
        await _settle(world, await world.claim_one(), now, None, first)
        after_one = (await world.show(delivery_id)).addressees
        await _settle(world, await world.claim_one(), now, None)
        after_none = (await world.show(delivery_id)).addressees
        await _settle(world, await world.claim_one(), _failed(), None, both)
        [letter] = (await world.store.letters(Query())).letters

        await world.store.replay([delivery_id], actor=OPERATOR)

        assert (after_one, after_none) == (first, first)
        assert letter.delivery.addressees == both
        assert (await world.show(delivery_id)).addressees == both

    async def test_a_late_settlement_leaves_no_addressees(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        leased = await world.claim_one()
        world.clock.advance("30s")

        late = Addressees(accepted=("ann@example.com",))
        await world.store.settle(
            [Settled(lease=leased.lease, settlement=_failed(), addressees=late)]
        )

        assert (await world.show(delivery_id)).addressees is None

    async def test_who_has_answered_comes_along_with_a_letter(self, world: World) -> None:
        [delivery_id] = await world.publish(an_event())
        both = Addressees(accepted=("ann@example.com",), refused={"bob@example.com": "550"})
        await _settle(world, await world.claim_one(), _failed(), None, both)
        [letter] = (await world.store.letters(Query())).letters
        await world.store.delete([delivery_id], actor=OPERATOR)

        await world.store.restore([letter], actor=OPERATOR)

        [restored] = (await world.store.letters(Query())).letters
        assert restored.delivery.addressees == both


class WorkerConformance:
    """What `DeliveryQueue.heartbeat` is told that workers serve, and who hears of it."""

    async def test_workers_are_known_by_what_they_serve(self, world: World) -> None:
        serving = Serving(destinations=("billing",), generations=("blue", "green"))
        await _beat(world, "told", serving)
        await _beat(world, "silent")
        world.clock.advance("1s")
        await _beat(world, "told")

        silent, told = (await world.store.workload()).workers

        assert (told.id, told.serving, told.seen_at) == ("told", serving, world.now)
        assert (silent.id, silent.serving) == ("silent", None)
        assert (await world.store.figures()).workers == (silent, told)

    async def test_what_it_said_last_counts(self, world: World) -> None:
        await _beat(world, "worker-1", Serving(("billing",), ("blue",)))

        await _beat(world, "worker-1", green := Serving(("billing",), ("green",)))

        assert only((await world.store.workload()).workers).serving == green

    async def test_a_claim_does_not_forget_what_a_worker_serves(self, world: World) -> None:
        await _beat(world, "worker-1", serving := Serving(("billing",), ("default",)))
        await world.publish(an_event())

        await world.claim()

        assert only((await world.store.workload()).workers).serving == serving

    async def test_a_worker_that_comes_back_must_say_again_what_it_serves(
        self, world: World
    ) -> None:
        await _beat(world, "worker-1", Serving(("billing",), ("default",)))
        await world.store.retire("worker-1")

        await _beat(world, "worker-1")

        assert only((await world.store.workload()).workers).serving is None


async def _beat(world: World, worker: str, serving: Serving | None = None) -> None:
    await world.store.heartbeat(worker, [], lease=timedelta(seconds=30), serving=serving)


async def _settle(
    world: World,
    leased: Leased,
    settlement: Settlement,
    exchange: Exchange | None,
    addressees: Addressees | None = None,
) -> None:
    settled = Settled(
        lease=leased.lease, settlement=settlement, exchange=exchange, addressees=addressees
    )
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
