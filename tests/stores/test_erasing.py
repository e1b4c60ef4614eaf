"""Erased is erased in every column there is, and in every file of a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest

from redrive.model.destination import Destination
from redrive.model.erasure import ErasurePart, ErasureTerms
from redrive.model.limits import Breaker, Limits
from redrive.model.replay import ReplayState
from redrive.model.retention import Retention
from redrive.store import NewReplay, Query, Report, Selection
from redrive.stores.postgres import PostgresStore
from redrive.stores.postgres.connection import read_address
from redrive.stores.sql import erasing
from redrive.stores.sql.session import Either
from redrive.stores.sqlite import SqliteStore, counting
from tests.conformance import MakeStore, World
from tests.conformance.erasing import PLANTED, erase, plant, planted_event, planted_query
from tests.conformance.world import OPERATOR, an_event, entries

pytestmark = pytest.mark.asyncio

Cells = dict[str, list[str]]
"""What stands in each column of text, by `table.column`."""

_FLAKY = Destination(
    name="flaky", patterns=("flaky.*",), limits=Limits(breaker=Breaker(failures=9))
)
_TERMS = ErasureTerms(parts=tuple(ErasurePart))
_TRACES = (PLANTED, "planted")
_SAYS = frozenset(
    {
        "events.document",
        "deliveries.fault",
        "deliveries.log",
        "deliveries.cycles",
        "deliveries.payload",
        "deliveries.edits",
        "exchanges.document",
        "addressees.document",
        "projection_edits.payload",
        "projection_edits.edits",
        "request_log.body",
        "replays.document",
        "gates.document",
    }
)
"""Columns that say what events say."""
_NAMES = frozenset(
    {
        "events.key",
        "deliveries.tenant",
        "deliveries.lane",
        "idempotency.key",
        "inbox.key",
        "uniques.key",
        "keys.key",
        "tenants.tenant",
        "tenant_pauses.tenant",
        "counts.tenant",
    }
)
"""Columns with what goes if that is asked for."""
_BESIDE = frozenset({"count_changes.tenant", "late_lanes.lane"})
"""Columns of names, which are empty again after a moment."""
_SILENT = frozenset(
    {
        *("access_tokens.id", "access_tokens.digest", "access_tokens.document"),
        *("audit.by", "audit.why", "audit.action", "audit.detail", "audit.deliveries"),
        *("checkpoints.projection", "checkpoints.type", "checkpoints.worker", "checkpoints.types"),
        *("checkpoints.tables", "checkpoints.rebuild", "checkpoints.event"),
        *("counters.name", "counts.detail", "count_changes.detail", "settings.name"),
        *("deliveries.generation", "deliveries.worker", "deliveries.reason"),
        *("deliveries.group_id", "deliveries.resolution", "deliveries.rule"),
        "encryption.document",
        *("destinations.name", "destinations.document", "events.id", "events.type"),
        *("events.destinations", "gates.override"),
        *("gateway.kind", "gateway.name", "gateway.service", "gateway.document"),
        *("gateway.made_by", "gateway.why", "group_aliases.old", "group_aliases.new"),
        *("idempotency.source", "idempotency.remains"),
        *("inbox.handler", "inbox.source", "inbox.event"),
        *("projection_edits.projection", "idempotency.event"),
        *("publishing_schedules.name", "publishing_schedules.document"),
        *("releases.id", "releases.document", "replays.state", "route_changes.documents"),
        *("secrets.name", "secrets.document", "secrets.sealed"),
        *("sessions.id", "sessions.user_name", "shared_rates.name", "shared_rates.document"),
        *("standings.document", "tenant_pauses.by", "tenant_pauses.why", "trends.body"),
        *("uniques.source", "uniques.event", "users.name", "users.document", "users.password"),
        *("watches.duty", "watches.worker", "workers.id", "workers.release"),
        *("workers.destinations", "workers.generations", "workers.serving"),
    }
)
"""Columns in which nothing of an event stands, but its id, its type and who publishes.

