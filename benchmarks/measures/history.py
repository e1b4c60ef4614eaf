"""A store with a long history: one of each is made by the engine, and SQL makes many of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from benchmarks.measures.shop import settle_down
from redrive import Event, Redrive, Retry, Terminal
from redrive.model.instant import micros
from redrive.model.trend import Measure
from redrive.operations import GatewayDocument
from redrive.store import EVERYWHERE
from redrive.stores.trending import TIERS, Row, block_of, packed

__all__ = ["History", "fill_history", "name_of"]

_WORKERS = ("worker-1", "worker-2", "worker-3", "worker-4")
_TENANTS = 1_000
_ACTS = 20_000
_REPLAYS = 500
_PAYLOAD = {"order": 1, "note": "left at the door " * 12, "card": "visa-4111"}
_WEEK_SECONDS = 7 * 86_400
_UUID = "printf('%08x-0000-7000-8000-%012x', n, n)"
_MEASURE = Measure(
    delivered=25, retried=3, failed=1, latencies=(1, 5, 9, 4, 3, 2, 1, 0, 0, 0, 0, 0)
)
_CHARTED = 20
"""So many destinations have trends, and what shares rows with them."""


@dataclass(frozen=True, kw_only=True)
class History:
    """How much has happened; each event has one dead letter and three finished deliveries.

    Four in ten letters are of one cause, three in ten of thirty causes at ten destinations, and the
    others are spread over a tenth of all destinations.
    """

    letters: int
    destinations: int

    @property
    def services(self) -> int:
        """How many services the store describes beside the destinations, with a rule each."""
        return self.destinations // 10

    @property
    def pending(self) -> int:
        """How many wait, half of them for another try."""
        return self.letters // 50

    @property
    def finished(self) -> int:
        """How many were delivered."""
        return 3 * self.letters


def name_of(number: int) -> str:
    """Return the name of a destination."""
    return f"service-{number}"


async def fill_history(url: str, history: History) -> None:
    """Fill an empty store."""
    await _make_one_of_each(url)
    if url.startswith("postgresql"):
        await _fill_schema(url, history)
    else:
        await asyncio.to_thread(_fill_file, Path(url.removeprefix("sqlite:///")), history)
    async with Redrive(url) as app:
        await app.operations.apply_gateway(_gateway(history.services), by="user:ann")
        await app.operations.recount()
        await app.operations.status()
    await settle_down(url)


def _gateway(services: int) -> GatewayDocument:
    """Return so many services with a rule each."""
    rule = {"event": "order.*", "condition": "payload.total >= 100", "path": "/orders"}
    return GatewayDocument(
        services={f"api-{n}": {"url": f"https://{n}.example.com"} for n in range(services)},
        rules={f"rule-{n}": {"service": f"api-{n}", **rule} for n in range(services)},
        sources={f"door-{n}": {"kind": "open", "event": "door.rang"} for n in range(services)},
    )


async def _make_one_of_each(url: str) -> None:
    app = Redrive(url)
    is_over = asyncio.Event()

    @app.handler("order.*", name=name_of(1), retry=Retry(max_attempts=1))
    async def take(event: Event[Any]) -> None:
        if event.type == "order.refused":
            raise Terminal("the certificate of 'service-1' has expired")

    @app.handler("order.paid", name="last")
    async def last(event: Event[Any]) -> None:  # noqa: ARG001 - that it came is enough
        is_over.set()

    async with app:
        async with app.worker():
            await app.publish("order.refused", _PAYLOAD, key="key-1", tenant="tenant-1")
            await app.publish("order.paid", _PAYLOAD, key="key-2", tenant="tenant-1")
            await is_over.wait()
        await app.operations.pause(name_of(1), by="user:ann", why="the provider asked us to")
        await app.operations.resume(name_of(1), by="user:ann", why="they are back")
        await app.operations.remove_destination("last", by="user:ann", why="not needed")
        await app.operations.start_replay(by="user:ann", why="the certificate was renewed")


# Numbers run from 1; the cause and the destination of a letter follow from its number.
_DESTINATION = """CASE WHEN n % 10 < 4 THEN 1 WHEN n % 10 < 7 THEN 3 + (n / 10) % 10
    ELSE 13 + (n / 10) % {spread} END"""
_GROUP = """CASE WHEN n % 10 < 4 THEN 'g1' WHEN n % 10 < 7
    THEN 'g2-' || ((n / 10) % 10) || '-' || ((n / 100) % 3)
    ELSE 'g3-' || ((n / 10) % {spread}) END"""
_TENANT = f"'tenant-' || (CASE WHEN n % 10 < 7 THEN n / 7 ELSE n / 10 END % {_TENANTS})"
_LANE = "CASE WHEN n % 100 = 99 THEN 'key-' || n END"
_COLUMNS = """position, destination, status, is_ready, is_behind, kind, priority, generation,
    tenant, lane, due, enqueued_at, token, attempts, settled_at, first_failed_at, last_failed_at,
    reason, group_id, fault, log, counted"""
_FINISHED = """
INSERT INTO redrive.deliveries ({columns})
SELECT 10 + n, 1 + (3 * n + {part}) % {destinations}, 2, true, false, 0, 0, 'default', {tenant},
       NULL, {at}, {at}, 1, 1, {at}, NULL, NULL, NULL, NULL, NULL, NULL, counted
