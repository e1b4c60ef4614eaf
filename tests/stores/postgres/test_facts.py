"""What a PostgreSQL store remembers may be forgotten at any moment; it tells which ways it took."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from redrive.model.delivery import Leased
from redrive.model.destination import Destination, Order
from redrive.model.limits import Breaker, Limits
from redrive.model.settlement import Delivered
from redrive.store import Claim, Report, Settled
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.facts import Facts
from redrive.stores.postgres.pool import Link
from tests.conformance import World, an_event, entries

NAMES = ("api", "billing", "ledger")


def facts_of(world: World) -> Facts:
    assert isinstance(world.store, PostgresStore)
    return world.store.facts


async def publish(world: World, count: int, *to: str) -> None:
    batch = [an_event(number, key=f"k{number % 3}") for number in range(count)]
    await world.append(entries(*batch, to=list(to)))


async def register(world: World) -> None:
    await world.store.register(
        [
            Destination(name="api", patterns=("*",), limits=Limits(breaker=Breaker())),
            Destination(name="billing", patterns=("*",)),
            Destination(name="ledger", patterns=("*",), order=Order.PARK),
        ]
    )


async def turn(world: World, leased: Sequence[Leased], *names: str) -> Claim:
    """Report, settle and claim side by side, as a worker does."""
    reports = [
        Report(destination="api", generation=one.breaker_generation, is_success=True)
        for one in leased
        if one.destination == "api"
    ]
    settled = [Settled(lease=one.lease, settlement=Delivered()) for one in leased]
    reporting = [world.store.report(reports, chance=0.0)] if reports else []
    *_, refused, claim = await asyncio.gather(
        *reporting, world.store.settle(settled), world.claim(*names, total=4)
    )
    assert not refused
    assert isinstance(claim, Claim)
    return claim


async def deliver_all(world: World, *names: str) -> list[Leased]:
    """Take turns until nothing is left."""
    delivered: list[Leased] = []
    claim = await world.claim(*names, total=4)
    while claim.deliveries:
        delivered += claim.deliveries
        claim = await turn(world, claim.deliveries, *names)
    return delivered


async def test_plain_turns_go_by_single_statements(world: World) -> None:
    await register(world)
    await world.append(entries(*[an_event(n) for n in range(20)], to=["billing"]))

    delivered = await deliver_all(world, "billing")

    assert len(delivered) == 20
    ways = facts_of(world).ways
    assert ways["append: statement"] == 1
    assert ways["claim: steps"] == 1
    assert ways["claim: statement"] >= 5
    assert (ways["settle: steps"], ways["settle: statement"]) == (0, 5)


async def test_where_something_is_to_be_decided_turns_go_by_steps(world: World) -> None:
    await register(world)
    await publish(world, 12, "ledger")

    delivered = await deliver_all(world, "ledger")

    assert len(delivered) == 12
    facts = facts_of(world)
    assert facts.ways["append: steps"] == 1
    assert facts.ways["settle: statement"] == 0
    assert facts.ways["claim: steps"] == facts.ways["settle: steps"] + 1
    assert (facts.last["claim"], facts.last["settle"]) == ("steps", "steps")


async def test_an_idle_claim_is_a_single_statement_whatever_the_gates_are(world: World) -> None:
    await register(world)
    for _ in range(3):
        await world.claim(*NAMES)

    assert facts_of(world).last["claim"] == "statement"
    assert facts_of(world).ways["claim: steps"] == 1


async def test_a_report_that_is_no_news_is_a_single_statement(world: World) -> None:
    await register(world)
    await publish(world, 4, "api")
    await deliver_all(world, "api")

    assert facts_of(world).ways["report: statement"] == 1


@pytest.mark.parametrize("every", [1, 2, 3, 5, 7])
async def test_facts_may_be_forgotten_at_any_moment(
    world: World, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """While any statement is under way: all is delivered, once, and each key in order."""
    await register(world)
    facts, sent, fetch = facts_of(world), 0, Link.fetch

    async def forgetful(self: Link, statement: str, *values: object) -> list[object]:
        nonlocal sent
        sent += 1
        if sent % every == 0:
            facts.forget()
        rows = await fetch(self, statement, *values)
        if sent % every == 0:
            facts.forget()
        return rows

    monkeypatch.setattr(Link, "fetch", forgetful)
    for number in range(9):
        await publish(world, number, *NAMES)
        await world.append(entries(an_event(100 + number), to=["billing"]))

    delivered = await deliver_all(world, *NAMES)

    ids = [one.lease.delivery_id for one in delivered]
    assert len(ids) == len(set(ids)) == 3 * 36 + 9
    for key in ("k0", "k1", "k2"):
        lane = [
            one.lease.delivery_id
            for one in delivered
            if (one.destination, one.event.key) == ("ledger", key)
        ]
        assert lane == sorted(lane)


async def test_what_was_counted_is_not_forgotten(world: World) -> None:
    await register(world)
    await world.claim("billing")

    facts_of(world).forget()

    assert facts_of(world).ways["claim: steps"] == 1
    assert facts_of(world).gates == {}