What people write to say why they do something is theirs.
"""


class Ground:
    """A store, and a look past it into its tables."""

    def __init__(
        self,
        make_store: MakeStore,
        cells: Callable[[], Awaitable[Cells]],
        execute: Callable[[str], Awaitable[None]],
    ) -> None:
        self.make_store = make_store
        self.cells = cells
        self.execute = execute

    @asynccontextmanager
    async def world(self) -> AsyncIterator[World]:
        async with World.opened(self.make_store, history=20) as world:
            yield world


@pytest.fixture(autouse=True)
def count_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count so little at once that there is always something that was counted."""
    monkeypatch.setattr(counting, "MUCH", 2)


@pytest.fixture(params=["sqlite", "postgres"])
def ground(request: pytest.FixtureRequest) -> Ground:
    if request.param == "sqlite":
        return _sqlite_ground(Path(request.getfixturevalue("sqlite_url")[len("sqlite:///") :]))
    return _postgres_ground(request.getfixturevalue("postgres_url"))


async def test_every_column_of_text_says_nothing_once_an_event_is_erased(ground: Ground) -> None:
    async with ground.world() as world:
        await _plant_everywhere(world, ground)
        before = await ground.cells()

        await _erase_everything(world)

        assert set(before) - _BESIDE <= _SAYS | _NAMES | _SILENT, "decide what a new column holds"
        assert _saying(before) - _BESIDE == _SAYS | _NAMES
        assert _saying(await ground.cells()) == frozenset()


@pytest.mark.parametrize(
    ("statement", "left_out", "column"),
    [
        ("_REWRITE", "fault = given.fault, ", "deliveries.fault"),
        ("_REWRITE", "log = given.log, ", "deliveries.log"),
        ("_REWRITE", "cycles = given.cycles, ", "deliveries.cycles"),
        ("_REWRITE", ", edits = given.edits", "deliveries.edits"),
        ("_REWRITE", "payload = NULL, ", "deliveries.payload"),
        ("_REWRITE", "CASE WHEN $2 THEN NULL ", "deliveries.tenant"),
        ("_OUT_OF_LANES", "", "deliveries.lane"),
        ("_FORGET_EXCHANGES", "", "exchanges.document"),
        ("_FORGET_ADDRESSEES", "", "addressees.document"),
        ("_FORGET_EDITS", "", "projection_edits.payload"),
        ("_FORGET_PUBLISHER", "", "idempotency.key"),
        ("_UNNAME_INBOX", "", "inbox.key"),
        ("_FORGET_UNIQUES", "", "uniques.key"),
        ("_REWRITE_EVENTS", "document = given.document, ", "events.document"),
        ("_REWRITE_REQUESTS", "", "request_log.body"),
        ("_REWRITE_REPLAYS", "", "replays.document"),
        ("_FORGET_KEYS", "", "keys.key"),
        ("_FAILING", "", "gates.document"),
        ("_NAMING", "", "gates.document"),
    ],
)
async def test_a_column_that_is_left_out_is_found(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, statement: str, left_out: str, column: str
) -> None:
    ground = _sqlite_ground(Path(sqlite_url.removeprefix("sqlite:///")))
    whole = getattr(erasing, statement)
    monkeypatch.setattr(erasing, statement, _without(whole, left_out))

    async with ground.world() as world:
        await _plant_everywhere(world, ground)
        await _erase_everything(world)

        assert column in _saying(await ground.cells())


def _without(statement: str | Either, left_out: str) -> str:
    text = statement.sqlite if isinstance(statement, Either) else statement
    if not left_out:
        return "SELECT 1 WHERE $1 IS NULL"
    assert left_out in text
    stays = {"CASE WHEN $2 THEN NULL ": "CASE WHEN $2 THEN d.tenant "}
    return text.replace(left_out, stays.get(left_out, ""), 1)


