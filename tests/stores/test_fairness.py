"""All stores deal out turns alike, whatever happens: the plain one in memory is the oracle."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.model.destination import Destination
from redrive.model.fairness import Fairness
from redrive.model.limits import Limits, Rate
from redrive.model.settlement import Delivered, Failed, FailureReason, RetryAt, Settlement
from redrive.store import Claim, Settled, Store
from redrive.stores.memory import MemoryStore
from redrive.stores.postgres import PostgresStore
from redrive.stores.sqlite import SqliteStore
from tests.conformance import MakeStore, World, an_event, entries
from tests.conformance.world import OPERATOR, a_fault
from tests.servers.postgres import Database

TENANTS = [None, "a", "b", "c", "d", "e"]
FAIRNESS = st.builds(
    Fairness,
    turn=st.integers(1, 4),
    weights=st.sampled_from([{}, {"b": 2}, {"c*": 3, "*": 2}]),
    rate=st.sampled_from([None, Rate(per_second=1, burst=2)]),
    rates=st.sampled_from([{}, {"a": Rate(per_second=0.5, burst=4), "b": None}]),
)
LIMITS = st.builds(
    Limits,
    rate=st.sampled_from([None, Rate(per_second=2, burst=5)]),
    retry_rate=st.sampled_from([None, Rate(per_second=1, burst=2)]),
    replay_rate=st.sampled_from([None, Rate(per_second=1, burst=3)]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("publish"),
            st.lists(
                st.tuples(st.sampled_from(TENANTS), st.integers(-1, 1), st.integers(1, 15)),
                min_size=1,
                max_size=6,
            ),
        ),
        st.tuples(st.just("claim"), st.integers(1, 12)),
        st.tuples(st.just("settle"), st.sampled_from(["deliver", "retry", "fail"])),
        st.tuples(st.just("replay"), st.none()),
        st.tuples(st.just("advance"), st.integers(1, 3000)),
        st.tuples(st.sampled_from(["pause", "resume"]), st.sampled_from(TENANTS[1:])),
        st.tuples(st.sampled_from(["stop", "go"]), st.none()),
    ),
    max_size=25,
)


class Twins:
    """Two stores that live through the same."""

    def __init__(self, worlds: list[World]) -> None:
        self.worlds = worlds
        self.claims: list[list[Claim]] = [[] for _ in worlds]

    async def step(self, what: str, detail: Any) -> None:  # noqa: ANN401 - as the strategies say
        if what == "publish":
            await self.publish(detail)
            return
        for world, claims in zip(self.worlds, self.claims, strict=True):
            match what:
                case "claim":
                    claims.append(await world.claim("fair", total=detail, lease="1d"))
                case "settle" if claims:
                    await self.settle(world, claims.pop(), detail)
                case "replay":
                    dead = await world.found()
                    await world.store.replay([one.id for one in dead], actor=OPERATOR)
                case "advance":
                    world.clock.advance(timedelta(milliseconds=detail))
                case _:
                    await self.hold(world.store, what, detail)

    async def publish(self, batches: list[tuple[str | None, int, int]]) -> None:
        events = [
            an_event(tenant=tenant, priority=priority)
            for tenant, priority, count in batches
            for _ in range(count)
        ]
        for world in self.worlds:
            version = (await world.store.routes()).version
            batch = entries(*events, to=["fair"])
            await world.store.append(batch, routes_version=version, all_or_nothing=True)

    async def hold(self, store: Store, what: str, tenant: str) -> None:
        match what:
            case "pause":
                await store.pause_tenant(tenant, destination="fair", actor=OPERATOR)
            case "resume":
                await store.resume_tenant(tenant, destination="fair", actor=OPERATOR)
            case "stop":
                await store.pause("fair", actor=OPERATOR)
            case "go":
                await store.resume("fair", actor=OPERATOR)

    async def settle(self, world: World, claim: Claim, how: str) -> None:
        settlements: dict[str, Settlement] = {
            "deliver": Delivered(),
            "retry": RetryAt(when=world.after("500ms"), fault=a_fault()),
            "fail": Failed(reason=FailureReason.TERMINAL, fault=a_fault()),
        }
        await world.store.settle(
            [Settled(lease=one.lease, settlement=settlements[how]) for one in claim.deliveries]
        )

    async def stories(self) -> list[Any]:
        return [
            (
                [[one.lease for one in claim.deliveries] for claim in claims],
                [claim.next_due for claim in claims],
                [one.gate.rotation for one in await world.store.gates()],
                list(await world.store.tenants()),
            )
            for world, claims in zip(self.worlds, self.claims, strict=True)
        ]


async def live_alike(
    other: MakeStore, fairness: Fairness, limits: Limits, steps: list[tuple[str, Any]]
) -> None:
    """Let a store live through the same as the one in memory, and compare after each step."""
    async with AsyncExitStack() as stack:
        worlds = [
            await stack.enter_async_context(World.opened(make, history=20))
            for make in (MemoryStore, other)
        ]
        fair = Destination(name="fair", patterns=("*",), fairness=fairness, limits=limits)
        for world in worlds:
            await world.store.register([fair])
        twins = Twins(worlds)
        for step in steps:
            await twins.step(*step)
            memory, found = await twins.stories()
            assert msgspec.to_builtins(memory) == msgspec.to_builtins(found)


@settings(max_examples=60)
@given(FAIRNESS, LIMITS, STEPS)
def test_sqlite_deals_out_turns_as_the_memory_store_does(
    fairness: Fairness, limits: Limits, steps: list[tuple[str, Any]]
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "redrive.db"
        asyncio.run(
            live_alike(lambda clock: SqliteStore(path, clock=clock), fairness, limits, steps)
        )


@settings(max_examples=15)
@given(FAIRNESS, LIMITS, STEPS)
def test_postgres_deals_out_turns_as_the_memory_store_does(
    database: Database, fairness: Fairness, limits: Limits, steps: list[tuple[str, Any]]
) -> None:
    with database.empty_store() as url:
        asyncio.run(
            live_alike(lambda clock: PostgresStore(url, clock=clock), fairness, limits, steps)
        )
