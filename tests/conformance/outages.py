"""What a store promises about outages: health checks, pauses of our own, giving up, the ramp."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from redrive.model.audit import REDRIVE
from redrive.model.delivery import Kind, Status
from redrive.model.destination import Order
from redrive.model.gate import BreakerChange, Closed, HalfOpen, Hold, Open
from redrive.model.limits import Breaker, Limits, Rate
from redrive.model.outcome import Fault
from redrive.model.settlement import Delivered, FailureReason, RetryAt
from redrive.store import Report
from tests.conformance.gating import DOWN, UP, Gated
from tests.conformance.world import OPERATOR, World, a_fault, ids_of

__all__ = ["AutoPauseConformance", "HealthCheckConformance", "RampConformance", "ShedConformance"]

_BREAKER = Breaker(failures=1, open_for="10m", successes=2)
_QUICK = Breaker(failures=1, open_for="10m", successes=1)
_EVERY = timedelta(seconds=5)
_LEASE = timedelta(seconds=3)


class HealthCheckConformance:
    """`Gates.begin_check`, and reports of checks."""

    async def test_one_check_at_a_time_is_leased_while_the_breaker_is_open(
        self, world: World
    ) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(1)
        assert await _begin(world) is None
        await gated.report(DOWN)
        assert await _begin(world) is None
        world.clock.advance(_EVERY)

        begun = await asyncio.gather(*[_begin(world) for _ in range(4)])

        assert [one for one in begun if one is not None] == [1]

    async def test_the_next_check_comes_after_a_while(self, world: World) -> None:
        gated = await _down(world)
        world.clock.advance(_EVERY)
        assert await _begin(world) == 1
        await _answer(world, DOWN)

        world.clock.advance(_EVERY - timedelta(microseconds=1))
        assert await _begin(world) is None
        world.clock.advance(timedelta(microseconds=1))

        assert await _begin(world) == 1
        assert isinstance((await gated.gate()).gate.breaker, Open)

    async def test_a_check_that_never_answers_is_over_with_its_lease(self, world: World) -> None:
        await _down(world)
        world.clock.advance(_EVERY)
        lease = timedelta(seconds=20)
        assert await _begin(world, lease=lease) == 1

        world.clock.advance(lease - timedelta(microseconds=1))
        assert await _begin(world) is None
        world.clock.advance(timedelta(microseconds=1))

        assert await _begin(world) == 1

    async def test_a_healthy_answer_is_the_first_successful_probe(self, world: World) -> None:
        gated = await _down(world)
        world.clock.advance(_EVERY)
        await _begin(world)

        reported = await _answer(world, UP)

        state = (await gated.gate()).gate.breaker
        assert [(type(one.before), type(one.after)) for one in reported] == [(Open, HalfOpen)]
        assert isinstance(state, HalfOpen)
        assert state.successes == 1
        assert len((await gated.claim()).deliveries) == 1

    async def test_one_healthy_answer_closes_a_breaker_that_asks_for_one(
        self, world: World
    ) -> None:
        await _down(world, _QUICK)
        world.clock.advance(_EVERY)
        await _begin(world)

        reported = await _answer(world, UP)

        assert [(type(one.before), type(one.after)) for one in reported] == [(Open, Closed)]

    async def test_an_answer_of_an_older_generation_changes_nothing(self, world: World) -> None:
        gated = await _down(world)
        world.clock.advance(_EVERY)
        await _begin(world)
        await world.store.reset_breaker("gated", actor=OPERATOR)
        await gated.report(DOWN)

        assert await _answer(world, UP) == ()
        assert isinstance((await gated.gate()).gate.breaker, Open)

    async def test_a_check_under_way_takes_the_place_of_a_probe(self, world: World) -> None:
        breaker = msgspec.structs.replace(_BREAKER, open_for=timedelta(seconds=6))
        gated = await _down(world, breaker)
        world.clock.advance(_EVERY)
        assert await _begin(world) == 1
        world.clock.advance("1s")

        assert ids_of(await gated.claim()) == []
        world.clock.advance("2s")

        assert len((await gated.claim()).deliveries) == 1

    async def test_what_a_person_shut_is_not_checked(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=_BREAKER))
        await gated.publish(1)
        await world.store.open_breaker("gated", until=None, actor=OPERATOR)
        world.clock.advance("1h")
        opened = await _begin(world)
        await world.store.reset_breaker("gated", actor=OPERATOR)
        await gated.report(DOWN)
        await world.store.pause("gated", actor=OPERATOR)
        world.clock.advance("1m")

        assert (opened, await _begin(world)) == (None, None)


class AutoPauseConformance:
    """`Gates.report` of a destination that must be left alone."""

    async def test_a_report_pauses_a_destination_once(self, world: World) -> None:
        gated = Gated(world, Limits())
        await gated.publish(3)
        gone = Report(destination="gated", generation=0, pause="410 Gone")

        first = await world.store.report([gone, gone], chance=0.5)
        again = await world.store.report([gone], chance=0.5)

        assert (first.paused, again.paused) == (("gated",), ())
        assert ids_of(await gated.claim()) == []
        figures = await gated.gate()
        assert figures.hold is Hold.PAUSED
        assert figures.gate.pause is not None
        assert (figures.gate.pause.by, figures.gate.pause.why) == (REDRIVE, "410 Gone")
        assert [(one.action, one.by, one.why, one.detail) for one in await world.store.audit()] == [
            ("pause", REDRIVE, "410 Gone", "gated")
        ]

    async def test_a_report_leaves_the_pause_of_a_person_as_it_is(self, world: World) -> None:
        gated = Gated(world, Limits())
        await gated.publish(1)
        await world.store.pause("gated", actor=OPERATOR)

        gone = Report(destination="gated", generation=0, pause="410 Gone")
        reported = await world.store.report([gone], chance=0.5)

        pause = (await gated.gate()).gate.pause
        assert reported.paused == ()
        assert pause is not None
        assert pause.by == OPERATOR.by

    async def test_what_has_failed_for_long_is_paused_and_has_as_long_once_it_is_resumed(
        self, world: World
    ) -> None:
        limits = Limits(
            breaker=Breaker(failures=1, open_for="60s"), disable_after=timedelta(days=5)
        )
        gated = Gated(world, limits)
        await gated.publish(4)
        await gated.report(DOWN)
        world.clock.advance("4d")
        await gated.probes(1)
        early = (await gated.gate()).gate.pause
        world.clock.advance("1d")

        await gated.probes(1)
        figures = await gated.gate()
        await world.store.resume("gated", actor=OPERATOR)
        await gated.probes(1)
        resumed = (await gated.gate()).gate.pause

        assert (early, resumed) == (None, None)
        assert figures.gate.pause is not None
        assert figures.gate.pause.by == REDRIVE
        assert "It has failed since 2026-01-01 12:00 UTC" in figures.gate.pause.why
        assert [one.action for one in await world.store.audit()] == ["resume", "pause"]


class ShedConformance:
    """`DeliveryQueue.shed`."""

    async def test_what_is_due_at_an_open_breaker_fails_if_it_is_not_to_wait(
        self, world: World
    ) -> None:
        gated = await _down(world, msgspec.structs.replace(_BREAKER, on_open="dead_letter"))
        await gated.publish(2)

        shed = await world.store.shed(blame=_blame)

        assert [one.reason for one in shed] == [FailureReason.CIRCUIT_OPEN] * 5
        assert {(one.status, one.attempts) for one in shed} == {(Status.FAILED, 0)}
        assert {one.fault for one in shed} == {_blame("gated", FailureReason.CIRCUIT_OPEN)}
        assert await world.found(status=Status.PENDING) == ()
        assert len(await world.found(group="gated circuit_open")) == 5

    async def test_no_more_than_asked_for_are_given_up_at_once(self, world: World) -> None:
        await _down(world, msgspec.structs.replace(_BREAKER, on_open="dead_letter"))

        assert len(await world.store.shed(blame=_blame, limit=2)) == 2
        assert len(await world.store.shed(blame=_blame, limit=2)) == 1

    async def test_an_open_breaker_holds_unless_it_says_otherwise(self, world: World) -> None:
        await _down(world)

        assert list(await world.store.shed(blame=_blame)) == []

    async def test_nothing_is_given_up_before_it_is_due_or_while_paused(self, world: World) -> None:
        breaker = msgspec.structs.replace(_BREAKER, on_open="dead_letter")
        gated = Gated(world, Limits(breaker=breaker))
        await gated.publish(1, due=world.after("1m"))
        await gated.report(DOWN)

        assert list(await world.store.shed(blame=_blame)) == []
        world.clock.advance("1m")
        await world.store.pause("gated", actor=OPERATOR)
        assert list(await world.store.shed(blame=_blame)) == []
        await world.store.resume("gated", actor=OPERATOR)

        assert len(await world.store.shed(blame=_blame)) == 1

    async def test_only_the_head_of_a_lane_is_given_up(self, world: World) -> None:
        breaker = msgspec.structs.replace(_BREAKER, on_open="dead_letter")
        gated = Gated(world, Limits(breaker=breaker), order=Order.PARK)
        await gated.publish(3, key="a")
        await gated.report(DOWN)

        assert len(await world.store.shed(blame=_blame)) == 1
        assert list(await world.store.shed(blame=_blame)) == []

    async def test_a_breaker_whose_time_is_over_is_not_open(self, world: World) -> None:
        await _down(world, msgspec.structs.replace(_BREAKER, on_open="dead_letter"))
        world.clock.advance("10m")

        assert list(await world.store.shed(blame=_blame)) == []

    async def test_retries_above_their_rate_fail_if_they_are_not_to_wait(
        self, world: World
    ) -> None:
        rate = Rate(per_second=1.0, burst=1.0)
        gated = Gated(world, Limits(retry_rate=rate, over_retry_rate="dead_letter"))
        await gated.publish(3)
        for leased in (await gated.claim()).deliveries:
            await gated.settle(leased, RetryAt(when=world.now, fault=a_fault()))

        assert list(await world.store.shed(blame=_blame)) == []
        await gated.claim()
        await gated.publish(2)
        shed = await world.store.shed(blame=_blame)

        assert {(one.reason, one.kind, one.attempts) for one in shed} == {
            (FailureReason.RETRY_RATE_LIMITED, Kind.RETRY, 1)
        }
        assert len(shed) == 2
        assert len((await gated.claim()).deliveries) == 2

    async def test_retries_above_their_rate_wait_unless_they_are_not_to(self, world: World) -> None:
        gated = Gated(world, Limits(retry_rate=Rate(per_second=1.0, burst=1.0)))
        await gated.publish(3)
        for leased in (await gated.claim()).deliveries:
            await gated.settle(leased, RetryAt(when=world.now, fault=a_fault()))
        await gated.claim()

        assert list(await world.store.shed(blame=_blame)) == []


class RampConformance:
    """The pace of what has waited, after a gate has reopened."""

    async def test_what_has_waited_goes_out_at_a_pace_that_grows(self, world: World) -> None:
        gated = await _back(world, held=200)

        assert len((await gated.claim(total=200)).deliveries) == 10
        assert (await gated.gate()).hold is Hold.RAMP
        again = await gated.claim(total=200)
        assert (ids_of(again), again.next_due) == ([], world.after("100ms"))
        world.clock.advance("15s")

        assert len((await gated.claim(total=200)).deliveries) == 32

    async def test_what_is_new_does_not_wait_for_the_ramp(self, world: World) -> None:
        gated = await _back(world, held=20)
        world.clock.advance("1ms")
        await gated.publish(5)

        assert len((await gated.claim()).deliveries) == 10 + 5

    async def test_the_ramp_ends(self, world: World) -> None:
        gated = await _back(world, held=99)
        world.clock.advance("30s")

        assert len((await gated.claim()).deliveries) == 99


async def _begin(world: World, *, lease: timedelta = _LEASE) -> int | None:
    return await world.store.begin_check("gated", every=_EVERY, lease=lease)


async def _answer(world: World, is_healthy: bool) -> Sequence[BreakerChange]:  # noqa: FBT001 - UP or DOWN
    report = Report(destination="gated", generation=1, is_success=is_healthy, is_check=True)
    return (await world.store.report([report], chance=0.5)).changes


async def _down(world: World, breaker: Breaker = _BREAKER) -> Gated:
    """Leave three deliveries waiting behind a breaker that has just opened."""
    gated = Gated(world, Limits(breaker=breaker))
    await gated.publish(3)
    await gated.report(DOWN)
    await _begin(world)
    return gated


async def _back(world: World, *, held: int) -> Gated:
    """Let so many deliveries wait behind a breaker that has just closed."""
    gated = Gated(world, Limits(breaker=_QUICK))
    await gated.publish(held + 1)
    await gated.report(DOWN)
    world.clock.advance("10m")
    [probe] = (await gated.claim()).deliveries
    await gated.settle(probe, Delivered())
    await gated.report(UP)
    return gated


def _blame(destination: str, reason: FailureReason) -> Fault:
    return a_fault(f"{destination} gave up", "GivenUp", group=f"{destination} {reason}")
