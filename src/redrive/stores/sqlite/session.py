"""A transaction of the SQLite store, as the statements of both databases use it."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import apsw
import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import Cycle, Delivery, DeliveryId, Lease
from redrive.model.destination import Destination
from redrive.model.event import Event, EventId
from redrive.model.outcome import Fault
from redrive.model.settlement import FailureReason
from redrive.store import Appended, Entry
from redrive.stores.codec import json_text, micros
from redrive.stores.sealed import Codec
from redrive.stores.sql.audit import record
from redrive.stores.sql.inspection import find_deliveries
from redrive.stores.sql.leases import forget_exchanges
from redrive.stores.sql.letters import COLUMNS, insert_in_lanes
from redrive.stores.sql.removal import grow
from redrive.stores.sql.session import MOST_PROMOTED, Either, Lane, Session
from redrive.stores.sqlite import views
from redrive.stores.sqlite.append import add_events, append
from redrive.stores.sqlite.counting import count_delivered, fold
from redrive.stores.sqlite.dialect import AS_THEY_ARE, bound, rewritten
from redrive.stores.sqlite.lanes import free_lanes, line_up, rejoin

__all__ = ["SqliteSession", "finish"]

T = TypeVar("T")

_TEXTS = (
    "d.fault ->> 'message'",
    "d.fault ->> 'error_class'",
    "iif(json_valid(e.document), e.document -> 'payload', '')",
    "d.payload",
)
_DEAD = """
WHERE d.id = ANY ($1::bigint[]) AND d.status = 3 AND d.resolution IS NULL ORDER BY d.id
"""
_POSITIONS = "SELECT id, position FROM redrive.events WHERE id = ANY ($1::text[])"
_REPLAY = """
UPDATE redrive_deliveries
SET status = 0, is_ready = 1, kind = 2, due = ?1, attempts = 0, snoozes = 0, crashes = 0,
    last_crash_at = NULL, settled_at = NULL, first_failed_at = NULL, last_failed_at = NULL,
    reason = NULL, group_id = NULL, fault = NULL, log = NULL, cycles = ?2,
    generation = ifnull(?3, generation), replay = ?5, auto_replays = auto_replays + ?6,
    deadline = CASE WHEN deadline > ?1 THEN deadline END
WHERE id = ?4
"""
# The fence of deliveries that are done, as `sql/leases.py` has it for all others.
_CURRENT = """
SELECT json_group_array(json_array(d.id, d.token)),
       json_group_array(json_array(d.destination, d.lane)) FILTER (WHERE d.lane IS NOT NULL)
FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value ->> 0
WHERE d.token = value ->> 1 AND d.status = 1 AND d.lease_until > ?
"""
_DELIVER = """
UPDATE redrive_deliveries
SET status = 2, settled_at = ?, worker = NULL, lease_until = NULL, is_alone = 0, lane = NULL,
    counted = counted IS NOT TRUE