FROM numbers CROSS JOIN redrive.deliveries d WHERE d.id = 1 AND n <= {letters}
"""
_STATEMENTS = (
    """
CREATE TEMPORARY TABLE numbers AS
WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < {numbers})
SELECT n FROM up
""",
    """
INSERT INTO redrive.destinations (id, name, document)
SELECT n, 'service-' || n, replace(document, 'service-1', 'service-' || n)
FROM numbers CROSS JOIN redrive.destinations d WHERE d.id = 1 AND n BETWEEN 3 AND {destinations}
""",
    """
INSERT INTO redrive.gates (destination, document)
SELECT id, '{{}}' FROM redrive.destinations WHERE id > 2
""",
    """
INSERT INTO redrive.events ({event_columns})
SELECT 10 + n, {uuid}, 'order.type-' || (n % 20), 'key-' || n, destinations,
       replace(replace(replace(document, {id}, {uuid_text}), '"key-1"', '"key-' || n || '"'),
               '"tenant-1"', '"' || {tenant} || '"'), 1{event_more}
FROM numbers CROSS JOIN redrive.events e WHERE e.position = 1 AND n <= {events}
""",
    """
INSERT INTO redrive.deliveries ({columns})
SELECT 10 + n, {destination}, 3, true, false, 0, 0, 'default', {tenant}, {lane},
       {at}, {at}, 1, 1, {at}, {at}, {at}, reason, {group},
       replace(replace(fault{text}, group_id, {group}), 'certificate', 'certificate ' || {group}
       ){json}, log, counted
FROM numbers CROSS JOIN redrive.deliveries d WHERE d.id = 1 AND n <= {letters}
""",
    *(_FINISHED.replace("{part}", str(part)) for part in range(3)),
    """
INSERT INTO redrive.deliveries ({columns})
SELECT 10 + {letters} + n, 3 + n % {busy}, 0, n % 2 = 1, false, 1 - n % 2, 0, 'default', {tenant},
       NULL, {due}, {now}, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, counted
FROM numbers CROSS JOIN redrive.deliveries d WHERE d.id = 1 AND n <= {pending}
""",
    """
INSERT INTO redrive.deliveries ({columns})
SELECT position, destination, 0, true, true, 0, 0, 'default', tenant, lane, {now}, {now}, 0, 0,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, counted
FROM redrive.deliveries WHERE status = 3 AND lane IS NOT NULL AND position % 500 = 109
""",
    """
INSERT INTO redrive.tenants (destination, tenant, served_at, round, processed, consecutive)
SELECT 3 + n % {busy}, {tenant}, {now}, n, n, 0 FROM numbers WHERE n <= {known_tenants}
ON CONFLICT DO NOTHING
""",
    """
INSERT INTO redrive.audit (at, by, why, action, count, deliveries, detail)
SELECT {now}, by, why, action, 1, deliveries, replace(detail, 'service-1', 'service-' || (n % 999))
FROM numbers CROSS JOIN redrive.audit a WHERE a.id = 1 AND n <= {acts}
""",
    "UPDATE redrive.replays SET state = 'cancelled'",
    """
