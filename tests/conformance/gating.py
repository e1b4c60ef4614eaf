"""What a store promises about gates: breakers, rates and pauses that all workers share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from redrive.errors import NotFoundError
from redrive.model.delivery import Kind, Leased
from redrive.model.destination import Order
from redrive.model.gate import BreakerChange, Closed, Failure, GateFigures, HalfOpen, Hold, Open
from redrive.model.limits import Breaker, Limits, Rate
from redrive.model.settlement import (
    Delivered,
    Failed,
    FailureReason,
    Requeued,
    RetryAt,
    Settlement,
    Snoozed,
)
from redrive.store import Allowance, Claim, ClaimRequest, Report, Rescue, Settled
from tests.conformance.world import (
    BILLING,
    OPERATOR,
    World,
    a_fault,
    an_event,
    entries,
    ids_of,
)

__all__ = [
    "DOWN",
    "LEASE",
    "UP",
    "BreakerConformance",
    "Gated",
    "PauseConformance",
    "RateConformance",
]

_BREAKER = Breaker(failures=3, open_for="60s", successes=2, probes=1)
LEASE = timedelta(seconds=15)
UP, DOWN = True, False


class BreakerConformance:
    """`Gates`: breakers, and how `claim` keeps to them."""

    async def test_failures_in_a_row_open_the_breaker(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(2)

        assert await gated.report(DOWN, DOWN, UP, DOWN, DOWN) == []
        assert await gated.report(DOWN) == [(Closed, Open)]

        claim = await gated.claim()
        assert ids_of(claim) == []
        assert claim.next_due == world.after("60s")
        assert (await gated.gate()).hold is Hold.BREAKER_OPEN

    async def test_an_open_breaker_spends_no_attempt(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(1)
        await gated.report(DOWN, DOWN, DOWN)

        await gated.claim()
        world.clock.advance("60s")
        [leased] = (await gated.claim()).deliveries

        assert leased.attempt == 1

    async def test_a_share_of_failures_opens_the_breaker_too(self, world: World) -> None:
        breaker = Breaker(failures=100, rate=0.5, least_calls=4, window="10s")
        gated = Gated(world, Limits(breaker=breaker))
        await gated.publish(1)

        assert await gated.report(UP, DOWN, UP) == []
        world.clock.advance("10s")
        assert await gated.report(UP, DOWN, UP) == []
        assert await gated.report(DOWN) == [(Closed, Open)]

    async def test_the_claim_after_the_open_time_begins_to_probe(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(5)
        await gated.report(DOWN, DOWN, DOWN)
        world.clock.advance("60s")

        claim = await gated.claim()

        assert len(claim.deliveries) == 1
        assert [(type(one.before), type(one.after)) for one in claim.changes] == [(Open, HalfOpen)]

    async def test_never_more_probes_than_allowed_whoever_asks(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=msgspec.structs.replace(_BREAKER, probes=2)))
        await gated.publish(9)
        await gated.report(DOWN, DOWN, DOWN)
        world.clock.advance("60s")

        claims = await asyncio.gather(*[gated.claim(worker=f"w{n}") for n in range(4)])

        assert sum(len(claim.deliveries) for claim in claims) == 2

    async def test_a_crashed_probe_frees_its_place(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(2)
        await gated.report(DOWN, DOWN, DOWN)
        world.clock.advance("60s")
        await gated.claim()
        assert ids_of(await gated.claim()) == []

        world.clock.advance(LEASE)

        assert len((await gated.claim()).deliveries) == 1

    async def test_enough_successes_close_it(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(9)
        await gated.report(DOWN, DOWN, DOWN)
        world.clock.advance("60s")
        changes: list[tuple[type, type]] = []
        for _ in range(2):
            [leased] = (await gated.claim()).deliveries
            await gated.settle(leased, Delivered())
            changes += await gated.report(UP)

        assert changes == [(HalfOpen, Closed)]
        assert len((await gated.claim()).deliveries) == 7

    async def test_the_longer_it_is_down_the_longer_it_stays_open(self, world: World) -> None:
        breaker = Breaker(failures=1, open_for="10s", longest_open="30s", successes=1)
        gated = Gated(world, Limits(breaker=breaker))
        await gated.publish(1)
        waits = []
        for _ in range(6):
            await gated.report(DOWN)
            state = (await gated.gate()).gate.breaker
            assert isinstance(state, Open)
            assert state.until is not None
            waits.append((state.until - world.now).total_seconds())
            world.clock.advance(state.until - world.now)
            [leased] = (await gated.claim()).deliveries
            await gated.settle(leased, RetryAt(when=world.now, fault=a_fault(), spends=False))

        assert waits == sorted(waits)
        assert waits[0] == 10
        assert 27 <= waits[-1] <= 30

    async def test_a_failed_probe_spends_no_attempt(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(1)
        [leased] = (await gated.claim()).deliveries
        await gated.settle(leased, RetryAt(when=world.now, fault=a_fault("first")))
        await gated.report(DOWN, DOWN, DOWN)
        for number in range(1, 4):
            world.clock.advance("120s")
            [probe] = (await gated.claim()).deliveries
            assert (probe.attempt, probe.is_probe, probe.is_known) == (2, True, False)

            failed = RetryAt(when=world.now, fault=a_fault(f"probe {number}"), spends=False)
            await gated.settle(probe, failed)
            await gated.report(DOWN)

        delivery = await world.show(leased.lease.delivery_id)
        assert (delivery.attempts, delivery.snoozes) == (1, 0)
        assert delivery.fault == a_fault("probe 3")
        assert (delivery.kind, delivery.last_failed_at) == (Kind.RETRY, world.now)

    async def test_the_next_probe_takes_another_delivery(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(3)
        await gated.report(DOWN, DOWN, DOWN)

        assert await gated.probes(7) == [1, 2, 3, 1, 2, 3, 1]

    async def test_the_next_probe_is_of_another_lane_too(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER), order=Order.PARK)
        for key in ("a", "a", "b"):
            await gated.publish(1, key=key)
        await gated.report(DOWN, DOWN, DOWN)

        assert await gated.probes(4) == [1, 3, 1, 3]

    async def test_a_probe_that_was_snoozed_or_lost_is_not_the_next_one(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(3)
        await gated.report(DOWN, DOWN, DOWN)
        world.clock.advance("60s")
        [snoozed] = (await gated.claim()).deliveries
        await gated.settle(snoozed, Snoozed(until=world.now))
        [lost] = (await gated.claim()).deliveries
        world.clock.advance(LEASE)
        requeued = Requeued(when=world.now, crashes=1, last_crash_at=world.now)
        await world.store.rescue([Rescue(lost.lease, requeued)])

        [third] = (await gated.claim()).deliveries

        tried = [one.lease.delivery_id for one in (snoozed, lost, third)]
        assert len(set(tried)) == 3

    async def test_a_probe_that_failed_before_others_arrived_is_known(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(1)
        await gated.report(DOWN, DOWN, DOWN)
        await gated.probes(1)
        await gated.publish(1)
        world.clock.advance("120s")
        [other] = (await gated.claim()).deliveries
        await gated.settle(other, Delivered())
        await gated.report(UP)

        [again] = (await gated.claim()).deliveries

        assert (other.is_probe, other.is_known) == (True, False)
        assert (again.is_probe, again.is_known) == (True, True)

    async def test_what_was_let_through_by_a_closed_breaker_is_no_probe(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(2)

        claimed = (await gated.claim()).deliveries

        assert [one.is_probe for one in claimed] == [False, False]

    async def test_a_report_tells_how_the_breakers_are_left(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(1)
        await gated.claim()

        changes: list[BreakerChange] = []
        for result, state in ((UP, Closed), (DOWN, Closed), (DOWN, Closed), (DOWN, Open)):
            report = Report(destination="gated", generation=0, is_success=result, error="refused")
            reported = await world.store.report([report], chance=0.5)
            assert [type(one) for one in reported.breakers.values()] == [state]
            changes += reported.changes

        failure = (await gated.gate()).gate.last_failure
        assert failure == Failure(error="refused", at=world.now)
        assert [one.failure for one in changes] == [failure]

    async def test_results_of_an_older_generation_change_nothing(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(1)
        await gated.report(DOWN, DOWN, DOWN)
        world.clock.advance("60s")
        await gated.claim()

        assert await gated.report(DOWN, UP, UP, generation=0) == []
        assert isinstance((await gated.gate()).gate.breaker, HalfOpen)

    async def test_a_person_opens_and_resets_it(self, world: World) -> None:
        gated = Gated(world, Limits())
        await gated.publish(1)

        opened = await world.store.open_breaker("gated", until=None, actor=OPERATOR)
        world.clock.advance("365d")
        assert ids_of(await gated.claim()) == []
        closed = await world.store.reset_breaker("gated", actor=OPERATOR)

        assert (type(opened.after), type(closed.after)) == (Open, Closed)
        assert len((await gated.claim()).deliveries) == 1
        entries = await world.store.audit()
        assert [(one.action, one.detail, one.by) for one in entries] == [
            ("reset_breaker", "gated", OPERATOR.by),
            ("open_breaker", "gated", OPERATOR.by),
        ]

    async def test_a_suspect_behind_an_open_breaker_is_not_offered(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(1)
        for crashes in (1, 2):
            [leased] = (await gated.claim()).deliveries
            world.clock.advance(LEASE)
            requeued = Requeued(when=world.now, crashes=crashes, last_crash_at=world.now)
            assert list(await world.store.rescue([Rescue(leased.lease, requeued)])) == []
        assert (await gated.claim()).suspects == 1

        await gated.report(DOWN, DOWN, DOWN)

        assert (await gated.claim()).suspects == 0
        assert ids_of(await gated.claim(alone=True)) == []


class RateConformance:
    """`Gates`: rates and concurrency, taken by `claim`."""

    async def test_first_attempts_keep_to_their_rate(self, world: World) -> None:
        gated = Gated(world, Limits(rate=Rate(per_second=10.0, burst=2.0)))
        await gated.publish(20)

        claim = await gated.claim()
        assert len(claim.deliveries) == 2
        again = await gated.claim()
        assert ids_of(again) == []
        assert again.next_due == world.after("100ms")
        assert (await gated.gate()).hold is Hold.RATE

        world.clock.advance("100ms")
        assert len((await gated.claim()).deliveries) == 1
        world.clock.advance("1h")
        assert len((await gated.claim()).deliveries) == 2

    @pytest.mark.parametrize("kind", ["first", "retry", "replay"])
    async def test_there_is_a_token_when_a_claim_says_so(self, world: World, kind: str) -> None:
        rates = dict.fromkeys(("rate", "retry_rate", "replay_rate"))
        for per_second in (7, 14, 90):
            own = {"first": "rate"}.get(kind, f"{kind}_rate")
            limits = Limits(**{**rates, own: Rate(per_second=per_second)})  # type: ignore[arg-type]
            gated = Gated(world, limits, name=f"gated-{kind}-{per_second}")
            await gated.publish(3)
            if kind != "first":
                await gated.fail_all(for_good=kind == "replay")
            await gated.claim()

            for _ in range(2):
                next_due = (await gated.claim()).next_due
                assert next_due is not None
                assert next_due > world.now
                world.clock.advance(next_due - world.now)
                assert len((await gated.claim()).deliveries) == 1

    async def test_concurrent_claims_share_the_tokens(self, world: World) -> None:
        gated = Gated(world, Limits(rate=Rate(per_second=1.0, burst=5.0)))
        await gated.publish(50)

        claims = await asyncio.gather(*[gated.claim(worker=f"w{n}") for n in range(4)])

        assert sum(len(claim.deliveries) for claim in claims) == 5

    async def test_retries_and_first_attempts_are_counted_apart(self, world: World) -> None:
        gated = Gated(world, Limits(retry_rate=Rate(per_second=1.0, burst=1.0)))
        await gated.publish(3)
        for leased in (await gated.claim()).deliveries:
            await gated.settle(leased, RetryAt(when=world.now, fault=a_fault()))
        await gated.publish(3)

        claim = await gated.claim()

        assert sorted(one.attempt for one in claim.deliveries) == [1, 1, 1, 2]

    async def test_replays_keep_to_a_rate_of_their_own(self, world: World) -> None:
        gated = Gated(world, Limits(replay_rate=Rate(per_second=1.0, burst=1.0)))
        await gated.publish(3)
        claimed = (await gated.claim()).deliveries
        for leased in claimed:
            failed = Failed(reason=FailureReason.TERMINAL, fault=a_fault())
            await gated.settle(leased, failed)
        ids = [one.lease.delivery_id for one in claimed]
        await world.store.replay(ids, actor=OPERATOR)

        assert len((await gated.claim()).deliveries) == 1

    async def test_what_waited_behind_a_closed_gate_pays_as_retries_do(self, world: World) -> None:
        gated = Gated(world, Limits(retry_rate=Rate(per_second=10.0, burst=2.0)))
        await gated.publish(10)
        await world.store.pause("gated", actor=OPERATOR)
        world.clock.advance("10s")
        await world.store.resume("gated", actor=OPERATOR)
        world.clock.advance("1ms")
        await gated.publish(3)

        held = await gated.claim()

        assert len(held.deliveries) == 2 + 3

    async def test_retries_keep_to_their_budget(self, world: World) -> None:
        gated = Gated(world, Limits(retry_budget=0.0))
        await gated.publish(200)
        for leased in (await gated.claim(total=200)).deliveries:
            await gated.settle(leased, RetryAt(when=world.now, fault=a_fault()))

        claim = await gated.claim(total=200)

        assert len(claim.deliveries) == 100
        assert (await gated.gate()).hold is Hold.RETRY_BUDGET

    async def test_concurrency_is_shared_by_all_workers(self, world: World) -> None:
        gated = Gated(world, Limits(concurrency=3))
        await gated.publish(9)

        first = await gated.claim(total=2, worker="w1")
        second = await gated.claim(worker="w2")
        assert len(first.deliveries) + len(second.deliveries) == 3
        await gated.settle(first.deliveries[0], Delivered())

        assert len((await gated.claim(worker="w3")).deliveries) == 1

    async def test_a_wait_asked_by_the_destination_holds_everybody(self, world: World) -> None:
        gated = Gated(world, Limits())
        await gated.publish(2)
        slow = Report(destination="gated", generation=0, slow_for=timedelta(seconds=30))

        await world.store.report([slow], chance=0.5)

        claim = await gated.claim()
        assert ids_of(claim) == []
        assert claim.next_due == world.after("30s")
        assert (await gated.gate()).hold is Hold.SLOWED
        world.clock.advance("30s")
        assert len((await gated.claim()).deliveries) == 2

    async def test_the_gate_of_one_destination_is_not_that_of_another(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(1)
        [other] = await world.publish(an_event())

        await gated.report(DOWN, DOWN, DOWN)

        assert ids_of(await world.claim()) == [other]


class PauseConformance:
    """`Gates`: pauses."""

    async def test_a_pause_amid_the_work_holds_what_is_left(self, world: World) -> None:
        await world.publish(*[an_event() for _ in range(4)])
        begun = [await world.claim_one() for _ in range(2)]

        await world.store.pause("billing", actor=OPERATOR)

        assert len(begun) == 2
        assert not (await world.claim("billing")).deliveries

    async def test_a_paused_destination_waits_until_it_is_resumed(self, world: World) -> None:
        gated = Gated(world, Limits())
        await gated.publish(1)

        assert await world.store.pause("gated", actor=OPERATOR)
        assert ids_of(await gated.claim()) == []
        figures = await gated.gate()
        assert figures.hold is Hold.PAUSED
        assert figures.gate.pause is not None
        assert (figures.gate.pause.by, figures.gate.pause.at) == (OPERATOR.by, world.now)

        assert await world.store.resume("gated", actor=OPERATOR)
        assert len((await gated.claim()).deliveries) == 1

    async def test_what_changes_nothing_is_not_in_the_audit(self, world: World) -> None:
        gated = Gated(world, Limits())
        await gated.publish(1)

        assert not await world.store.resume("gated", actor=OPERATOR)
        await world.store.pause("gated", actor=OPERATOR)
        assert not await world.store.pause("gated", actor=OPERATOR)

        assert [one.action for one in await world.store.audit()] == ["pause"]

    async def test_an_unknown_destination_has_no_gate(self, world: World) -> None:
        await world.version()

        with pytest.raises(NotFoundError, match="nowhere"):
            await world.store.pause("nowhere", actor=OPERATOR)


class Gated:
    """Work for one destination with limits of its own."""

    def __init__(
        self, world: World, limits: Limits, *, order: Order = Order.NONE, name: str = "gated"
    ) -> None:
        self._world = world
        self._name = name
        self.destination = msgspec.structs.replace(BILLING, name=name, limits=limits, order=order)

    async def publish(
        self, count: int, *, key: str | None = None, due: datetime | None = None
    ) -> None:
        """Publish events for the destination alone."""
        store = self._world.store
        routes = await store.register([self.destination])
        batch = entries(*[an_event(key=key, due=due) for _ in range(count)], to=[self._name])
        await store.append(batch, routes_version=routes.version, all_or_nothing=True)

    async def claim(
        self,
        *,
        total: int = 100,
        worker: str = "worker-1",
        alone: bool = False,
    ) -> Claim:
        """Claim for the destination alone."""
        return await self._world.store.claim(
            ClaimRequest(
                worker=worker,
                allowances=(Allowance(destination=self._name, total=total),),
                generations=("default",),
                limit=1_000,
                lease=LEASE,
                alone=alone,
            )
        )

    async def settle(self, leased: Leased, settlement: Settlement) -> None:
        """Settle one delivery, which must be accepted."""
        settled = Settled(lease=leased.lease, settlement=settlement)
        assert list(await self._world.store.settle([settled])) == []

    async def probes(self, count: int) -> list[int]:
        """Let so many probes fail, one after the other; return the number of each delivery."""
        probed = []
        for _ in range(count):
            self._world.clock.advance("60s")
            [probe] = (await self.claim()).deliveries
            probed.append(int(probe.lease.delivery_id))
            failed = RetryAt(when=self._world.now, fault=a_fault(), spends=False)
            await self.settle(probe, failed)
            await self.report(DOWN)
        first = min(probed)
        return [one - first + 1 for one in probed]

    async def fail_all(self, *, for_good: bool) -> None:
        """Let all that waits fail once, and wait for another try: a retry, or else a replay."""
        failed: Settlement = RetryAt(when=self._world.now, fault=a_fault())
        if for_good:
            failed = Failed(reason=FailureReason.TERMINAL, fault=a_fault())
        claimed = (await self.claim()).deliveries
        for leased in claimed:
            await self.settle(leased, failed)
        if for_good:
            ids = [leased.lease.delivery_id for leased in claimed]
            await self._world.store.replay(ids, actor=OPERATOR)

    async def report(
        self, *results: bool, generation: int | None = None
    ) -> Sequence[tuple[type, type]]:
        """Report results of the present generation; return how the breaker changed."""
        if generation is None:
            generation = (await self.gate()).gate.breaker.generation
        batch = [
            Report(destination=self._name, generation=generation, is_success=result)
            for result in results
        ]
        reported = await self._world.store.report(batch, chance=0.5)
        return [(type(one.before), type(one.after)) for one in reported.changes]

    async def gate(self) -> GateFigures:
        """Return the gate as people see it."""
        [found] = [one for one in await self._world.store.gates() if one.destination == self._name]
        return found
