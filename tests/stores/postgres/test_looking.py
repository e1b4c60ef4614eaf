"""Looking into a large PostgreSQL store: plans that do for any values, and read no history."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import pytest

from redrive.store import NewReplay, Query, Selection
from redrive.stores.postgres.connection import named
from redrive.stores.postgres.pool import Link
from redrive.stores.postgres.searching import contains
from tests.conformance import World, an_event
from tests.conformance.world import OPERATOR, a_fault

MANY = 3_000
_MORE_DESTINATIONS = """
INSERT INTO destinations (id, name, document)
SELECT id + n, name || n, document FROM destinations CROSS JOIN generate_series(1, 98) AS n
WHERE name = 'billing' ON CONFLICT DO NOTHING
"""
_MORE_LETTERS = """
INSERT INTO deliveries (position, destination, status, is_ready, generation, priority, due,
    enqueued_at, settled_at, reason, group_id, fault, counted, lane)
SELECT position, destination + n % 99, 3, true, generation, priority, due,
    enqueued_at, settled_at + n * interval '1 s', reason, group_id || n % 99, fault, counted,
    CASE WHEN n % 20 = 0 THEN 'l' || n END
FROM deliveries CROSS JOIN generate_series(1, $1::integer) AS n WHERE status = 3
"""
# To look through the only event there is would be as quick as to look one up.
_MORE_EVENTS = """
INSERT INTO events (xid, id, routes_version, type, key, destinations, document)
SELECT xid, gen_random_uuid(), routes_version, type, key, destinations, document
FROM events CROSS JOIN generate_series(1, $1::integer)
"""
# A few rows are quickly sorted, and many are not.
_AS_IF_LARGE = "SET enable_sort = off; SET enable_bitmapscan = off"
_AS_IT_IS = "RESET enable_sort; RESET enable_bitmapscan"
Plans = list[str]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    """Collect the plan of each statement that reads deliveries, made without its values."""
    seen: Plans = []
    fetch = Link.fetch

    async def explained(self: Link, statement: str, *values: object) -> list[Any]:
        if re.match(r"\s*(SELECT|WITH)", statement) and "redrive.deliveries" in statement:
            connection, words = self._connection, named(statement, self._schema)
            await connection.execute(f"{_AS_IF_LARGE}; PREPARE look AS {words}")
            given = f"({', '.join('NULL' for _ in values)})" if values else ""
            plan = await connection.fetch(f"EXPLAIN EXECUTE look{given}")
            await connection.execute(f"DEALLOCATE look; {_AS_IT_IS}")
            seen.append("\n".join(line for (line,) in plan))
        return await fetch(self, statement, *values)

    monkeypatch.setattr(Link, "fetch", explained)
    return seen


async def with_letters(world: World, person: asyncpg.Connection[Any]) -> None:
    """Make many dead letters, and let the planner know of them."""
    await world.dead_letter(an_event({"card": "visa"}, key="k", tenant="t"), fault=a_fault("no"))
    await person.execute(_MORE_DESTINATIONS)
    await person.execute(_MORE_LETTERS, MANY)
    await person.execute(_MORE_EVENTS, MANY)
    await person.execute("ANALYZE deliveries; ANALYZE events")


async def test_what_failed_since_a_replay_began_is_read_from_the_latest_back(
    world: World, person: asyncpg.Connection[Any], plans: Plans
) -> None:
    await with_letters(world, person)
    for query, index in (
        (Query(), "deliveries_dead_letters"),
        (Query(tenant="t", text="visa"), "deliveries_dead_letters"),
        (Query(event_type="order.*", key="k"), "deliveries_dead_letters"),
        (Query(destination="billing"), "deliveries_letters"),
        (Query(group="hurts", tenant="t"), "deliveries_groups"),
    ):
        new = NewReplay(selection=Selection(query=query))
        replay = await world.store.start_replay(new, actor=OPERATOR)
        assert replay is not None
        plans.clear()

        await world.store.find_replay(replay.id)

        (plan,) = plans
        assert f"Index Scan Backward using {index}" in plan[plan.index("Limit") :]
        assert "Sort" not in plan
        assert "events" not in plan or "using events_pkey" in plan


async def test_the_latest_are_read_in_the_order_of_an_index(
    world: World, person: asyncpg.Connection[Any], plans: Plans
) -> None:
    await with_letters(world, person)
    store = world.store
    for look, index in (
        (store.groups(Query(destination="billing"), most_read=10), "deliveries_letters"),
        (store.groups(Query(tenant="t"), most_read=10), "deliveries_dead_letters"),
        (store.groups(Query(text="visa"), most_read=10), "deliveries_dead_letters"),
        (store.find(Query(text="visa"), most_read=10), "deliveries_dead_letters"),
    ):
        plans.clear()

        await look

        assert [plan for plan in plans if f"Index Scan Backward using {index}" in plan]


async def test_what_failed_lately_is_counted_along_an_index(
    world: World, person: asyncpg.Connection[Any], plans: Plans
) -> None:
    await with_letters(world, person)
    plans.clear()

    await world.store.figures()

    (lately,) = [plan for plan in plans if "settled_at > $1" in plan]
    assert "using deliveries_dead_letters" in lately


async def test_stopped_lanes_of_one_destination_are_looked_for_among_its_own(
    world: World, person: asyncpg.Connection[Any], plans: Plans
) -> None:
    await with_letters(world, person)
    plans.clear()

    await world.store.lanes(destination="billing")

    (plan,) = plans
    assert "Index Cond: (destination = $" in plan


async def test_what_is_large_is_looked_at_by_its_lanes(
    world: World,
    person: asyncpg.Connection[Any],
    plans: Plans,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await with_letters(world, person)
    query, seen = Query(group="hurts"), []
    for few in (0, MANY):
        monkeypatch.setattr("redrive.stores.sql.surveying._FEW", few)
        plans.clear()

        survey = await world.store.survey(Selection(query=query))

        seen += [name for name in ("lanes", "groups") if f"using deliveries_{name} " in plans[1]]
        assert (survey.selected, survey.in_lanes) == (1, 0)
    assert seen == ["lanes", "groups"]


async def test_a_payload_is_taken_out_only_of_what_says_the_text(
    person: asyncpg.Connection[Any],
) -> None:
    """To take it out would fail here."""
    condition, values = contains(
        "Straße", (), 1, parts={"(1 / (length(document) - length(document)))::text": "document"}
    )
    statement = f"SELECT {condition} FROM (VALUES ($4::text)) AS e (document)"  # noqa: S608 - ours
    await person.execute("SET plan_cache_mode = force_generic_plan")
    for document in ("plain", "Größe", None):
        assert not await person.fetchval(statement, *values, document)
    for document in ("STRASSE", "straße", "STRAẞE", r"\u0000"):
        with pytest.raises(asyncpg.DivisionByZeroError):
            await person.fetchval(statement, *values, document)
