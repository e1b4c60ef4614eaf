"""What a store promises to a worker that looks for destinations with work."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.model.event import DEFAULT_GENERATION
from redrive.model.limits import Breaker, Limits
from redrive.model.settlement import Delivered
from redrive.store import Work
from tests.conformance.gating import DOWN, Gated
from tests.conformance.world import BILLING, OPERATOR, World, an_event, only

__all__ = ["LapConformance"]


async def look(
    world: World,
    *,
    after: int = 0,
    limit: int = 100,
    generations: Sequence[str] = (DEFAULT_GENERATION,),
) -> Work:
    return await world.store.find_work(generations, after=after, limit=limit)


def names_of(work: Work) -> list[str]:
    return sorted(name for name, _ in work.destinations)


class LapConformance:
    """`DeliveryQueue.find_work`, and what `claim` tells of shut gates."""

    async def test_work_is_found_where_something_is_due(self, world: World) -> None:
        version = await world.version()
        assert names_of(await look(world)) == []

        await world.publish(an_event(), to="billing")
        await world.publish(an_event(due=world.after("1h")), to="mailing")

        work = await look(world)
        assert names_of(work) == ["billing"]
        assert (work.now, work.after, work.routes_version) == (world.now, None, version)
        assert work.next_due == world.after("1h")

    async def test_work_that_has_come_due_is_found(self, world: World) -> None:
        await world.publish(an_event(due=world.after("1h")), to="mailing")
        await world.publish(an_event(due=world.after("3h")), to="billing")
        world.clock.advance("1h")

        work = await look(world)

        assert names_of(work) == ["mailing"]
        assert work.next_due == world.after("2h")

    async def test_what_runs_or_has_ended_is_no_work(self, world: World) -> None:
        await world.publish(an_event(), to="billing")
        await world.dead_letter(to="mailing")

        leased = await world.claim_one("billing")
        assert names_of(await look(world)) == []

        await world.settle(leased, Delivered())
        work = await look(world)
        assert names_of(work) == []
        assert work.next_due is None

    async def test_work_of_other_generations_is_passed(self, world: World) -> None:
        await world.publish(an_event(), to="billing")
        await world.publish(an_event(), to="mailing")

        assert names_of(await look(world, generations=["blue"])) == []
        assert len(names_of(await look(world, generations=["blue", DEFAULT_GENERATION]))) == 2

    async def test_what_is_behind_another_of_its_lane_is_no_work(self, world: World) -> None:
        await world.publish(an_event(key="order-7"), an_event(key="order-7"), to="ledger")
        assert names_of(await look(world)) == ["ledger"]

        leased = await world.claim_one("ledger")
        assert names_of(await look(world)) == []

        await world.settle(leased, Delivered())
        assert names_of(await look(world)) == ["ledger"]

    async def test_a_suspect_is_work(self, world: World) -> None:
        await world.suspect()

        assert names_of(await look(world)) == ["billing"]
        assert names_of(await look(world, generations=["blue"])) == []

    async def test_a_lap_goes_on_where_it_stopped(self, world: World) -> None:
        for name in ("billing", "ledger", "mailing"):
            await world.publish(an_event(), an_event(), to=name)

        found: list[str] = []
        after: int | None = 0
        while after is not None:
            work = await look(world, after=after, limit=1)
            assert len(work.destinations) <= 1
            found += names_of(work)
            after = work.after

        assert sorted(found) == ["billing", "ledger", "mailing"]

    async def test_a_mark_changes_with_its_gate_alone(self, world: World) -> None:
        await world.publish(an_event(), an_event(), to="billing")

        async def mark() -> str:
            ((_, mark),) = (await look(world)).destinations
            return mark

        first = await mark()
        await world.publish(an_event(), to="billing")
        assert await mark() == first
        await world.store.pause("billing", actor=OPERATOR)
        paused = await mark()
        assert paused != first
        assert await mark() == paused
        await world.store.resume("billing", actor=OPERATOR)
        assert await mark() != paused

    async def test_a_claim_tells_which_gates_are_shut(self, world: World) -> None:
        gated = Gated(world, Limits(breaker=Breaker(failures=1, open_for="60s")))
        await gated.publish(1)
        await world.publish(an_event(), to="mailing")
        await world.store.pause("mailing", actor=OPERATOR)
        assert (await gated.claim(total=0)).shut == ()
        await gated.report(DOWN)

        claim = await world.claim("gated", "mailing", "ledger")

        assert dict(claim.shut) == {"gated": world.after("60s"), "mailing": None}

    async def test_a_gate_that_is_full_is_not_shut(self, world: World) -> None:
        limits = Limits(concurrency=1)
        await world.declare(msgspec.structs.replace(BILLING, limits=limits))
        await world.publish(an_event(), an_event())
        only((await world.claim()).deliveries)

        claim = await world.claim()

        assert (claim.deliveries, claim.shut) == ((), ())