WHERE id IN (SELECT value FROM json_each(?))
"""
_INSERT = f"""
INSERT INTO redrive_deliveries ({", ".join(COLUMNS)}, is_behind)
VALUES ({"?, " * len(COLUMNS)}0)
RETURNING id, position, destination, rule
"""
_EARLIEST_WAITING = """
SELECT due FROM redrive_deliveries WHERE status = 0 AND is_ready = 0 ORDER BY due LIMIT 1
"""
_PROMOTE = """
UPDATE redrive_deliveries SET is_ready = 1 WHERE id IN (
    SELECT id FROM redrive_deliveries WHERE status = 0 AND is_ready = 0 AND due <= ?
    ORDER BY due LIMIT ?
)
"""

_leases = msgspec.json.Decoder(set[Lease])
_lanes = msgspec.json.Decoder(list[Lane])


class SqliteSession(Session):
    """A transaction on the thread that owns the connection: nothing in it ever waits."""

    def __init__(self, connection: apsw.Connection, now: datetime, codec: Codec) -> None:
        self.connection = connection
        self.now = now
        self.codec = codec

    log_with_attempt = """CASE WHEN given.attempt IS NULL THEN d.log
    WHEN d.log IS NULL THEN json_array(json(given.attempt))
    WHEN json_array_length(d.log) < $2 THEN json_insert(d.log, '$[#]', json(given.attempt))
    ELSE json_insert(json_remove(d.log, '$[0]'), '$[#]', json(given.attempt)) END"""

    async def fetch(self, statement: str | Either, *values: object) -> list[Any]:
        bindings = [bound(one) for one in values]
        return self.connection.execute(rewritten(statement), bindings).fetchall()

    def json(self, value: object) -> str:
        return json_text(self.codec.closed(value))

    def records(self, rows: Sequence[Mapping[str, object]]) -> str:
        # What is left out is read as NULL; most of the rest is a number or a text.
        closed = self.codec.closed
        return json_text(
            [
                {
                    name: one if type(one) in AS_THEY_ARE else bound(closed(one))
                    for name, one in row.items()
                    if one is not None
                }
                for row in rows
            ]
        )

    def event_id(self, text: str) -> str | None:
        return text

    def pattern(self, pattern: str) -> str:
        return pattern.replace("[", "[[]").replace("?", "[?]")

    def search(self, text: str, first: int) -> tuple[str, list[object]]:
        return f"({' OR '.join(f'instr(casefold({one}), ${first})' for one in _TEXTS)})", [
            text.casefold()
        ]

    async def free_lanes(self, lanes: Sequence[Lane]) -> None:
        await free_lanes(self, lanes)

    async def make_ready(self) -> bool:
        moment = micros(self.now)
        earliest = self.connection.execute(_EARLIEST_WAITING).get
        if earliest is None or earliest > moment:
            return False
        self.connection.execute(_PROMOTE, (moment, MOST_PROMOTED))
        return self.connection.changes() == MOST_PROMOTED

    async def hold(self, name: str) -> None:
        """Do nothing: whoever writes is alone."""

    async def missing_tables(self, names: Sequence[str]) -> list[str]:
        return views.missing_tables(self.connection, names)

    async def point_views(self, tables: Sequence[str], version: int) -> None:
        views.point_views(self.connection, tables, version)

    async def drop_tables(self, names: Sequence[str]) -> None:
        views.drop_tables(self.connection, names)

    async def line_up(self, ids: Sequence[int]) -> bool:
        return await line_up(self, ids)

    async def deliver(self, leases: Sequence[Lease]) -> tuple[set[Lease], bool]:
        found, in_lanes = self.connection.execute(
            _CURRENT, (json_text(leases), micros(self.now))
        ).get
        current = _leases.decode(found)
        lanes = list(dict.fromkeys(_lanes.decode(in_lanes)))
        ids = [lease.delivery_id for lease in current]
        if self.connection.execute("SELECT 1 FROM redrive_exchanges LIMIT 1").get is not None:
            await forget_exchanges(self, ids)
        count_delivered(self.connection, ids)
        self.connection.execute(_DELIVER, (micros(self.now), json_text(ids)))
        if lanes:
            await free_lanes(self, lanes)
        return current, bool(lanes)

    async def change_routes(
        self,
        changed: Sequence[Destination],  # noqa: ARG002 - nobody is publishing meanwhile
        *,
        begins_order: bool = False,  # noqa: ARG002
    ) -> None:
        await grow(self, "routes_version", 1)

    async def insert_deliveries(
        self, rows: Sequence[Mapping[str, object]]
    ) -> Sequence[tuple[int, int, int, int | None]]:
        if any(row["lane"] is not None for row in rows):
            return await insert_in_lanes(self, rows)
        # A third of what it takes to read thirty columns out of the JSON of each row.
        values = ([self._column(row.get(name)) for name in COLUMNS] for row in rows)
        found: list[Any] = self.connection.executemany(_INSERT, values).fetchall()
        return found

    def _column(self, value: object) -> object:
        if type(value) in AS_THEY_ARE:
            return value
        kept = bound(self.codec.closed(value))
        return kept if isinstance(kept, int | str) else json_text(kept)

    async def keeps_history(self, history: int) -> bool:  # noqa: ARG002 - as with any
        return True

    async def keep_history(self, history: int) -> None:
        """Nothing: there is no statement for it."""

    async def replay(
        self,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        generation: str | None,
        history: int,
        of_replay: int | None = None,
        is_automatic: bool = False,
    ) -> list[DeliveryId]:
        dead = await find_deliveries(self, _DEAD, list(ids))
        self.connection.executemany(
            _REPLAY,
            (
                (
                    micros(self.now),
                    self.json((*one.cycles, _cycle(one, actor.by, now=self.now))[-history:]),
                    generation,
                    one.id,
                    of_replay,
                    is_automatic,
                )
                for one in dead
            ),
        )
        changed = [one.id for one in dead]
        await forget_exchanges(self, changed)
        await rejoin(self, changed)
        if changed and of_replay is None:
            await record(self, "replay", changed, actor, detail=generation or "")
        return changed

    async def fold_counts(self) -> None:
        fold(self.connection)

    async def count_outcomes(self, replay: int) -> None:
        """Nothing: a trigger has counted them."""

    async def append(self, entries: Sequence[Entry], *, routes_version: int) -> Appended | None:
        return append(
            self.connection,
            entries,
            routes_version=routes_version,
            all_or_nothing=False,
            now=self.now,
            codec=self.codec,
        )

    async def add_events(
        self, events: Mapping[EventId, Event[msgspec.Raw]]
    ) -> Mapping[EventId, int]:
        add_events(self.connection, events.values(), self.codec)
        return dict(await self.fetch(_POSITIONS, list(events)))


def finish(job: Awaitable[T]) -> T:
    """Run a job of a `SqliteSession` to its end, which it reaches without ever waiting."""
    running = job.__await__()
    try:
        next(running)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("a job of the SQLite store waits for something else than its statements")


def _cycle(delivery: Delivery, by: str, *, now: datetime) -> Cycle:
    return Cycle(
        attempts=delivery.attempts,
        reason=delivery.reason or FailureReason.EXHAUSTED,
        fault=delivery.fault or Fault(error_class="", message="", rule=""),
        failed_at=delivery.settled_at or now,
        generation=delivery.generation,
        replayed_at=now,
        replayed_by=by,
        first_failed_at=delivery.first_failed_at,
        log=delivery.log,
    )
