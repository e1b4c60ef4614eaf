"""Looking into a large SQLite store: whatever is asked, no history is read through."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from redrive.model.delivery import Status
from redrive.model.destination import Destination, Order
from redrive.store import EventQuery, Query, Selection
from redrive.stores.sql.session import Either
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite.dialect import rewritten
from redrive.stores.sqlite.session import SqliteSession
from tests.conformance.world import OPERATOR, World, a_fault, an_event
from tests.stores.sqlite.test_keeping import a_world, on
from tests.waiting import PATIENCE_SECONDS

_ALIASES = ("redrive_deliveries", "d", "one", "next", "head", "busy")


def _whole(plan: list[str]) -> list[str]:
    """Return the steps that read all deliveries, in any order or in that of their numbers."""
    return [
        f"{how} {name}"
        for name in _ALIASES
        for how in ("SCAN", "SEARCH")
        if f"{how} {name}" in plan
        and not {f"CO-ROUTINE {name}", f"MATERIALIZE {name}"}.intersection(plan)
    ]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What SQLite does for each statement, step by step."""
    seen: list[list[str]] = []
    fetch = SqliteSession.fetch

    async def explained(
        session: SqliteSession, statement: str | Either, *values: object
    ) -> list[Any]:
        nothing = tuple(None for _ in values)
        plan = session.connection.execute(f"EXPLAIN QUERY PLAN {rewritten(statement)}", nothing)
        seen.append([step[3] for step in plan])
        return await fetch(session, statement, *values)

    monkeypatch.setattr(SqliteSession, "fetch", explained)
    return seen


@pytest.mark.parametrize(
    "survey",
    [
        lambda store: store.figures(),
        lambda store: store.gates(),
        lambda store: store.groups(Query()),
        lambda store: store.lanes(),
        lambda store: store.tenants(),
        lambda store: store.survey(Selection()),
    ],
    ids=["figures", "gates", "groups", "lanes", "tenants", "survey"],
)
async def test_what_looks_at_the_whole_store_keeps_no_small_look_waiting(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    survey: Callable[[SqliteStore], Coroutine[Any, Any, object]],
) -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    fetch = SqliteSession.fetch

    async def held_once(
        session: SqliteSession, statement: str | Either, *values: object
    ) -> list[Any]:
        if not has_begun.is_set():
            has_begun.set()
            may_end.wait(PATIENCE_SECONDS)
        return await fetch(session, statement, *values)

    async with a_world(on(tmp_path / "redrive.db")) as world:
        store = world.store
        assert isinstance(store, SqliteStore)
        monkeypatch.setattr(SqliteSession, "fetch", held_once)
        wide = asyncio.create_task(survey(store))
        assert await asyncio.to_thread(has_begun.wait, PATIENCE_SECONDS)
        try:
            await store.routes()

            assert not wide.done()
        finally:
            may_end.set()
            await wide


async def test_no_view_reads_through_deliveries(tmp_path: Path, plans: list[list[str]]) -> None:
    async with a_world(on(tmp_path / "redrive.db")) as world:
        store = await _filled(world)
        plans.clear()

        await store.groups(Query())
        await store.groups(Query(destination="ordered", tenant="t"))
        await store.groups(Query(group="none"), most_read=10)
        await store.groups(Query(destination="ordered"), most_read=10)
        await store.groups(Query(with_resolved=True))
        await store.lanes()
        await store.lanes(destination="ordered")
        await store.tenants()
        await store.tenants(only_paused=True)
        await store.tenants(destination="ordered", tenant="t", limit=1)
        await store.survey(Selection(query=Query(destination="ordered")))
        for status in Status:
            await store.find(Query(status=status), most_read=10)
        await store.find(Query(destination="ordered"))

    assert [step for plan in plans for step in _whole(plan)] == []
    assert any("redrive_groups" in step for plan in plans for step in plan)


async def test_of_what_fails_alike_the_latest_tell_whose_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.stores.sql.causes.MOST_COMPARED", 2)
    async with a_world(on(tmp_path / "redrive.db")) as world:
        for tenant in ("old", "old", "old", "new", "new"):
            await world.dead_letter(an_event(tenant=tenant), fault=a_fault("no"))

        found = [
            (await world.store.groups(query))[0]
            for query in (Query(), Query(event_type=an_event().type))
        ]

    assert [(one.count, one.top_tenants) for one in found] == [(5, (("new", 2),))] * 2


async def _filled(world: World) -> SqliteStore:
    await world.store.register([Destination(name="ordered", patterns=("*",), order=Order.PARK)])
    for key in "ab":
        await world.dead_letter(an_event(key=key, tenant="t"), to="ordered")
    await world.publish(an_event(key="a", tenant="t"), to="ordered")
    await world.store.pause_tenant("t", destination=None, actor=OPERATOR)
    assert isinstance(world.store, SqliteStore)
    return world.store


async def test_a_key_is_looked_for_in_stretches_that_leave_out_what_has_gone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "redrive.db"
    async with a_world(on(path)) as world:
        await world.publish(event := an_event(key="k"))
        connection = apsw.Connection(str(path))
        connection.execute(
            "INSERT INTO redrive_events (position, id, type, key, destinations, document, version) "
            "SELECT value, 'e' || value, e.type, 'other', destinations, document, version "
            "FROM redrive_events e, json_each('[100000, 120000, 250000]') WHERE e.key = 'k'"
        )
        connection.close()
        looks, cursor = [], None
        for _ in range(9):
            page = await world.store.find_events(EventQuery(key="k"), cursor=cursor, limit=5)
            looks.append(([one.id for one in page.events], page.next_cursor))
            cursor = page.next_cursor
            if cursor is None:
                break

    assert looks == [([], "120001"), ([], "100001"), ([], "2"), ([event.id], None)]