async def _plant_everywhere(world: World, ground: Ground) -> None:
    event = await plant(world)
    sought = NewReplay(selection=Selection(query=Query(text=PLANTED)))
    replay = await world.store.start_replay(sought, actor=OPERATOR)
    assert replay is not None
    await world.store.steer_replay(replay.id, ReplayState.CANCELLED, actor=OPERATOR)
    await world.store.pause_tenant("tenant-planted", destination=None, actor=OPERATOR)
    await world.store.resume_tenant("tenant-planted", destination=None, actor=OPERATOR)
    await world.store.pause_tenant("tenant-planted", destination="mailing", actor=OPERATOR)
    in_lane = msgspec.structs.replace(planted_event(), idempotency_key=None)
    await world.append(entries(in_lane, to=["ledger"]))
    leased = await world.claim_one("ledger")
    await world.fail(leased)
    await world.store.register([_FLAKY])
    one_more = msgspec.structs.replace(planted_event(), idempotency_key=None)
    await world.append(entries(one_more, to=["flaky"]))
    await world.fail(await world.claim_one("flaky"))
    report = Report(destination="flaky", generation=0, is_success=False, error=PLANTED)
    await world.store.report([report], chance=0.5)
    await world.append(entries(an_event(), an_event(), to=[]))
    await world.store.prune(Retention())
    place = (await world.logged(2))[0].position.number
    said = msgspec.json.encode({"name": PLANTED}).decode()
    await ground.execute(
        "INSERT INTO redrive.projection_edits (projection, position, payload, edits) "
        f"VALUES ('ledger', {place}, '{said}', '[{said}]')"
    )
    await ground.execute(
        "INSERT INTO redrive.inbox (handler, source, key, event) "
        f"VALUES ('billing', 'shop', 'idempotency-planted', '{event.id}')"
    )


async def _erase_everything(world: World) -> None:
    query = planted_query()
    await erase(world, query, _TERMS)
    await world.store.erase_traces(query, terms=_TERMS)


def _saying(cells: Cells) -> frozenset[str]:
    return frozenset(
        column
        for column, texts in cells.items()
        if any(trace in text for text in texts for trace in _TRACES)
        and not column.startswith("audit.")
    )


def _sqlite_ground(path: Path) -> Ground:
    def look() -> Cells:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            tables: list[Any] = connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'redrive\\_%' "
                "ESCAPE '\\' AND name <> 'redrive_schema'"
            ).fetchall()
            found: Cells = {}
            for (table,) in tables:
                for _, column, kind, *_ in connection.execute(
                    f"PRAGMA table_info({table})"
                ).fetchall():
                    if kind in {"TEXT", "BLOB"}:
                        rows = connection.execute(
                            f"SELECT CAST({column} AS TEXT) FROM {table} WHERE {column} IS NOT NULL"
                        ).fetchall()
                        found[f"{table.removeprefix('redrive_')}.{column}"] = [
                            str(text) for (text,) in rows
                        ]
            return found

    def run(statement: str) -> None:
        with closing(apsw.Connection(str(path))) as connection:
            connection.set_busy_timeout(10_000)
            connection.execute(statement.replace("redrive.", "redrive_"))

    return Ground(
        lambda clock: SqliteStore(path, clock=clock, history=20),
        lambda: asyncio.to_thread(look),
        lambda statement: asyncio.to_thread(run, statement),
    )


def _postgres_ground(url: str) -> Ground:
    address = read_address(url)

    async def ask(statement: str, *values: object) -> list[Any]:
        connection = await asyncpg.connect(address.dsn)
        try:
            return list(await connection.fetch(statement, *values))
        finally:
            await connection.close()

    async def look() -> Cells:
        columns = await ask(
            "SELECT table_name, column_name FROM information_schema.columns c "
            "JOIN information_schema.tables t USING (table_schema, table_name) "
            "WHERE table_schema = $1 AND table_type = 'BASE TABLE' "
            "AND data_type IN ('text', 'jsonb', 'json', 'bytea', 'ARRAY', 'uuid')",
            address.schema,
        )
        found: Cells = {}
        for table, column in columns:
            rows = await ask(
                f'SELECT "{column}"::text FROM {address.schema}.{table} '
                f'WHERE "{column}" IS NOT NULL'
            )
            found[f"{table}.{column}"] = [text for (text,) in rows]
        return found

    async def run(statement: str) -> None:
        await ask(statement.replace("redrive.", f"{address.schema}."))

    return Ground(lambda clock: PostgresStore(url, clock=clock, history=20), look, run)
