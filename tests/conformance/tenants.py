"""What a store promises about tenants: rates and pauses of their own, and their figures."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redrive.errors import NotFoundError
from redrive.model.fairness import Fairness
from redrive.model.gate import Hold
from redrive.model.limits import Rate
from redrive.model.retention import Retention
from redrive.store import Claim
from tests.conformance.sharing import Shared, names_of, tenants_of
from tests.conformance.world import OPERATOR, World, an_event, ids_of, only

__all__ = ["TenantFigureConformance", "TenantLimitConformance"]

_HALF_A_DAY = Retention(
    delivered=timedelta(hours=12), events=timedelta(hours=12), idempotency=timedelta(hours=12)
)


class TenantLimitConformance:
    """`Tenants`: rates and pauses of one tenant hold up nobody else."""

    async def test_a_tenant_keeps_to_its_rate_and_others_go_on(self, world: World) -> None:
        fairness = Fairness(rates={"noisy": Rate(per_second=2, burst=2)})
        shared = Shared(world, fairness)
        await shared.publish(calm=9, noisy=9)

        first = await shared.claim(50)
        second = await shared.claim(50)

        assert [names_of(first).count(name) for name in ("calm", "noisy")] == [9, 2]
        assert names_of(second) == []
        assert second.next_due == world.after("500ms")

    async def test_the_tokens_come_back_with_time_and_not_at_once(self, world: World) -> None:
        shared = Shared(world, Fairness(rate=Rate(per_second=2, burst=1)))
        await shared.publish(a=9, b=9)

        served = []
        for _ in range(4):
            served.append(tenants_of(await shared.claim(50)))
            world.clock.advance("250ms")

        assert served == ["ab", "", "ab", ""]

    @pytest.mark.parametrize("per_second", [7, 14, 90])
    async def test_a_tenant_has_a_token_when_a_claim_says_so(
        self, world: World, per_second: int
    ) -> None:
        shared = Shared(world, Fairness(rate=Rate(per_second=per_second)))
        await shared.publish(a=3)
        await shared.claim(9)

        for _ in range(2):
            next_due = (await shared.claim(9)).next_due
            assert next_due is not None
            assert next_due > world.now
            world.clock.advance(next_due - world.now)
            assert len((await shared.claim(9)).deliveries) == 1

    async def test_concurrent_claims_share_the_tokens_of_a_tenant(self, world: World) -> None:
        shared = Shared(world, Fairness(rate=Rate(per_second=1, burst=3)))
        await shared.publish(a=50)

        claims = await asyncio.gather(*[shared.claim(50, worker=f"w{n}") for n in range(4)])

        assert sum(len(claim.deliveries) for claim in claims) == 3

    async def test_every_attempt_counts_against_the_rate_of_a_tenant(self, world: World) -> None:
        shared = Shared(world, Fairness(rate=Rate(per_second=1, burst=2)))
        await shared.publish(a=1)
        await shared.retry(await shared.claim(9))
        await shared.publish(a=5)

        assert len((await shared.claim(9)).deliveries) == 1

    async def test_a_rate_holds_for_events_without_a_tenant_too(self, world: World) -> None:
        shared = Shared(world, Fairness(rate=Rate(per_second=1, burst=1)))
        await shared.publish_for(None, 5)

        assert len((await shared.claim(9)).deliveries) == 1
        assert len((await shared.claim(9)).deliveries) == 0

    async def test_a_paused_tenant_holds_up_nobody_else(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=5, b=5)

        assert await world.store.pause_tenant("a", destination="shared", actor=OPERATOR)
        assert not await world.store.pause_tenant("a", destination="shared", actor=OPERATOR)

        assert tenants_of(await shared.claim(50)) == "bbbbb"
        version = (await world.store.routes()).version
        assert await shared.claim(50) == Claim(now=world.now, routes_version=version)

    async def test_a_resumed_tenant_goes_on_with_no_attempt_spent(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=2)
        await world.store.pause_tenant("a", destination="shared", actor=OPERATOR)
        await shared.claim(9)

        assert await world.store.resume_tenant("a", destination="shared", actor=OPERATOR)
        assert not await world.store.resume_tenant("a", destination="shared", actor=OPERATOR)

        assert [one.attempt for one in (await shared.claim(9)).deliveries] == [1, 1]

    async def test_a_tenant_can_be_paused_at_one_destination_or_at_all(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=1, b=1)
        await world.publish(an_event(tenant="a"), an_event(tenant="b"))
        await world.store.pause_tenant("a", destination="shared", actor=OPERATOR)
        await world.store.pause_tenant("b", destination=None, actor=OPERATOR)

        claim = await world.claim("billing", "shared")

        assert [(one.destination, one.event.tenant) for one in claim.deliveries] == [
            ("billing", "a")
        ]

    async def test_a_pause_ends_as_it_began(self, world: World) -> None:
        """What was paused everywhere is not resumed at one place."""
        shared = Shared(world)
        await shared.publish(a=1)
        await world.store.pause_tenant("a", destination=None, actor=OPERATOR)

        assert not await world.store.resume_tenant("a", destination="shared", actor=OPERATOR)
        assert tenants_of(await shared.claim(9)) == ""
        assert await world.store.resume_tenant("a", destination=None, actor=OPERATOR)
        assert tenants_of(await shared.claim(9)) == "a"

    async def test_a_suspect_of_a_paused_tenant_is_not_offered(self, world: World) -> None:
        await world.suspect(an_event(tenant="a"))
        assert (await world.claim()).suspects == 1

        await world.store.pause_tenant("a", destination="billing", actor=OPERATOR)

        assert (await world.claim()).suspects == 0
        assert ids_of(await world.claim(alone=True)) == []

    async def test_pauses_of_tenants_are_on_record(self, world: World) -> None:
        await Shared(world).publish(a=1)

        await world.store.pause_tenant("a", destination="shared", actor=OPERATOR)
        await world.store.pause_tenant("a", destination=None, actor=OPERATOR)
        await world.store.resume_tenant("a", destination="shared", actor=OPERATOR)

        log = [(one.action, one.detail, one.by, one.count) for one in await world.store.audit()]
        assert log == [
            ("resume_tenant", "a at shared", OPERATOR.by, 1),
            ("pause_tenant", "a", OPERATOR.by, 1),
            ("pause_tenant", "a at shared", OPERATOR.by, 1),
        ]

    async def test_a_pause_at_an_unknown_destination_is_refused(self, world: World) -> None:
        await Shared(world).publish(a=1)

        with pytest.raises(NotFoundError, match="did you mean 'shared'"):
            await world.store.pause_tenant("a", destination="shard", actor=OPERATOR)
        with pytest.raises(NotFoundError):
            await world.store.resume_tenant("a", destination="shard", actor=OPERATOR)
        with pytest.raises(NotFoundError):
            await world.store.tenants(destination="shard")

    async def test_a_resumed_tenant_wakes_who_waits(self, world: World) -> None:
        await Shared(world).publish(a=1)
        await world.store.pause_tenant("a", destination="shared", actor=OPERATOR)

        assert await world.wakes(
            lambda: world.store.resume_tenant("a", destination="shared", actor=OPERATOR)
        )


class TenantFigureConformance:
    """`Tenants.tenants`: what people see."""

    async def test_tenants_are_listed_with_what_they_have_and_got(self, world: World) -> None:
        shared = Shared(world, Fairness(weights={"b": 2}))
        await shared.publish(a=5, b=2)
        claim = await shared.claim(4)
        await shared.deliver(claim)
        world.clock.advance("1m")

        a, b = await world.store.tenants()

        assert (a.tenant, a.destination, a.turn) == ("a", "shared", 3)
        assert (a.pending, a.in_flight, a.processed, a.consecutive) == (2, 0, 3, 3)
        assert (b.tenant, b.pending, b.processed, b.consecutive, b.turn) == ("b", 1, 1, 1, 6)
        assert a.last_served_at == claim.now == world.now - timedelta(minutes=1)
        assert (a.hold, a.until, a.pause) == (None, None, None)

    async def test_rounds_are_counted_while_a_tenant_waits(self, world: World) -> None:
        shared = Shared(world, Fairness(turn=1, rates={"a": Rate(per_second=0.01)}))
        await shared.publish(a=9, b=9)
        await shared.claim(1)

        waited = []
        for _ in range(6):
            await shared.claim(1)
            waited.append((await shared.figures("a")).rounds_waited)

        a = await shared.figures("a")
        assert waited == [0, 1, 2, 3, 4, 5]
        assert (a.urgency, a.hold, a.until) == (1, Hold.RATE, world.after("100s"))
        assert (await shared.figures("b")).urgency == 5

    async def test_one_that_runs_on_alone_is_consecutive(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=20, b=1)

        await shared.claim(10)
        await shared.claim(10)

        a, b = await shared.figures("a"), await shared.figures("b")
        assert (a.processed, a.consecutive, b.consecutive) == (19, 16, 1)

    async def test_tenants_with_the_most_pending_come_first(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=1, b=3, c=2, d=2)

        assert [one.tenant for one in await world.store.tenants()] == ["b", "c", "d", "a"]
        assert [one.tenant for one in await world.store.tenants(limit=2)] == ["b", "c"]

    async def test_tenants_can_be_narrowed_down(self, world: World) -> None:
        await Shared(world).publish(a=1, b=1)
        await world.publish(an_event(tenant="a"))

        at_billing = await world.store.tenants(destination="billing")
        named = await world.store.tenants(tenant="a")

        assert [(one.destination, one.tenant) for one in at_billing] == [("billing", "a")]
        assert [one.destination for one in named] == ["billing", "shared"]

    async def test_a_pause_is_shown_with_who_and_why(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=1, b=1)
        await world.store.pause_tenant("a", destination="shared", actor=OPERATOR)
        await world.store.pause_tenant("b", destination=None, actor=OPERATOR)

        a, b = await shared.figures("a"), await shared.figures("b")

        assert a.hold is b.hold is Hold.PAUSED
        assert a.pause is not None
        assert (a.pause.by, a.pause.why, a.pause.at) == (OPERATOR.by, OPERATOR.why, world.now)
        assert (a.is_paused_everywhere, b.is_paused_everywhere) == (False, True)

    async def test_a_pause_of_somebody_unknown_is_shown_too(self, world: World) -> None:
        await Shared(world).publish(a=1)
        await world.store.pause_tenant("later", destination=None, actor=OPERATOR)

        found = only(await world.store.tenants(tenant="later"))

        assert (found.destination, found.hold, found.pending) == (None, Hold.PAUSED, 0)

    async def test_those_who_are_paused_can_be_found_among_many(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=3, b=1, c=2)
        await world.store.pause_tenant("b", destination="shared", actor=OPERATOR)
        await world.store.pause_tenant("c", destination=None, actor=OPERATOR)
        await world.store.pause_tenant("later", destination=None, actor=OPERATOR)

        found = await world.store.tenants(only_paused=True)

        assert [(one.tenant, one.pending) for one in found] == [("c", 2), ("b", 1), ("later", 0)]

    async def test_a_tenant_that_has_nothing_left_is_forgotten_in_time(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(gone=1)
        await shared.deliver(await shared.claim(9))
        world.clock.advance("11h")
        await shared.publish(lately=1)
        await shared.deliver(await shared.claim(9))
        world.clock.advance("1h")

        await world.store.prune(_HALF_A_DAY)

        assert [one.tenant for one in await world.store.tenants()] == ["lately"]

    async def test_a_tenant_that_has_work_is_remembered(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(patient=9)
        await shared.deliver(await shared.claim(1))
        world.clock.advance("30d")

        await world.store.prune(_HALF_A_DAY)

        assert (await shared.figures("patient")).processed == 1

    async def test_without_tenants_nothing_is_kept_of_them(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish_for(None, 5)

        await shared.deliver(await shared.claim(9))

        assert list(await world.store.tenants()) == []
