"""Claims on PostgreSQL beside others who hold the same rows, and what a claim costs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from redrive.clock import SystemClock
from redrive.model.destination import Destination
from redrive.model.fairness import Fairness
from redrive.model.gate import Closed, Open
from redrive.model.limits import Breaker, Limits, Rate, SharedRate
from redrive.model.settlement import Delivered
from redrive.stores.postgres import PostgresStore, connection
from redrive.stores.postgres.connection import named, read_address
from redrive.stores.postgres.gating import lock_gates
from redrive.stores.postgres.lanes import free_lanes, free_late_lanes
from redrive.stores.postgres.ready import NEXT_DUE
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.postgres.single_statement.duties import LOOK_AGAIN
from redrive.stores.sealed import PLAIN
from redrive.stores.sql import gates
from tests.conformance import World, an_event, entries
from tests.conformance.gating import DOWN, Gated
from tests.conformance.shared_rates import Account
from tests.conformance.world import OPERATOR
from tests.servers.waiting import until_somebody_waits
from tests.waiting import PATIENCE_SECONDS


async def publish(world: World, *tenants: str | None, to: tuple[str, ...] = ("shop",)) -> None:
    await world.store.register([Destination(name=name, patterns=("*",)) for name in to])
    batch = entries(*(an_event(tenant=tenant) for tenant in tenants), to=list(to))
    version = (await world.store.routes()).version
    await world.store.append(batch, routes_version=version, all_or_nothing=True)


async def test_a_claim_does_not_wait_for_a_row_that_somebody_is_changing(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    await publish(world, "a", "a", "a")
    async with person.transaction():
        await person.execute("UPDATE deliveries SET status = 2 WHERE id = 1")
        async with asyncio.timeout(PATIENCE_SECONDS):
            first = await world.claim("shop", total=1)
    second = await world.claim("shop", total=2)
    assert [one.lease.delivery_id for one in first.deliveries] == [2]
    assert first.next_due == world.clock.now() + timedelta(milliseconds=100)
    assert [one.lease.delivery_id for one in second.deliveries] == [3]
    assert second.next_due is None


@pytest.mark.parametrize(
    "held_by",
    [
        {"limits": Limits(rate=Rate(per_second=0.01, burst=2.0))},
        {"limits": Limits(shared_rate=SharedRate("acme", Rate(per_second=0.01, burst=2.0)))},
        {"fairness": Fairness(rate=Rate(per_second=0.01, burst=2.0))},
    ],
    ids=["rate", "shared_rate", "tenant_rate"],
)
async def test_what_somebody_else_has_a_hold_of_is_charged_to_nobody(
    world: World, person: asyncpg.Connection[asyncpg.Record], held_by: dict[str, Any]
) -> None:
    """A token that nobody used would be lost: here, the next one comes in 100 s."""
    await world.store.register([Destination(name="shop", patterns=("*",), **held_by)])
    await world.append(entries(an_event(tenant="a"), an_event(tenant="a"), to=["shop"]))
    holding = person.transaction()
    await holding.start()
    await person.execute("SELECT FROM deliveries WHERE id = 1 FOR UPDATE")

    first = await world.claim("shop")
    await holding.rollback()
    second = await world.claim("shop")

    assert [one.lease.delivery_id for one in first.deliveries] == [2]
    assert first.is_held
    assert [one.lease.delivery_id for one in second.deliveries] == [1]


async def test_others_are_claimed_in_place_of_what_somebody_has_a_hold_of(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    limits = Limits(rate=Rate(per_second=0.01, burst=2.0))
    await world.store.register([Destination(name="shop", patterns=("*",), limits=limits)])
    await world.append(entries(*[an_event() for _ in range(5)], to=["shop"]))
    async with person.transaction():
        await person.execute("SELECT FROM deliveries WHERE id IN (1, 3) FOR UPDATE")

        claim = await world.claim("shop")

    assert [one.lease.delivery_id for one in claim.deliveries] == [2, 4]


async def test_a_claim_ends_where_somebody_has_a_hold_of_all_there_is(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    await publish(world, "a", "b", None)
    async with person.transaction():
        await person.execute("SELECT FROM deliveries FOR UPDATE")

        claim = await world.claim("shop")

    assert (claim.deliveries, claim.is_held) == ((), True)
    assert claim.next_due == world.clock.now() + timedelta(milliseconds=100)


async def test_a_claim_that_waits_for_a_lane_has_made_nothing_ready_yet(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Two claims, each waiting for what the other has made ready, would be a deadlock."""
    lane, other = an_event(key="lane"), an_event(key="other", due=world.after("1s"))
    await world.publish(lane, an_event(key="lane"), to="ledger")
    await world.publish(other, to="ledger")
    await person.execute("INSERT INTO late_lanes SELECT destination, lane FROM deliveries LIMIT 1")
    await person.execute("UPDATE deliveries SET is_behind = true WHERE lane = 'lane'")
    world.clock.advance("2s")

    async with asyncio.TaskGroup() as group, person.transaction():
        await person.execute("SELECT FROM deliveries WHERE lane = 'lane' FOR UPDATE")
        claiming = group.create_task(world.claim("ledger"))
        await until_somebody_waits(person)
        held = await person.fetch(
            "SELECT id FROM deliveries WHERE lane = 'other' FOR UPDATE NOWAIT"
        )

    assert len(held) == 1
    assert len(claiming.result().deliveries) == 2


