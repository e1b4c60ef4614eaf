"""What a store promises about a rate that several destinations share."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime

import msgspec

from redrive.model.delivery import Leased
from redrive.model.gate import Hold
from redrive.model.limits import Limits, Rate, SharedRate
from redrive.model.settlement import Failed, FailureReason, RetryAt
from redrive.store import Allowance, Claim, ClaimRequest, Settled
from tests.conformance.gating import LEASE
from tests.conformance.world import BILLING, OPERATOR, World, a_fault, an_event, entries, ids_of

__all__ = ["SharedRateConformance"]

_SLOW = SharedRate("acme", Rate(per_second=10.0, burst=2.0))
_WIDE = SharedRate("acme", Rate(per_second=1.0, burst=12.0))


class SharedRateConformance:
    """`claim`: tokens of a rate that several destinations share."""

    async def test_destinations_share_the_tokens(self, world: World) -> None:
        account = Account(world, _SLOW)
        await account.publish(10)

        claims = [await account.claim("a"), await account.claim("b"), await account.claim("a")]

        assert sum(len(one.deliveries) for one in claims) == 2
        assert claims[-1].next_due == world.after("100ms")

    async def test_one_claim_of_several_takes_no_more(self, world: World) -> None:
        account = Account(world, _SLOW)
        await account.publish(10)

        assert len((await account.claim("a", "b", "c")).deliveries) == 2
        assert ids_of(await account.claim("a", "b", "c")) == []
        world.clock.advance("100ms")
        assert len((await account.claim("a", "b", "c")).deliveries) == 1

    async def test_concurrent_claims_share_them_too(self, world: World) -> None:
        account = Account(world, _WIDE)
        await account.publish(20)

        claims = await asyncio.gather(
            *[account.claim(name, worker=f"w-{name}") for name in ("a", "b", "c", "a", "b")]
        )

        assert sum(len(one.deliveries) for one in claims) == 12

    async def test_no_stretch_of_time_sees_more_than_the_rate_and_a_burst(
        self, world: World
    ) -> None:
        account = Account(world, _SLOW)
        await account.publish(30)
        starts: list[datetime] = []
        for number in range(40):
            names = ("a", "b", "c")[number % 3 :]
            starts += [world.now] * len((await account.claim(*names)).deliveries)
            world.clock.advance("70ms")

        assert len(starts) > 20
        assert all(
            later - first + 1 <= 10 * (starts[later] - starts[first]).total_seconds() + 2 + 1e-3
            for first in range(len(starts))
            for later in range(first, len(starts))
        )

    async def test_those_who_share_take_turns_whoever_asks_first(self, world: World) -> None:
        account = Account(world, _SLOW)
        await account.publish(60)
        served: Counter[str] = Counter()
        for _ in range(60):
            for names in (("a", "b"), ("c",)):  # always in this order
                claim = await account.claim(*names)
                served.update(one.destination for one in claim.deliveries)
            world.clock.advance("100ms")

        assert sum(served.values()) >= 60
        assert max(served.values()) - min(served.values()) <= 3

    async def test_what_is_enough_for_all_is_shared_alike(self, world: World) -> None:
        account = Account(world, SharedRate("acme", Rate(per_second=10.0, burst=12.0)))
        await account.publish(40)
        await account.claim("a")
        for name in ("b", "c", "a"):  # all of them wait
            assert ids_of(await account.claim(name)) == []

        world.clock.advance("1200ms")
        claim = await account.claim("a", "b", "c")

        served = Counter(one.destination for one in claim.deliveries)
        assert served == {"a": 4, "b": 4, "c": 4}

    async def test_each_in_line_is_told_when_its_turn_is(self, world: World) -> None:
        account = Account(world, SharedRate("acme", Rate(per_second=1.0)))
        await account.publish(10)

        first = await account.claim("a", "b")
        second = await account.claim("c")

        assert [one.destination for one in first.deliveries] == ["a"]
        assert dict(first.shut) == {"b": world.after("1s"), "a": world.after("2s")}
        assert first.next_due == world.after("1s")
        assert dict(second.shut) == {"c": world.after("3s")}
        assert second.next_due == world.after("3s")

    async def test_who_has_no_more_is_told_nothing(self, world: World) -> None:
        account = Account(world, SharedRate("acme", Rate(per_second=1.0)))
        await account.publish(1)

        claim = await account.claim("a", "b")

        assert len(claim.deliveries) == 1
        assert [name for name, _ in claim.shut] == ["b"]

    async def test_who_rests_until_its_turn_keeps_its_place(self, world: World) -> None:
        account = Account(world, SharedRate("acme", Rate(per_second=0.2)))
        await account.publish(10)
        await account.claim("a")
        await account.claim("b")
        turns = dict((await account.claim("c")).shut)
        world.clock.advance("5s")
        assert len((await account.claim("a")).deliveries) == 1

        world.clock.advance("5s")
        claims = [await account.claim(name) for name in ("a", "c", "b")]

        assert turns == {"c": world.now}
        assert [len(one.deliveries) for one in claims] == [0, 0, 1]

    async def test_those_who_ask_when_it_is_their_turn_use_the_whole_rate(
        self, world: World
    ) -> None:
        account = Account(world, SharedRate("acme", Rate(per_second=1.0)))
        await account.publish(20)
        turns = dict.fromkeys(("a", "b", "c"), world.now)
        served: Counter[str] = Counter()
        asked = 0
        for _ in range(30):
            for name in [one for one, turn in turns.items() if turn <= world.now]:
                claim = await account.claim(name)
                served[name] += len(claim.deliveries)
                turns |= {who: turn or world.now for who, turn in claim.shut}
                asked += 1
            world.clock.advance("1s")

        assert sum(served.values()) == 30
        assert max(served.values()) - min(served.values()) <= 2
        assert asked <= 30 + 2  # beside the first round, nobody has asked in vain

    async def test_who_has_gone_is_not_waited_for(self, world: World) -> None:
        account = Account(world, SharedRate("acme", Rate(per_second=1.0)))
        await account.publish(10)
        await account.claim("a", total=1)
        assert ids_of(await account.claim("b")) == []  # it waits from now on, and never asks again
        world.clock.advance("1s")
        assert ids_of(await account.claim("a")) == []

        world.clock.advance("2s")

        assert len((await account.claim("a")).deliveries) == 1

    async def test_who_is_held_by_something_else_holds_nobody_up(self, world: World) -> None:
        account = Account(world, SharedRate("acme", Rate(per_second=1.0)))
        await account.publish(10)
        await account.claim("a", "b")
        await account.claim("a", "b")
        await world.store.pause("b", actor=OPERATOR)
        got: list[Leased] = []
        for _ in range(5):
            world.clock.advance("1s")
            got += (await account.claim("a", "b")).deliveries

        assert len(got) >= 4

    async def test_others_are_left_alone(self, world: World) -> None:
        account = Account(world, _SLOW)
        await account.publish(10, also="free")
        await account.claim("a")

        claim = await account.claim("a", "free", "b")

        assert len([one for one in claim.deliveries if one.destination == "free"]) == 10

    async def test_retries_and_replays_count_as_well(self, world: World) -> None:
        account = Account(world, _WIDE)
        await account.publish(2)
        retried, replayed = [
            *(await account.claim("a", total=1)).deliveries,
            *(await account.claim("b", total=1)).deliveries,
        ]
        await world.store.settle(
            [
                Settled(lease=retried.lease, settlement=RetryAt(when=world.now, fault=a_fault())),
                Settled(
                    lease=replayed.lease,
                    settlement=Failed(reason=FailureReason.TERMINAL, fault=a_fault()),
                ),
            ]
        )
        await world.store.replay([replayed.lease.delivery_id], actor=OPERATOR)
        await account.publish(20)

        claim = await account.claim("a", "b", total=20)
        again = await account.claim("b", "a", total=20)

        assert len(claim.deliveries) + len(again.deliveries) == 10

    async def test_the_gate_tells_that_it_is_used_up(self, world: World) -> None:
        account = Account(world, _SLOW)
        await account.publish(10)
        await account.claim("a")

        gates = {one.destination: one for one in await world.store.gates()}

        assert [gates[name].hold for name in ("a", "b")] == [Hold.SHARED_RATE] * 2
        assert gates["b"].until == world.after("100ms")


class Account:
    """Work for destinations that share a rate, and for one that does not."""

    def __init__(self, world: World, rate: SharedRate) -> None:
        self._world = world
        self._destinations = [
            msgspec.structs.replace(BILLING, name=name, limits=Limits(shared_rate=rate))
            for name in ("a", "b", "c")
        ]
        self._destinations.append(msgspec.structs.replace(BILLING, name="free", limits=Limits()))

    async def publish(self, count: int, *, also: str = "") -> None:
        """Publish so many events for each of those who share."""
        store = self._world.store
        routes = await store.register(self._destinations)
        to = ["a", "b", "c", *([also] if also else [])]
        batch = entries(*[an_event() for _ in range(count)], to=to)
        await store.append(batch, routes_version=routes.version, all_or_nothing=True)

    async def claim(self, *names: str, total: int = 100, worker: str = "worker-1") -> Claim:
        """Claim for some of them, in this order."""
        return await self._world.store.claim(
            ClaimRequest(
                worker=worker,
                allowances=tuple(Allowance(destination=name, total=total) for name in names),
                generations=("default",),
                limit=1_000,
                lease=LEASE,
            )
        )
