"""Keeping on SQLite: a file of the first schema, probes by index, and large exports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from redrive.model.delivery import Status
from redrive.model.letter import Letter
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered, Failed, FailureReason
from redrive.store import Pruned, Query, Settled
from redrive.stores.memory import MemoryStore
from redrive.stores.sql import figures, regrouping, retention, shedding
from redrive.stores.sqlite import SqliteStore, schema
from redrive.stores.sqlite.dialect import rewritten
from tests.conformance.world import (
    OPERATOR,
    MakeStore,
    World,
    a_fault,
    an_event,
    entries,
)

MANY = 10_000


def on(path: Path) -> MakeStore:
    return lambda clock: SqliteStore(path, clock=clock)


@asynccontextmanager
async def a_world(make_store: MakeStore) -> AsyncIterator[World]:
    async with World.opened(make_store, history=20) as world:
        yield world


async def test_a_file_of_the_first_schema_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "redrive.db"
    script = resources.files("redrive.stores.sqlite").joinpath("sql", "0001_initial.sql")
    connection = apsw.Connection(str(path))
    connection.execute(
        "CREATE TABLE redrive_schema (version INTEGER NOT NULL, oldest_code INTEGER NOT NULL)"
    )
    connection.execute("INSERT INTO redrive_schema VALUES (1, 1)")
    connection.execute(script.read_text("utf-8"))
    connection.execute(
        """
        INSERT INTO redrive_destinations (name, document)
        VALUES ('billing', '{"name": "billing", "patterns": ["order.*"]}');
        UPDATE redrive_counters SET value = 1 WHERE name IN ('routes_version', 'unrouted');
        INSERT INTO redrive_workers VALUES ('old', 1767268800000000);
        """
    )
    for number, names in enumerate(['["billing"]', '["billing"]', '["billing"]', "[]"], start=1):
        event = an_event(number, idempotency_key=str(number))
        connection.execute(
            "INSERT INTO redrive_events (id, type, destinations, document) VALUES (?, ?, ?, ?)",
            (event.id, event.type, names, msgspec.json.encode(event).decode()),
        )
        connection.execute(
            "INSERT INTO redrive_idempotency VALUES ('', ?, ?)", (str(number), number)
        )
    resolution = '{"by": "ada", "at": "2026-01-01T12:00:00Z", "why": "by hand"}'
    for position, status, reason, resolved in (
        (1, 0, None, None),
        (2, 2, None, None),
        (3, 3, "terminal", resolution),
    ):
        connection.execute(
            "INSERT INTO redrive_deliveries (position, destination, status, is_ready, priority, "
            "generation, due, enqueued_at, settled_at, reason, fault, resolution) "
            "VALUES (?, 1, ?, 1, 0, 'default', 1767268800000000, 1767268800000000, ?, ?, ?, ?)",
            (
                position,
                status,
                1767268800000000 if status > 1 else None,
                reason,
                msgspec.json.encode(a_fault()).decode() if reason else None,
                resolved,
            ),
        )
    connection.close()

    async with a_world(on(path)) as world:
        version = world.store.schema_version
        figures = await world.store.figures()
        leased = await world.claim_one()
        world.clock.advance("30d")
        pruned = await world.store.prune(Retention())
        refused = await world.settle(leased, Delivered())

    assert version == schema.LATEST
    assert (figures.events, figures.unrouted, figures.workers[0].serving) == (4, 1, None)
    assert (figures.destinations[0].pending, figures.destinations[0].resolved) == (1, 1)
    assert (pruned.delivered, pruned.resolved) == (1, 1)
    assert pruned.events >= 2
    assert refused


async def test_looking_for_what_may_go_costs_one_look_into_each_index(tmp_path: Path) -> None:
    async with a_world(on(tmp_path / "redrive.db")) as world:
        store = world.store
        assert isinstance(store, SqliteStore)
        statements: dict[str, Any] = {
            rewritten(retention._HAS_PRUNABLE): (1, 1, 1, 1, 1, 1),
            rewritten(regrouping._OUTDATED): ("g", 1),
            rewritten(regrouping._HAS_OUTDATED): ("g",),
            rewritten(regrouping._REGROUP): ("[]",),
            rewritten(retention._DELIVERED): (1, 1),
            rewritten(retention._RESOLVED): (1, 1),
            rewritten(retention._IDLE): (1, 1, 1, 1),
            rewritten(retention._LOCK_IDLE): ("[]", 1),
            rewritten(retention._LOCK_EVENTS): ("[]",),
            rewritten(retention._FINISHED): ("[]", 1),
            rewritten(retention._OUTLIVE): ("[]",),
            rewritten(retention._FORGET_KEYS): ("[]",),
            rewritten(retention._FORGET_REMAINS): (1, 1),
            rewritten(retention._LEAVE_INBOX): ("[]",),
            rewritten(retention._PAST_INBOX): (1, 1),
            rewritten(retention._KEEP_INBOX): ("[]",),
            rewritten(retention._FORGET_INBOX): ("[]", 1),
            rewritten(retention._LETTER_QUOTAS): (1,),
            rewritten(retention._UNCHANGED): ("[]",),
            rewritten(figures._DESTINATIONS): (),
            rewritten(figures._KEPT): (),
            rewritten(figures._IN_FLIGHT): (),
            rewritten(figures._COME_DUE): (1,),
            rewritten(figures._LONGEST_DUE): ("[1]", 1, 1),
            rewritten(figures._LATELY): (1, 1),
            rewritten(figures._WORKLOAD): (1,),
            rewritten(shedding._DUE): (1, 1, 1, 1),
        }

        def plans(connection: apsw.Connection) -> list[str]:
            return [
                step[3]
                for statement, bindings in statements.items()
                for step in connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)
            ]

        steps = await store._reader.call(plans)

    tables = ("deliveries", "events", "idle", "idempotency", "inbox")
    scans = {f"SCAN redrive_{table}" for table in tables} | {f"SCAN {name}" for name in "deni"}
    assert [step for step in steps if step in scans] == []


@pytest.mark.parametrize("target", ["memory", "sqlite"])
async def test_ten_thousand_letters_go_out_and_come_back_equal(target: str, tmp_path: Path) -> None:
    async with a_world(on(tmp_path / "source.db")) as source:
        await source.append(
            entries(*[an_event({"n": n}, idempotency_key=str(n)) for n in range(MANY)])
        )
        leased = (await source.claim(total=MANY, limit=MANY)).deliveries
        await source.store.settle(
            [
                Settled(
                    lease=one.lease,
                    settlement=Failed(reason=FailureReason.TERMINAL, fault=a_fault()),
                )
                for one in leased
            ]
        )
        exported = await _export(source)

    make = MemoryStore if target == "memory" else on(tmp_path / "target.db")
    many = MANY if target == "sqlite" else MANY // 20
    async with a_world(make) as world:
        for begin in range(0, many, 500):
            restored = await world.store.restore(exported[begin : begin + 500], actor=OPERATOR)
            assert len(restored.deliveries) == 500
        back = await _export(world)

    assert len(exported) == MANY
    assert sorted(map(_but_for_id, back), key=_event) == sorted(
        map(_but_for_id, exported[:many]), key=_event
    )


async def test_freed_pages_are_used_again(tmp_path: Path) -> None:
    """The file does not shrink by itself, and does not grow while as much goes as comes."""
    path = tmp_path / "redrive.db"
    async with a_world(on(path)) as world:
        store = world.store
        assert isinstance(store, SqliteStore)
        sizes = []
        for _ in range(6):
            await world.append(entries(*[an_event("x" * 500) for _ in range(400)]))
            claimed = (await world.claim(total=400)).deliveries
            await world.store.settle(
                [Settled(lease=one.lease, settlement=Delivered()) for one in claimed]
            )
            world.clock.advance("31d")
            pruned = await world.store.prune(Retention())
            assert pruned == Pruned(delivered=400, events=400)
            sizes.append(await store._reader.call(lambda c: c.execute("PRAGMA page_count").get))

    assert max(sizes[1:]) <= sizes[0] * 1.1


async def _export(world: World) -> list[Letter]:
    found: list[Letter] = []
    cursor = None
    while True:
        page = await world.store.letters(Query(status=Status.FAILED), cursor=cursor, limit=500)
        found += page.letters
        cursor = page.next_cursor
        if cursor is None:
            return found


def _but_for_id(letter: Letter) -> Letter:
    return msgspec.structs.replace(letter, delivery=msgspec.structs.replace(letter.delivery, id=0))


def _event(letter: Letter) -> str:
    return letter.event.id