async def test_putting_off_a_lane_does_not_wait_for_who_takes_it_up(
    world: World, postgres_url: str, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    await world.publish(an_event(key="lane"), to="ledger")
    await person.execute("INSERT INTO late_lanes SELECT destination, lane FROM deliveries")
    address = read_address(postgres_url)
    publisher = await asyncpg.connect(address.dsn)

    async with person.transaction():
        await free_late_lanes(PostgresSession(person, address.schema, PLAIN))
        async with asyncio.timeout(PATIENCE_SECONDS), publisher.transaction():
            await free_lanes(
                PostgresSession(publisher, address.schema, PLAIN), [(1, "lane"), (2, "lane")]
            )

    await publisher.close()
    assert await person.fetchval("SELECT count(*) FROM late_lanes") == 2


async def test_a_lane_whose_head_arrives_while_somebody_publishes_to_it_goes_on(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Whoever settles cannot see what is about to be added, and must not forget that it comes."""
    await world.publish(an_event(1, key="lane"), an_event(2, key="lane"), to="ledger")
    head = await world.claim_one("ledger")
    async with person.transaction():
        await world.store.append(
            entries(an_event(3, key="lane"), to=["ledger"]),
            routes_version=await world.version(),
            all_or_nothing=True,
            within=person,
        )
        await world.settle(head, Delivered())
        during = await world.claim("ledger")

    assert during.deliveries == ()
    assert len(await world.run_all("ledger")) == 2


async def test_a_report_counts_on_top_of_whoever_changes_the_gate_meanwhile(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    gated = Gated(world, Limits(breaker=Breaker(failures=3)))
    await gated.publish(1)
    await gated.report(DOWN)
    once = await person.fetchval("SELECT document FROM gates WHERE document <> '{}'")
    await gated.report(DOWN)
    twice = await person.fetchval("SELECT document FROM gates WHERE document <> '{}'")
    put = "UPDATE gates SET document = $1 WHERE document <> '{}'"
    await person.execute(put, once)

    async with asyncio.TaskGroup() as group, person.transaction():
        await person.execute(put, twice)
        reporting = group.create_task(gated.report(DOWN, generation=0))
        await until_somebody_waits(person)

    assert reporting.result() == [(Closed, Open)]


async def test_a_claim_takes_what_others_left_of_a_shared_rate(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    account = Account(world, SharedRate("acme", Rate(per_second=1.0, burst=2.0)))
    await account.publish(2)
    await account.claim("a", total=1)
    one_left = await person.fetchval("SELECT document FROM shared_rates")
    await account.claim("a", total=1)
    none_left = await person.fetchval("SELECT document FROM shared_rates")
    await person.execute("UPDATE shared_rates SET document = $1", one_left)

    async with asyncio.TaskGroup() as group, person.transaction():
        await person.execute("UPDATE shared_rates SET document = $1", none_left)
        claiming = group.create_task(account.claim("b"))
        await until_somebody_waits(person)

    assert claiming.result().deliveries == ()


async def test_a_turn_locks_all_its_gates_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that lock them in two steps each, in whatever order, could wait for each other."""
    gated = Gated(world, Limits(breaker=Breaker(failures=3)))
    await gated.publish(1)
    await world.publish(an_event())
    await gated.claim()
    locked: list[set[str]] = []

    async def noted(session: PostgresSession, only: Collection[str], **options: Any) -> Any:  # noqa: ANN401 - as it is
        locked.append(set(only))
        return await lock_gates(session, only, **options)

    monkeypatch.setattr("redrive.stores.postgres.reporting.lock_gates", noted)
    await asyncio.gather(gated.report(DOWN, generation=0), world.claim("billing"))

    assert locked == [{"gated", "billing"}]


async def test_gates_of_what_was_removed_are_found_without_reading_through_history(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    await world.publish(an_event())
    await person.execute(
        "INSERT INTO deliveries (position, due, enqueued_at, destination, status, priority, "
        "is_ready, generation, settled_at) "
        "SELECT n, now(), now(), 1, 2, 0, true, '', now() FROM generate_series(10, 5000) n"
    )
    await person.execute("ANALYZE deliveries")
    await world.store.unregister("mailing", actor=OPERATOR)

    statement = named(gates._LISTED.postgres, await person.fetchval("SELECT current_schema()"))  # noqa: SLF001 - its plan
    plan = await person.fetch(f"EXPLAIN (ANALYZE, COSTS off, TIMING off) {statement}")

    scans = [line for (line,) in plan if " on deliveries" in line]
    assert len(scans) == 6
    assert not [line for line in scans if "Seq Scan" in line]


@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_what_others_have_scheduled_is_not_read_to_tell_what_comes_due(
    world: World, person: asyncpg.Connection[asyncpg.Record], *, is_analyzed: bool
) -> None:
    await publish(world, None, to=("shop", "other"))
    await person.execute(
        """
        INSERT INTO deliveries
            (position, destination, is_ready, due, generation, priority, enqueued_at)
        SELECT 1, 2, false, now() + n * interval '1 s', 'default', 0, now()
        FROM generate_series(1, 5000) AS n
        """
    )
    if is_analyzed:
        await person.execute("ANALYZE deliveries")
    statement = named(
        NEXT_DUE.format(destinations="ARRAY[1]", generations="ARRAY['default']"),
        await person.fetchval("SELECT current_schema()"),
    )

    plan = await person.fetch(f"EXPLAIN (ANALYZE, COSTS off, TIMING off) {statement}")

    lines = [line for (line,) in plan]
    assert [line for line in lines if "using deliveries_next_due" in line], "\n".join(lines)
    assert not [line for line in lines if "Removed by Filter" in line]


async def test_claims_go_on_while_plans_are_made_anew(
    postgres_url: str, person: asyncpg.Connection[asyncpg.Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_SLOW_SECONDS", 0.0)
    monkeypatch.setattr(connection, "_BETWEEN_PLANS_SECONDS", 0.0)
    begun: list[str] = []
    execute = connection.Connection.execute

    async def noted(self: connection.Connection, statement: str) -> str:
        begun.append(statement)
        status: str = await execute(self, statement)
        return status

    monkeypatch.setattr(connection.Connection, "execute", noted)
    store = PostgresStore(f"{postgres_url}&pool=2", clock=SystemClock())
    await store.open()
    try:
        await store.register([Destination(name="shop", patterns=("*",))])
        published = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while begun.count("DISCARD PLANS") < 10:
                version = (await store.routes()).version
                await store.append(
                    entries(an_event(), to=["shop"]), routes_version=version, all_or_nothing=True
                )
                published += 1
    finally:
        await store.close()

    assert await person.fetchval("SELECT count(*) FROM deliveries") == published > 0


@pytest.mark.parametrize(
    ("tenants", "to", "most"),
    [
        ([None] * 9, ("shop",), 1),
        ([None] * 9, ("shop", "mail", "stock"), 1),
        (["acme"] * 9, ("shop",), 3),
        (["acme", "bolt", "coil"] * 3, ("shop",), 4),
    ],
    ids=["no tenants", "three destinations", "one tenant", "three tenants"],
)
async def test_a_claim_asks_the_server_few_times(
    world: World, trips: list[str], tenants: list[str | None], to: tuple[str, ...], most: int
) -> None:
    await publish(world, *tenants, to=to)
    await world.claim(*to, total=1)
    trips.clear()
    claim = await world.claim(*to, total=5)
    assert len(claim.deliveries) == 5 * len(to)
    assert len(trips) == most


async def test_the_server_looks_again_at_a_table_that_it_takes_for_empty(
    world: World, person: asyncpg.Connection[asyncpg.Record], trips: list[str]
) -> None:
    """Or a claim would read the whole table for each delivery that it takes."""
    await publish(world, *(None for _ in range(1100)))
    await person.execute("DELETE FROM deliveries")
    await person.execute("VACUUM (ANALYZE, TRUNCATE false) deliveries")
    believed = "SELECT reltuples FROM pg_class WHERE oid = 'deliveries'::regclass"
    assert await person.fetchval(believed) == 0
    await publish(world, *(None for _ in range(1100)))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await person.fetchval(believed) == 0:  # the server counts a little late
            await world.store.overdue()
    assert await person.fetchval(believed) == 1100
    looks = trips.count(LOOK_AGAIN)
    await world.store.overdue()
    assert trips.count(LOOK_AGAIN) == looks


async def test_a_look_does_not_wait_for_what_somebody_is_changing(
    world: World, person: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Nor is a worker told to look again at once, over and over, until they are done."""
    await world.publish(an_event(due=world.after("1s")))
    world.clock.advance("2s")
    async with person.transaction():
        await person.execute("UPDATE deliveries SET priority = 1")
        async with asyncio.timeout(PATIENCE_SECONDS):
            during = await world.store.find_work(["default"], after=0, limit=9)
    after = await world.store.find_work(["default"], after=0, limit=9)
    assert (during.destinations, during.next_due) == ((), world.after("100ms"))
    assert [name for name, _ in after.destinations] == ["billing"]


async def test_a_look_is_one_statement_that_reads_no_table(
    world: World, person: asyncpg.Connection[asyncpg.Record], trips: list[str]
) -> None:
    await publish(world, "a", "b", to=("shop", "ledger"))
    await world.store.find_work(["default"], after=0, limit=9)
    trips.clear()
    await world.store.find_work(["default"], after=0, limit=9)
    (statement,) = trips
    await person.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")
    await person.execute(f"PREPARE look AS {named(statement, await schema_of(person))}")
    plan = "\n".join(
        line for (line,) in await person.fetch("EXPLAIN EXECUTE look(now(), '{default}', 0, 9)")
    )
    assert "deliveries_ready" in plan
    assert "deliveries_suspects" in plan
    assert "deliveries_waiting" in plan
    assert "Seq Scan on deliveries" not in plan
    assert "Sort Key: deliveries" not in plan


async def schema_of(person: asyncpg.Connection[asyncpg.Record]) -> str:
    return str(await person.fetchval("SELECT current_schema()"))
