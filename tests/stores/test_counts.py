"""The counts that are kept equal a recount, whoever changes the tables, and cost no count."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import apsw
import pytest

from redrive import Redrive
from redrive.model.retention import Retention
from redrive.model.settlement import Delivered
from redrive.store import Level
from redrive.stores.postgres import PostgresStore
from redrive.stores.sql import counts
from redrive.stores.sql.session import Session
from redrive.stores.sqlite import SqliteStore, counting
from redrive.testing.clock import FakeClock
from tests.conformance import World, an_event
from tests.conformance.world import OPERATOR

STORE_AS_BEFORE = (
    """
    INSERT INTO redrive.events (id, type, destinations, document@xid)
    SELECT '01940000-0000-7000-8000-00000000ffff', 'order.paid', @nobody, document@xid
    FROM redrive.events LIMIT 1
    """,
    """
    INSERT INTO redrive.deliveries
        (position, destination, is_ready, priority, generation, tenant, due, enqueued_at)
    SELECT position, destination, is_ready, priority, generation, tenant, due, enqueued_at
    FROM redrive.deliveries
    """,
)
CHANGE_AS_BEFORE = (
    "UPDATE redrive.deliveries SET status = 1, kind = 0 WHERE id = 1",
    "UPDATE redrive.deliveries SET status = 2, settled_at = due WHERE id = 1",
    "UPDATE redrive.deliveries SET is_ready = false, kind = 0 WHERE id = 2",
    "UPDATE redrive.deliveries SET status = 3, reason = 'exhausted', tenant = 't' WHERE id = 3",
    "UPDATE redrive.deliveries SET resolution = '{}' WHERE id = 3",
    "UPDATE redrive.deliveries SET generation = 'next' WHERE id = 4",
    "DELETE FROM redrive.deliveries WHERE id = 4",
    "UPDATE redrive.deliveries SET destination = destination + 1, is_ready = true WHERE id = 2",
)


@pytest.fixture(params=["sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    def make(clock: FakeClock) -> SqliteStore | PostgresStore:
        if request.param == "sqlite":
            return SqliteStore(tmp_path / "redrive.db", clock=clock)
        return PostgresStore(request.getfixturevalue("postgres_url"), clock=clock)

    async with World.opened(make, history=20) as world:
        yield world


async def run(world: World, *statements: str) -> None:
    """Run statements that do not know of the counts, as those of older code."""
    store = world.store
    assert isinstance(store, SqliteStore | PostgresStore)
    is_sqlite = isinstance(store, SqliteStore)
    nobody, xid = ("'[]'", "") if is_sqlite else ("'{}'::text[]", ", xid")

    async def job(session: Session, _: datetime) -> None:
        for one in statements:
            await session.fetch(one.replace("@nobody", nobody).replace("@xid", xid))

    await store._write(job)


async def wrong(world: World) -> list[object]:
    return list(await world.store.miscounts())


async def fold(world: World) -> None:
    assert isinstance(world.store, SqliteStore | PostgresStore)
    await world.store._write(lambda session, _: counts.fold(session))


@pytest.mark.parametrize("is_folded", [False, True], ids=["new", "counted"])
async def test_what_older_code_does_is_counted(world: World, *, is_folded: bool) -> None:
    await world.publish(*[an_event() for _ in range(4)])
    if is_folded:
        await fold(world)

    for one in (*CHANGE_AS_BEFORE, *STORE_AS_BEFORE, *CHANGE_AS_BEFORE):
        await run(world, one)
        assert await wrong(world) == [], one
    before = await world.store.figures()
    await fold(world)

    assert (before.events, before.unrouted) == (5, 1)
    assert await world.store.figures() == before
    assert await wrong(world) == []
    for one in CHANGE_AS_BEFORE:
        await run(world, one.replace("id = ", "id > 4 AND id <> "))
        assert await wrong(world) == [], one


async def test_a_wrong_count_is_told_and_mended(world: World) -> None:
    await world.publish(an_event(), an_event())
    await fold(world)
    await run(world, "UPDATE redrive.counts SET number = number + 1 WHERE destination > 0")

    [told] = await world.store.miscounts()
    mended = list(await world.store.recount())

    assert (told.destination, told.kept, told.counted) == ("billing", 3, 2)
    assert mended == [told]
    assert await wrong(world) == []
    assert (await world.figures_of()).pending == 2


async def test_who_reads_adds_up_when_nobody_else_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "_MOST_CHANGES", 3)
    for _ in range(4):
        await world.publish(an_event())

    figures = await world.store.figures()

    assert await changes(world) == 0
    assert await world.store.figures() == figures
    assert await wrong(world) == []


async def changes(world: World) -> int:
    assert isinstance(world.store, SqliteStore | PostgresStore)
    return await world.store._read(lambda session, _: counts.count_changes(session))


async def test_housekeeping_adds_up_what_has_changed_and_forgets_what_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "MUCH", 2)
    dead = await world.dead_letter(an_event(tenant="t"))
    await world.publish(an_event())
    await world.store.delete([dead], actor=OPERATOR)
    await world.settle(await world.claim_one(), Delivered())
    world.clock.advance("90d")

    await world.store.prune(Retention())

    assert isinstance(world.store, SqliteStore | PostgresStore)
    rows = await world.store._read(
        lambda session, _: session.fetch("SELECT state, number FROM redrive.counts")
    )
    assert await changes(world) <= 0
    assert rows == []
    assert await wrong(world) == []


async def test_a_look_costs_the_same_however_much_is_finished(tmp_path: Path) -> None:
    async with World.opened(
        lambda clock: SqliteStore(tmp_path / "redrive.db", clock=clock), history=20
    ) as world:
        await world.dead_letter(an_event(tenant="t"))
        store = world.store
        assert isinstance(store, SqliteStore)
        costs, found = [], []
        for _ in range(3):
            for _ in range(4):
                await run(world, "UPDATE redrive.deliveries SET status = 3", *STORE_AS_BEFORE[1:])
            await run(world, "UPDATE redrive.deliveries SET status = 3, reason = 'exhausted'")
            await fold(world)
            steps = 0

            def count() -> bool:
                nonlocal steps
                steps += 1
                return False

            def listen(connection: apsw.Connection, *, is_on: bool) -> None:
                connection.set_progress_handler(count if is_on else None, 10)

            await store._reader.call(lambda one: listen(one, is_on=True))
            figures = await store.figures()
            await store._reader.call(lambda one: listen(one, is_on=False))
            costs.append(steps)
            found.append(figures.letters.count)

        assert found == [16, 16**2, 16**3]
        assert max(costs) - min(costs) <= 5


async def test_the_doctor_tells_of_wrong_counts(tmp_path: Path) -> None:
    app = Redrive(f"sqlite:///{tmp_path / 'redrive.db'}")
    app.handler("order.*", name="billing")(lambda _: None)
    async with app:
        await app.publish("order.paid")
        connection = apsw.Connection(str(tmp_path / "redrive.db"))
        connection.execute("INSERT INTO redrive_counts VALUES (1, 20, '', '', 7)")
        connection.close()

        [finding] = [one for one in await app.operations.examine() if "kept counts" in one.what]
        mended = await app.operations.recount()

        assert finding.level is Level.ERROR
        assert "Of billing, delivered: 7 are told, and there are 0." in finding.what
        assert finding.advice.endswith("redrive doctor --recount")
        assert [(one.what, one.kept, one.counted) for one in mended] == [("delivered", 7, 0)]
        assert not [one for one in await app.operations.examine() if "kept counts" in one.what]
