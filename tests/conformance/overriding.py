"""What a store promises about limits that a person sets for a while."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.errors import NotFoundError
from redrive.model.audit import Actor
from redrive.model.limits import Limits, Rate
from redrive.model.settlement import Delivered
from redrive.store import Declarer
from tests.conformance.gating import Gated
from tests.conformance.world import OPERATOR, World, ids_of

__all__ = ["OverrideConformance"]

_SLOW = Rate(per_second=0.1, burst=2.0)
_FAST = Rate(per_second=100.0, burst=10.0)
_HOUR = timedelta(hours=1)
_WORKER = Declarer(worker="worker-1")


class OverrideConformance:
    """`Gates.override`: limits above the declared ones, until they end."""

    async def test_a_claim_keeps_to_the_limits_that_were_set(self, world: World) -> None:
        gated = Gated(world, Limits(rate=_FAST))
        await gated.publish(30)

        await world.store.override("gated", Limits(rate=_SLOW), lasts=_HOUR, actor=OPERATOR)

        assert len((await gated.claim()).deliveries) == 2
        assert ids_of(await gated.claim()) == []

    async def test_what_has_no_limit_can_be_given_one(self, world: World) -> None:
        gated = Gated(world, Limits())
        await gated.publish(40)
        for _ in range(2):  # a store may remember that nothing has to be decided
            assert len((await gated.claim(total=5)).deliveries) == 5

        await world.store.override("gated", Limits(rate=_SLOW), lasts=_HOUR, actor=OPERATOR)

        assert len((await gated.claim(total=5)).deliveries) == 2

    async def test_a_limit_can_be_raised(self, world: World) -> None:
        gated = Gated(world, Limits(rate=_SLOW, concurrency=2))
        await gated.publish(30)
        assert len((await gated.claim()).deliveries) == 2

        raised = Limits(rate=_FAST, concurrency=7)
        await world.store.override("gated", raised, lasts=_HOUR, actor=OPERATOR)
        world.clock.advance("1s")

        assert len((await gated.claim()).deliveries) == 5

    async def test_what_is_not_said_stays_as_declared(self, world: World) -> None:
        gated = Gated(world, Limits(rate=_FAST, concurrency=3))
        await gated.publish(30)

        await world.store.override("gated", Limits(rate=_SLOW), lasts=_HOUR, actor=OPERATOR)

        gate = await gated.gate()
        assert gate.limits == Limits(rate=_SLOW, concurrency=3)
        assert gate.declared == Limits(rate=_FAST, concurrency=3)
        assert gate.override is not None
        assert (gate.override.until, gate.override.by) == (world.after(_HOUR), OPERATOR.by)

    async def test_it_ends_by_itself_and_a_claim_knows_when(self, world: World) -> None:
        gated = Gated(world, Limits())
        await gated.publish(30)
        crawl = Limits(rate=Rate(per_second=1 / 3600), concurrency=1)
        await world.store.override("gated", crawl, lasts=timedelta(seconds=20), actor=OPERATOR)
        [leased] = (await gated.claim()).deliveries
        await gated.settle(leased, Delivered())

        assert (await gated.claim()).next_due == world.after("20s")
        world.clock.advance("20s")

        gate = await gated.gate()
        assert (gate.override, gate.declared, gate.limits) == (None, None, Limits())
        assert len((await gated.claim()).deliveries) == 29

    async def test_a_person_can_end_it(self, world: World) -> None:
        gated = Gated(world, Limits())
        await gated.publish(30)
        await world.store.override("gated", Limits(rate=_SLOW), lasts=_HOUR, actor=OPERATOR)

        assert await world.store.end_override("gated", actor=OPERATOR)

        assert len((await gated.claim()).deliveries) == 30
        assert not await world.store.end_override("gated", actor=OPERATOR)

    async def test_what_has_ended_cannot_be_ended(self, world: World) -> None:
        gated = Gated(world, Limits())
        await gated.publish(1)
        await world.store.override("gated", Limits(rate=_SLOW), lasts=_HOUR, actor=OPERATOR)
        world.clock.advance(_HOUR)

        assert not await world.store.end_override("gated", actor=OPERATOR)

    async def test_the_latest_replaces_the_one_before(self, world: World) -> None:
        gated = Gated(world, Limits())
        await gated.publish(1)
        await world.store.override("gated", Limits(rate=_SLOW), lasts=_HOUR, actor=OPERATOR)

        await world.store.override("gated", Limits(concurrency=4), lasts=_HOUR, actor=OPERATOR)

        assert (await gated.gate()).limits == Limits(concurrency=4)

    async def test_it_is_above_what_is_declared_later(self, world: World) -> None:
        await Gated(world, Limits(rate=_FAST)).publish(5)
        await world.store.override("gated", Limits(rate=_SLOW), lasts=_HOUR, actor=OPERATOR)

        redeclared = Gated(world, Limits(rate=_FAST, concurrency=9))
        await world.store.register([redeclared.destination], by=_WORKER)

        assert (await redeclared.gate()).limits == Limits(rate=_SLOW, concurrency=9)

    async def test_it_does_not_change_what_is_declared(self, world: World) -> None:
        gated = Gated(world, Limits(concurrency=2))
        await world.store.register([gated.destination], by=_WORKER)
        await world.store.override("gated", Limits(concurrency=4), lasts=_HOUR, actor=OPERATOR)

        registered = await world.store.register([gated.destination], by=_WORKER)

        assert (registered.changes, registered.others) == ((), ())

    async def test_workers_are_told_of_it_by_the_version_of_the_routes(self, world: World) -> None:
        gated = Gated(world, Limits(concurrency=2))
        await gated.publish(1)
        before = (await world.store.routes()).version

        override = await world.store.override(
            "gated", Limits(concurrency=4), lasts=_HOUR, actor=OPERATOR
        )

        looked = await world.store.register([], by=_WORKER)
        brought = await world.store.register([gated.destination], by=_WORKER)
        assert looked.version > before
        assert looked.overrides == brought.overrides == {"gated": override}
        assert (await gated.claim()).routes_version == looked.version

    async def test_setting_and_ending_are_in_the_audit_log(self, world: World) -> None:
        await Gated(world, Limits()).publish(1)
        limits = Limits(rate=Rate(per_second=10.0), retry_rate=_SLOW, concurrency=5)

        await world.store.override("gated", limits, lasts=_HOUR, actor=Actor("ann", "they asked"))
        await world.store.end_override("gated", actor=OPERATOR)

        assert [
            (one.action, one.by, one.why, one.detail) for one in await world.store.audit(limit=2)
        ] == [
            ("end_override", OPERATOR.by, OPERATOR.why, "gated"),
            (
                "override",
                "ann",
                "they asked",
                "gated: rate 10/s, retries 6/m, 5 at once for 1h",
            ),
        ]

    async def test_an_unknown_destination_is_refused(self, world: World) -> None:
        with pytest.raises(NotFoundError, match="nobody"):
            await world.store.override("nobody", Limits(), lasts=_HOUR, actor=OPERATOR)
        with pytest.raises(NotFoundError, match="nobody"):
            await world.store.end_override("nobody", actor=OPERATOR)
