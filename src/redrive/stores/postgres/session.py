"""A transaction of the PostgreSQL store, as the statements of both databases use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Lease
from redrive.model.destination import Destination
from redrive.model.event import Event, EventId
from redrive.store import Appended, Entry
from redrive.stores.codec import json_text
from redrive.stores.postgres import lanes as lanes_here
from redrive.stores.postgres import views
from redrive.stores.postgres.append import append
from redrive.stores.postgres.codec import is_uuid, jsonb, numbers
from redrive.stores.postgres.counting import counting
from redrive.stores.postgres.pool import Link
from redrive.stores.postgres.restored_events import add_events
from redrive.stores.postgres.searching import contains
from redrive.stores.postgres.single_statement.settle import DELIVER
from redrive.stores.sql.counts import BEHIND, RETRYING, STATE, WAITING
from redrive.stores.sql.letters import insert_in_lanes
from redrive.stores.sql.session import MOST_PROMOTED, Either, Lane, Session

__all__ = ["PostgresSession"]

_TEXTS = ("d.fault ->> 'message'", "d.fault ->> 'error_class'", "d.payload")
_PARTS = {"redrive.payload_of(e.document)::text": "e.document"}
# It takes hold of the lanes, too, and returns one row: what was refused, the lanes that may be
# freed now, and those that somebody is publishing to, as texts that are handed on as they are.
_DELIVER = DELIVER.format(
    which="",
    then=""", held AS MATERIALIZED (
    SELECT key FROM redrive.keys WHERE key IN (SELECT lane FROM done)
    FOR NO KEY UPDATE SKIP LOCKED
), lanes AS MATERIALIZED (
    SELECT DISTINCT destination, lane, lane IN (SELECT key FROM held) AS is_held
    FROM done WHERE lane IS NOT NULL
)
SELECT (SELECT array_agg(id) FROM given WHERE id NOT IN (SELECT id FROM done)),
       array_agg(destination) FILTER (WHERE is_held)::text,
       array_agg(lane) FILTER (WHERE is_held)::text,
       array_agg(destination) FILTER (WHERE NOT is_held)::text,
       array_agg(lane) FILTER (WHERE NOT is_held)::text
FROM lanes""",
)
# Whoever settles only adds an outcome, and waits neither for a replay nor for others who settle.
_COUNT_OUTCOMES = """
WITH counted AS (
    DELETE FROM redrive.replay_outcomes WHERE replay = $1 RETURNING is_delivered
)
UPDATE redrive.replays SET
    delivered = delivered + (SELECT count(*) FROM counted WHERE is_delivered),
    failed = failed + (SELECT count(*) FROM counted WHERE NOT is_delivered)
