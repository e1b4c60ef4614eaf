"""What a store promises to the tenants that share a destination."""

from __future__ import annotations

import asyncio
from itertools import groupby

import msgspec

from redrive.model.delivery import DeliveryId, Leased
from redrive.model.fairness import Fairness
from redrive.model.limits import Limits, Rate
from redrive.model.settlement import Delivered, RetryAt
from redrive.store import Claim, Settled, TenantFigures
from tests.conformance.world import (
    BILLING,
    World,
    a_fault,
    an_event,
    entries,
    ids_of,
    only,
)

__all__ = ["FairnessConformance", "Shared", "names_of", "tenants_of"]


class FairnessConformance:
    """`DeliveryQueue.claim`: tenants take turns."""

    async def test_each_tenant_has_a_turn_before_anybody_has_a_second(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=5, b=5, c=5)

        assert tenants_of(await shared.claim(9)) == "aaabbbccc"
        assert tenants_of(await shared.claim(9)) == "aabbcc"

    async def test_one_event_waits_for_one_round_whatever_others_have_queued(
        self, world: World
    ) -> None:
        shared = Shared(world)
        await shared.publish(large=300)
        await shared.claim(10)

        await shared.publish(small=1)

        assert "small" in names_of(await shared.claim(4))

    async def test_one_event_waits_for_one_round_in_claims_of_one(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=50, b=50)
        await shared.claim(2)
        await shared.publish(c=1)

        claims = [tenants_of(await shared.claim(1)) for _ in range(7)]

        assert "c" in claims
        assert longest_run("".join(claims)) <= 3

    async def test_the_turns_go_on_where_any_worker_stopped(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=9, b=9, c=9)

        claims = [await shared.claim(2, worker=f"worker-{number}") for number in range(6)]

        assert "".join(tenants_of(claim) for claim in claims) == "aaabbbcccaaa"

    async def test_a_claim_without_room_for_a_turn_does_not_end_it(self, world: World) -> None:
        """Otherwise weights would mean nothing to a worker that asks for one at a time."""
        shared = Shared(world, Fairness(turn=1, weights={"b": 3}))
        await shared.publish(a=9, b=9)

        claims = [tenants_of(await shared.claim(1)) for _ in range(8)]

        assert "".join(claims) == "abbbabbb"

    async def test_concurrent_claims_are_as_fair_as_one(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=100, b=100, c=1)

        claims = await asyncio.gather(*[shared.claim(1, worker=f"w{n}") for n in range(12)])

        served = "".join(tenants_of(claim) for claim in claims)
        assert (served.count("a"), served.count("b"), served.count("c")) in {
            (6, 5, 1),
            (5, 6, 1),
        }

    async def test_one_tenant_alone_uses_all_there_is(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=50)

        assert len((await shared.claim(40)).deliveries) == 40

    async def test_rounds_repeat_until_the_allowance_is_used_up(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=40, b=1, c=2)

        served = names_of(await shared.claim(30))

        assert [served.count(name) for name in ("a", "b", "c")] == [27, 1, 2]

    async def test_many_tenants_with_little_use_all_there_is(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(**{f"t{number:03}": 1 for number in range(90)})

        first = names_of(await shared.claim(60))
        second = names_of(await shared.claim(60))

        assert first == [f"t{number:03}" for number in range(60)]
        assert second == [f"t{number:03}" for number in range(60, 90)]

    async def test_who_was_idle_has_saved_nothing_up(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=30, b=1)
        for _ in range(3):
            await shared.claim(6)
        await shared.publish(b=30)

        served = tenants_of(await shared.claim(12))

        assert longest_run(served) == 3
        assert served.count("b") == 6

    async def test_what_is_not_due_gives_no_turn(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(b=2)
        await shared.publish_for("a", 5, due_in="1h")

        assert tenants_of(await shared.claim(9)) == "bb"

    async def test_weights_multiply_a_turn_by_name_or_glob(self, world: World) -> None:
        fairness = Fairness(turn=2, weights={"gold-a": 1, "gold-*": 2})
        shared = Shared(world, fairness)
        await shared.publish(**{"gold-a": 9, "gold-b": 9, "plain": 9})

        served = names_of(await shared.claim(8))

        assert served == ["gold-a"] * 2 + ["gold-b"] * 4 + ["plain"] * 2

    async def test_events_without_a_tenant_are_one_tenant(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=20)
        await shared.publish_for(None, 20)

        assert names_of(await shared.claim(8)) == ["", "", "", "a", "a", "a", "", ""]

    async def test_priority_orders_within_a_tenant_and_never_between_them(
        self, world: World
    ) -> None:
        shared = Shared(world, Fairness(turn=1))
        [plain] = await shared.publish_for("a", 1)
        low, high = await shared.publish_for("b", 2, priorities=[0, 100])

        assert ids_of(await shared.claim(3)) == [plain, high, low]

    async def test_retries_of_one_tenant_do_not_use_up_the_tokens_of_another(
        self, world: World
    ) -> None:
        limits = Limits(retry_rate=Rate(per_second=1, burst=1))
        shared = Shared(world, Fairness(turn=1), limits)
        await shared.publish(a=20, b=20)
        await shared.retry(await shared.claim(40))
        retried: list[str] = []
        for _ in range(6):
            await shared.publish(a=1)
            world.clock.advance("1s")
            claim = await shared.claim(40)
            retried += [name(one) for one in claim.deliveries if one.attempt > 1]

        assert sorted(retried) == ["a", "a", "a", "b", "b", "b"]

    async def test_the_turns_outlive_what_was_settled(self, world: World) -> None:
        shared = Shared(world)
        await shared.publish(a=4, b=4, c=4)

        served = ""
        for _ in range(4):
            claim = await shared.claim(3)
            served += tenants_of(claim)
            await shared.deliver(claim)

        assert served == "aaabbbcccabc"


class Shared:
    """Work of several tenants for one destination."""

    def __init__(
        self, world: World, fairness: Fairness | None = None, limits: Limits | None = None
    ) -> None:
        self._world = world
        self._destination = msgspec.structs.replace(
            BILLING,
            name="shared",
            fairness=fairness or Fairness(),
            limits=limits or Limits(),
        )

    async def publish(self, **tenants: int) -> None:
        """Publish so many events of each tenant."""
        for tenant, count in tenants.items():
            await self.publish_for(tenant, count)

    async def publish_for(
        self,
        tenant: str | None,
        count: int,
        *,
        priorities: list[int] | None = None,
        due_in: str = "",
    ) -> list[DeliveryId]:
        """Publish events of one tenant, and return the ids of their deliveries."""
        due = self._world.after(due_in) if due_in else None
        events = [
            an_event(tenant=tenant, priority=priority, due=due)
            for priority in priorities or [0] * count
        ]
        store = self._world.store
        version = (await store.register([BILLING, self._destination])).version
        batch = entries(*events, to=["shared"])
        await store.append(batch, routes_version=version, all_or_nothing=True)
        if priorities is None and count > 1:
            return []
        return [(await self._world.find_one(event, "shared")).id for event in events]

    async def claim(self, total: int, *, worker: str = "worker-1") -> Claim:
        """Claim for the destination alone."""
        return await self._world.claim("shared", total=total, worker=worker)

    async def deliver(self, claim: Claim) -> None:
        """Settle all of a claim as delivered."""
        await self._settle(claim, Delivered())

    async def retry(self, claim: Claim) -> None:
        """Settle all of a claim as failed, due again at once."""
        await self._settle(claim, RetryAt(when=self._world.now, fault=a_fault()))

    async def _settle(self, claim: Claim, settlement: Delivered | RetryAt) -> None:
        batch = [Settled(lease=one.lease, settlement=settlement) for one in claim.deliveries]
        assert list(await self._world.store.settle(batch)) == []

    async def figures(self, tenant: str) -> TenantFigures:
        """Return what people see of one tenant."""
        return only(await self._world.store.tenants(destination="shared", tenant=tenant))


def name(leased: Leased) -> str:
    """Return whose delivery it is."""
    return leased.event.tenant or ""


def names_of(claim: Claim) -> list[str]:
    """Return whose deliveries were leased, in the order of the claim."""
    return [name(one) for one in claim.deliveries]


def tenants_of(claim: Claim) -> str:
    """Return the same as one word, for tenants with names of one letter."""
    return "".join(names_of(claim))


def longest_run(served: str) -> int:
    """Return how many of one tenant followed each other at most."""
    return max(len(list(run)) for _, run in groupby(served))