INSERT INTO redrive.replays (state, selected, sent, delivered, failed, skipped, document)
SELECT 'done', 100, 100, 99, 1, 0, document
FROM numbers CROSS JOIN redrive.replays r WHERE r.id = 1 AND n <= {replays}
""",
)


def _statements(history: History, expressions: Mapping[str, str]) -> Iterator[str]:
    numbers = {
        "letters": history.letters,
        "events": history.letters + history.pending,
        "numbers": max(history.letters + history.pending, history.destinations, _ACTS),
        "pending": history.pending,
        "destinations": history.destinations,
        "spread": max(1, history.destinations // 10),
        "busy": min(99, history.destinations - 3),
        "acts": _ACTS,
        "known_tenants": 10 * _TENANTS,
        "replays": _REPLAYS,
    }
    parts = {
        "destination": _DESTINATION.format(**numbers),
        "group": _GROUP.format(**numbers),
        "tenant": _TENANT,
        "lane": _LANE,
        "columns": _COLUMNS,
    }
    known = numbers | parts | {name: one.format(**numbers) for name, one in expressions.items()}
    return (one.format(**known) for one in _STATEMENTS)


def _fill_file(path: Path, history: History) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -400000")
    now = micros(datetime.now(UTC))
    expressions = {
        "event_columns": "position, id, type, key, destinations, document, version",
        "event_more": "",
        "uuid": _UUID,
        "uuid_text": _UUID,
        "id": "e.id",
        "text": "",
        "json": "",
        "now": str(now),
        "at": f"{now} - ({{letters}} - n) * {_WEEK_SECONDS} * 1000000 / {{letters}}",
        "due": f"{now} + CASE WHEN n % 2 = 0 THEN 3600000000 ELSE -1000000 END",
    }
    connection.execute("BEGIN IMMEDIATE")
    for statement in _statements(history, expressions):
        connection.execute(statement.replace("redrive.", "redrive_"))
    names, generations = json.dumps(_served(history)), json.dumps(["default"])
    connection.executemany(
        "INSERT INTO redrive_workers (id, seen_at, destinations, generations) VALUES (?, ?, ?, ?)",
        [(worker, now, names, generations) for worker in _WORKERS],
    )
    connection.executemany(
        "INSERT INTO redrive_trends (tier, block, starts_at, body) VALUES (?, ?, ?, ?)",
        [(one.tier, one.block, micros(one.start), one.body) for one in _trends(history)],
    )
    connection.execute("COMMIT")
    connection.close()


async def _fill_schema(url: str, history: History) -> None:
    server, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(server)
    text = "lpad(to_hex(n), 8, '0') || '-0000-7000-8000-' || lpad(to_hex(n), 12, '0')"
    expressions = {
        "event_columns": "position, id, type, key, destinations, document, version, xid, "
        "routes_version, counted",
        "event_more": ", xid, routes_version, counted",
        "uuid": f"({text})::uuid",
        "uuid_text": text,
        "id": "e.id::text",
        "text": "::text",
        "json": "::jsonb",
        "now": "now()",
        "at": f"now() - ({{letters}} - n) * interval '{_WEEK_SECONDS} s' / {{letters}}",
        "due": "now() + CASE WHEN n % 2 = 0 THEN 1 ELSE -0.0003 END * interval '1 h'",
    }
    await connection.execute("SET synchronous_commit = off")
    async with connection.transaction():
        for statement in _statements(history, expressions):
            await connection.execute(statement.replace("redrive.", f"{schema}."))
        # Numbers go on behind those that were written out.
        await connection.execute(
            f"SELECT setval(pg_get_serial_sequence('{schema}.destinations', 'id'), $1)",
            history.destinations,
        )
        now = await connection.fetchval("SELECT now()")
        serving = json.dumps({"destinations": _served(history), "generations": ["default"]})
        await connection.executemany(
            f"INSERT INTO {schema}.workers (id, seen_at, serving) VALUES ($1, $2, $3)",
            [(worker, now, serving) for worker in _WORKERS],
        )
        await connection.executemany(
            f"INSERT INTO {schema}.trends (tier, block, starts_at, body) VALUES ($1, $2, $3, $4)",
            [(one.tier, one.block, one.start, one.body) for one in _trends(history)],
        )
    await connection.close()


def _served(history: History) -> list[str]:
    return [name_of(number) for number in range(1, history.destinations + 1) if number != 2]


def _trends(history: History) -> list[Row]:
    """Return a week of trends of all together, and of what shares rows with the charted ones."""
    charted = {block_of(name_of(one)) for one in range(1, _CHARTED + 1)}
    names = [one for one in _served(history) if block_of(one) in charted]
    now = datetime.now(UTC)
    rows: list[Row] = []
    newest = timedelta(0)
    for tier, (span, _, kept) in enumerate(TIERS[1:], start=1):
        ages = range(int(newest.total_seconds()), kept, span)
        points = [
            (name, now - timedelta(seconds=age), _MEASURE)
            for name in (EVERYWHERE, *names)
            for age in ages
        ]
        rows += packed(tier, points)
        newest = timedelta(seconds=kept)
    return rows
