"""Fills a store with something in every state, for `fixtures`: see `test_upgrades`.

Before a migration is added, the code as it was keeps a store of its own schema version:

    python -m tests.stores.fill sqlite:///old.db tests/stores/fixtures/sqlite-10

It writes down what is in the store, and the store itself: of SQLite as statements, of PostgreSQL as
rows. In the end a handler ends the process, so that one delivery is in flight.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import apsw.shell
import asyncpg

from redrive import Event, Redrive, Retry, Terminal
from redrive.app.config import parse_store
from redrive.clock import SystemClock
from redrive.model.delivery import Status
from redrive.store import Query
from redrive.stores.postgres import read_address

DELAYED_UNTIL = datetime(2099, 1, 1, tzinfo=UTC)
_PATIENCE_MILLISECONDS = 60_000


class Filling:
    """A shop whose handlers fail when the payload says so, and the last of which never returns."""

    def __init__(self, url: str, target: str) -> None:
        self.url = url
        self.target = target
        self.made: dict[str, Any] = {}
        self.app = Redrive(url)
        once = Retry(max_attempts=1)
        later = Retry(max_attempts=5, base="5m", jitter="none")
        self.app.handler("order.*", name="billing", retry=once)(self.take)
        self.app.handler("letter.*", name="mail", order="park", retry=once)(self.take)
        self.app.handler("parcel.*", name="parcels", retry=later)(self.refuse)
        self.app.handler("note.*", name="notes")(self.take)

    async def take(self, event: Event[Any]) -> None:
        if event.payload.get("fails"):
            raise Terminal("no such customer")

    async def refuse(self, event: Event[Any]) -> None:
        raise ConnectionError("no route to host")

    async def end(self, event: Event[Any]) -> None:
        await self.write()
        os._exit(0)

    async def put(self, name: str, event_type: str, payload: object, **attributes: Any) -> None:  # noqa: ANN401 - of an event
        receipt = await self.app.publish(event_type, payload, **attributes)
        self.made[name] = {"event": receipt.event_id}

    async def fill(self) -> None:
        """Bring something into every state."""
        operations = self.app.operations
        acme = {"tenant": "acme"}
        first = {"key": "order-1", "idempotency_key": "once"}
        await self.put("delivered", "order.paid", {"order": 1}, **first, **acme)
        await self.put("failed_twice", "order.paid", {"fails": True}, key="order-2", **acme)
        await self.put("failed", "order.paid", {"fails": True}, tenant="bolt")
        await self.put("resolved", "order.paid", {"fails": True})
        await self.put("head", "letter.sent", {"fails": True}, key="ann")
        await self.put("behind", "letter.sent", {}, key="ann")
        await self.put("retrying", "parcel.sent", {}, headers={"lang": "de"})
        await self.app.drain()
        await self.look()
        twice, failed, resolved = (
            self.made[name]["delivery"] for name in ("failed_twice", "failed", "resolved")
        )
        await operations.replay([twice], by="ann", why="billing is back")
        await self.app.drain()
        await operations.resolve([resolved], by="bob", why="refunded by hand")
        await operations.pause("billing", by="ann", why="they migrate")
        replay = await operations.start_replay([failed], by="ann")
        await operations.pause_replay(replay.id, by="ann", why="to wait for the migration")
        await operations.edit(twice, {"corrected": True}, by="ann", why="a slip")
        await self.put("pending", "note.taken", {})
        await self.put("delayed", "note.taken", {}, due=DELAYED_UNTIL)
        await self.put("unrouted", "nobody.cares", {})
        await self.look()
        self.made |= {"replay": replay.id, "made_at": SystemClock().now().isoformat()}

    async def look(self) -> None:
        """Write down how each delivery stands."""
        for status in Status:
            query = Query(status=status, with_resolved=True)
            for one in (await self.app.operations.deliveries(query, limit=100)).deliveries:
                for known in self.made.values():
                    if isinstance(known, dict) and known["event"] == one.event_id:
                        known.update(
                            delivery=one.id, destination=one.destination, status=str(status)
                        )

    async def write(self) -> None:
        """Write the note, and the store itself."""
        await self.look()
        await asyncio.to_thread(_write, f"{self.target}.json", self.made)
        path = parse_store(self.url).path
        if path is None:
            await asyncio.to_thread(_write, f"{self.target}.rows.json", await _rows(self.url))
        else:
            await asyncio.to_thread(_dump, path, f"{self.target}.sql")


async def main(url: str, target: str) -> None:
    filling = Filling(url, target)
    async with filling.app:
        await filling.fill()
    last = Redrive(url)
    last.handler("crash.*", name="fragile")(filling.end)
    filling.app = last
    async with last:
        await filling.put("crashed", "crash.now", {})
        await last.drain()
    sys.exit("The store was not written down: the last handler should have ended the process.")


def _write(path: str, value: Mapping[str, Any]) -> None:
    _save(path, f"{json.dumps(value, indent=1)}\n")


def _dump(path: Path, target: str) -> None:
    said = io.StringIO()
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(_PATIENCE_MILLISECONDS)  # a dump waits for whoever writes
    shell = apsw.shell.Shell(stdout=said, db=connection)
    shell.process_command(".dump")  # type: ignore[no-untyped-call]  # it has no types
    lines = (line for line in said.getvalue().splitlines() if not line.startswith("-- "))
    _save(target, "\n".join((*lines, "")))


def _save(path: str, text: str) -> None:
    here = str(Path(__file__).parents[2])  # stacks name files of the machine at hand
    Path(path).write_text(text.replace(here, "/srv/shop"), "utf-8")


async def _rows(url: str) -> dict[str, Any]:
    address = read_address(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        # In one view: a worker goes on meanwhile.
        async with connection.transaction(isolation="repeatable_read"):
            names = await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1", address.schema
            )
            tables = {
                name: json.loads(rows)
                for (name,) in names
                if (rows := await connection.fetchval(_all_of(address.schema, name))) is not None
            }
            numbers = await connection.fetch(
                "SELECT sequencename, coalesce(last_value, start_value), last_value IS NOT NULL "
                "FROM pg_sequences WHERE schemaname = $1 ORDER BY 1",
                address.schema,
            )
    finally:
        await connection.close()
    return {"tables": tables, "sequences": {name: rest for name, *rest in numbers}}


def _all_of(schema: str, table: str) -> str:
    return f"SELECT json_agg(t)::text FROM {schema}.{table} t"


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