WHERE id = $1 AND EXISTS (SELECT FROM counted)
"""
# The number is read past all snapshots: who stores an event afterwards knows of this change.
_ANNOUNCE = """
SELECT setval('redrive.route_versions', greatest(
    (SELECT last_value FROM redrive.route_versions WHERE is_called),
    (SELECT value FROM redrive.counters WHERE name = 'routes_version')
) + 1)
"""
# A statement after the number was set: who has not read it is under way here, or has ended.
_NOTE_CHANGE = """
INSERT INTO redrive.route_changes (version, documents, begins_order, read_xid)
VALUES ($1, $2::text[], $3, redrive.log_end())
"""
_HOLD_NAME = "SELECT pg_advisory_xact_lock(hashtext('redrive.checkpoints'), hashtext($1))"
# Whoever stores or settles only adds changes, and waits for nobody.
_FOLD_COUNTS = """
WITH gone AS (
    DELETE FROM redrive.count_changes WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM redrive.count_changes LIMIT $1
    ))
    RETURNING destination, state, detail, tenant, number
)
INSERT INTO redrive.counts AS known (destination, state, detail, tenant, number)
SELECT destination, state, detail, tenant, sum(number) FROM gone GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4
ON CONFLICT (destination, state, detail, tenant) DO UPDATE
SET number = known.number + excluded.number
"""
_FOLDED_AT_ONCE = 100_000
# What was stored by a statement that does not count.
_COUNT_DELIVERIES = """
WITH found AS (
    UPDATE redrive.deliveries d SET counted = false WHERE id IN (
        SELECT id FROM redrive.deliveries WHERE counted IS NULL
        ORDER BY id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
    )
    RETURNING destination, redrive.count_state(status, is_ready, is_behind, kind, resolution),
              redrive.count_detail(status, generation, reason, resolution),
              redrive.count_tenant(status, tenant, resolution)
)
INSERT INTO redrive.count_changes (destination, state, detail, tenant, number)
SELECT *, count(*) FROM found GROUP BY 1, 2, 3, 4
"""
_COUNT_EVENTS = """
WITH found AS (
    UPDATE redrive.events e SET counted = false WHERE position IN (
        SELECT position FROM redrive.events WHERE counted IS NULL
        ORDER BY position LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
    )
    RETURNING CASE WHEN destinations = '{}' THEN 41 ELSE 40 END AS state
)
INSERT INTO redrive.count_changes (destination, state, detail, tenant, number)
SELECT 0, state, '', '', count(*) FROM found GROUP BY state
"""
_COUNTED_AT_ONCE = 10_000

_PROMOTE = f"""
WITH promoted AS (
    UPDATE redrive.deliveries SET is_ready = true, counted = NOT counted WHERE id IN (
        SELECT id FROM redrive.deliveries WHERE status = 0 AND NOT is_ready AND due <= $1
        ORDER BY due LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
    )
    RETURNING destination, generation, counted, {STATE} + CASE
        WHEN kind = 1 THEN {WAITING + RETRYING} ELSE {WAITING}
    END AS state
), counted AS (
    {counting("promoted", before="state", after=f"state & {BEHIND}")}
)
SELECT count(*) FROM promoted
"""


class PostgresSession(Session, Link):
    """A transaction on a connection; what the statements call `redrive` is any schema."""

    present: datetime | None = None
    """The same as `now`, if that was read: deliveries read the server's clock themselves."""

    log_with_attempt = """CASE WHEN given.attempt IS NULL THEN d.log
    WHEN jsonb_array_length(coalesce(d.log, '[]')) < $2
    THEN coalesce(d.log, '[]') || given.attempt::jsonb
    ELSE (d.log - 0) || given.attempt::jsonb END"""

    async def fetch(self, statement: str | Either, *values: object) -> list[Any]:
        text = statement.postgres if isinstance(statement, Either) else statement
        return await Link.fetch(self, text, *values)

    def json(self, value: object) -> str:
        return jsonb(self.codec.closed(value))

    def records(self, rows: Sequence[Mapping[str, object]]) -> str:
        closed = self.codec.closed
        return jsonb([{name: closed(one) for name, one in row.items()} for row in rows])

    def event_id(self, text: str) -> str | None:
        return text if is_uuid(text) else None

    def pattern(self, pattern: str) -> str:
        escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return escaped.replace("*", "%")

    def search(self, text: str, first: int) -> tuple[str, list[object]]:
        return contains(text, _TEXTS, first, parts=_PARTS)

    async def free_lanes(self, lanes: Sequence[Lane]) -> None:
        await lanes_here.free_lanes(self, lanes)

    async def make_ready(self) -> bool:
        await lanes_here.free_late_lanes(self)
        return await self.promote()

    async def promote(self) -> bool:
        """Make ready what has come due; tells if there may be more of it."""
        promoted = await self.value(_PROMOTE, self.now, MOST_PROMOTED)
        return bool(promoted == MOST_PROMOTED)

    async def hold(self, name: str) -> None:
        await self.fetch(_HOLD_NAME, name)

    async def missing_tables(self, names: Sequence[str]) -> list[str]:
        return await views.missing_tables(self, names)

    async def point_views(self, tables: Sequence[str], version: int) -> None:
        await views.point_views(self, tables, version)

    async def drop_tables(self, names: Sequence[str]) -> None:
        await views.drop_tables(self, names)

    async def line_up(self, ids: Sequence[int]) -> bool:
        return await lanes_here.line_up(self, ids)

    async def deliver(self, leases: Sequence[Lease]) -> tuple[set[Lease], bool]:
        values = numbers(one.delivery_id for one in leases), numbers(one.token for one in leases)
        ((refused, *lanes),) = await self.fetch(_DELIVER, self.present, *values)
        frees = await lanes_here.free_held(self, *lanes)
        gone = set(refused or ())
        return {one for one in leases if one.delivery_id not in gone}, frees

    async def change_routes(
        self, changed: Sequence[Destination], *, begins_order: bool = False
    ) -> None:
        version = await self.value(_ANNOUNCE)
        await self.fetch(
            "UPDATE redrive.counters SET value = $1 WHERE name = 'routes_version'", version
        )
        if changed:
            documents = [json_text(one) for one in changed]
            await self.fetch(_NOTE_CHANGE, version, documents, begins_order)

    async def insert_deliveries(
        self, rows: Sequence[Mapping[str, object]]
    ) -> Sequence[tuple[int, int, int, int | None]]:
        return await insert_in_lanes(self, rows)

    async def keeps_history(self, history: int) -> bool:
        kept = await self.fetch("SELECT value FROM redrive.settings WHERE name = 'history'")
        return all(value == history for (value,) in kept)

    async def keep_history(self, history: int) -> None:
        await self.fetch(
            "UPDATE redrive.settings SET value = $1 WHERE name = 'history' AND value <> $1", history
        )

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
        found = await self.fetch(
            "SELECT redrive.replay_all($1::bigint[], $2, $3, $4, $5, $6, $7, $8)",
            list(ids),
            generation,
            actor.by,
            actor.why,
            history,
            self.now,
            of_replay,
            is_automatic,
        )
        return [DeliveryId(number) for (number,) in found]

    async def fold_counts(self) -> None:
        await self.fetch(_COUNT_DELIVERIES, _COUNTED_AT_ONCE)
        await self.fetch(_COUNT_EVENTS, _COUNTED_AT_ONCE)
        await self.fetch(_FOLD_COUNTS, _FOLDED_AT_ONCE)

    async def count_outcomes(self, replay: int) -> None:
        await self.fetch(_COUNT_OUTCOMES, replay)

    async def append(self, entries: Sequence[Entry], *, routes_version: int) -> Appended | None:
        return await append(
            self, entries, routes_version=routes_version, all_or_nothing=False, now=self.now
        )

    async def add_events(
        self, events: Mapping[EventId, Event[msgspec.Raw]]
    ) -> Mapping[EventId, int]:
        return await add_events(self, events)
