"""What a store promises about requests, which are made past the deliveries."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from redrive.errors import NotFoundError
from redrive.model.gate import Closed, HalfOpen, Hold, Open
from redrive.model.limits import Breaker, Limits, Rate, SharedRate
from redrive.model.settlement import Delivered
from redrive.store import Entrance, Report
from tests.conformance.gating import DOWN, Gated
from tests.conformance.world import BILLING, OPERATOR, World, ids_of

__all__ = ["CallingConformance"]

_LEASE = timedelta(seconds=30)
_BREAKER = Breaker(failures=1, open_for="60s", successes=2, probes=1, ramp="0s")


class CallingConformance:
    """`Calls`."""

    async def test_a_request_at_an_open_gate_changes_nothing(self, world: World) -> None:
        gated = await _gated(world, Limits(breaker=_BREAKER))
        before = (await gated.gate()).gate

        entrance = await _begin(world)

        assert (entrance.hold, entrance.is_counted, entrance.is_probe) == (None, False, False)
        assert entrance.destination == gated.destination
        assert (await gated.gate()).gate == before

    async def test_a_request_is_charged_as_a_first_attempt(self, world: World) -> None:
        gated = await _gated(world, Limits(rate=Rate(per_second=1.0, burst=2.0)))
        await gated.publish(1)

        entrances = [await _begin(world, f"call-{n}") for n in range(3)]

        assert [one.hold for one in entrances] == [None, None, Hold.RATE]
        assert entrances[2].until == world.after("1s")
        assert ids_of(await gated.claim()) == []

    async def test_requests_and_deliveries_run_beside_each_other_up_to_the_limit(
        self, world: World
    ) -> None:
        gated = await _gated(world, Limits(concurrency=2))
        await gated.publish(2)

        first = await _begin(world, "first")
        [leased] = (await gated.claim()).deliveries
        refused = await _begin(world, "second")
        await gated.settle(leased, Delivered())
        second = await _begin(world, "second")

        assert (first.hold, first.is_counted, second.hold) == (None, True, None)
        assert refused.hold is Hold.CONCURRENCY
        assert ids_of(await gated.claim()) == []
        await _end(world, "first")
        assert len((await gated.claim()).deliveries) == 1

    async def test_of_requests_at_once_no_more_pass_than_may(self, world: World) -> None:
        await _gated(world, Limits(concurrency=2))

        entrances = await asyncio.gather(*[_begin(world, f"call-{n}") for n in range(6)])

        assert sum(one.hold is None for one in entrances) == 2

    async def test_a_request_whose_end_nobody_tells_ends_with_its_lease(self, world: World) -> None:
        await _gated(world, Limits(concurrency=1))
        await _begin(world, "lost")

        early = await _begin(world, "next")
        world.clock.advance(_LEASE)
        late = await _begin(world, "next")

        assert (early.hold, late.hold) == (Hold.CONCURRENCY, None)

    async def test_an_open_breaker_keeps_requests_out_and_says_why(self, world: World) -> None:
        gated = await _gated(world, Limits(breaker=_BREAKER))
        await world.store.report(
            [Report(destination="gated", generation=0, is_success=False, error="503: no")],
            chance=0.0,
        )

        entrance = await _begin(world)

        assert (entrance.hold, entrance.until) == (Hold.BREAKER_OPEN, world.after("60s"))
        assert entrance.failure is not None
        assert entrance.failure.error == "503: no"
        assert isinstance((await gated.gate()).gate.breaker, Open)

    async def test_a_request_probes_a_destination_that_was_down(self, world: World) -> None:
        gated = await _gated(world, Limits(breaker=_BREAKER))
        await gated.publish(1)
        await gated.report(DOWN)
        world.clock.advance("60s")

        probe = await _begin(world, "probe")
        beside = await _begin(world, "beside")

        assert (probe.is_probe, probe.is_counted, probe.retries) == (True, True, 0)
        assert [(type(one.before), type(one.after)) for one in probe.changes] == [(Open, HalfOpen)]
        assert beside.hold is Hold.PROBING
        assert ids_of(await gated.claim()) == []
        await _end(world, "probe", is_success=True, generation=probe.generation)
        again = await _begin(world, "again")
        await _end(world, "again", is_success=True, generation=again.generation)
        assert isinstance((await gated.gate()).gate.breaker, Closed)

    async def test_retries_of_requests_are_charged_as_retries(self, world: World) -> None:
        rate = Rate(per_second=1.0, burst=3.0)
        gated = await _gated(world, Limits(retry_rate=rate, breaker=None))

        before = await _begin(world, "call")
        await _end(world, "call", retries=2)
        after = await _begin(world, "call")

        assert (before.retries, after.retries) == (3, 1)
        assert (await gated.gate()).gate.first.at is None

    async def test_a_person_keeps_requests_out_and_is_quoted(self, world: World) -> None:
        await _gated(world, Limits())
        await world.store.pause("gated", actor=OPERATOR)

        entrance = await _begin(world)

        assert (entrance.hold, entrance.why) == (Hold.PAUSED, OPERATOR.why)

    @pytest.mark.parametrize("everywhere", [True, False])
    async def test_nothing_is_asked_for_a_tenant_who_is_paused(
        self, world: World, *, everywhere: bool
    ) -> None:
        await _gated(world, Limits())
        where = None if everywhere else "gated"
        await world.store.pause_tenant("acme", destination=where, actor=OPERATOR)

        acme = await _begin(world, tenant="acme")
        others = await _begin(world, tenant="other")

        assert (acme.hold, others.hold) == (Hold.PAUSED, None)
        assert "acme" in acme.why

    async def test_a_disabled_service_is_not_asked(self, world: World) -> None:
        gated = Gated(world, Limits())
        disabled = msgspec.structs.replace(gated.destination, is_disabled=True)
        await world.store.register([disabled])

        entrance = await _begin(world)

        assert (entrance.hold, entrance.why) == (Hold.PAUSED, "the service is disabled")

    async def test_requests_draw_from_a_rate_that_is_shared(self, world: World) -> None:
        shared = SharedRate("account", Rate(per_second=1.0, burst=1.0))
        await _gated(world, Limits(shared_rate=shared))
        other = msgspec.structs.replace(BILLING, name="other", limits=Limits(shared_rate=shared))
        await world.store.register([other])

        one = await _begin(world, "one")
        two = await _begin(world, "two", to="other")

        assert (one.hold, two.hold) == (None, Hold.SHARED_RATE)

    async def test_who_is_not_there_or_was_removed_cannot_be_asked(self, world: World) -> None:
        await _gated(world, Limits())

        with pytest.raises(NotFoundError, match="did you mean 'gated'"):
            await _begin(world, to="gatet")
        await world.store.unregister("gated", actor=OPERATOR)
        with pytest.raises(NotFoundError, match="'gated'"):
            await _begin(world)

    async def test_who_waits_for_a_place_is_told_when_a_request_ends(self, world: World) -> None:
        await _gated(world, Limits(concurrency=1))
        await _begin(world, "call")

        assert await world.wakes(lambda: _end(world, "call"))


async def _gated(world: World, limits: Limits) -> Gated:
    gated = Gated(world, limits)
    await world.store.register([gated.destination])
    return gated


async def _begin(
    world: World, call: str = "call", *, to: str = "gated", tenant: str | None = None
) -> Entrance:
    return await world.store.begin_call(to, call=call, lease=_LEASE, tenant=tenant)


async def _end(
    world: World,
    call: str,
    *,
    is_success: bool | None = None,
    generation: int = 0,
    retries: int = 0,
) -> None:
    report = Report(
        destination="gated",
        generation=generation,
        is_success=is_success,
        call=call,
        retries=retries,
    )
    await world.store.report([report], chance=0.0)
