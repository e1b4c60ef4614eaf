"""The audit log in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.audit import Actor, AuditEntry
from redrive.model.delivery import DeliveryId
from redrive.stores.postgres.connection import Link

__all__ = ["count_acts", "forget_acts", "has_past_acts", "read_audit", "record"]

_RECORD = """
INSERT INTO redrive.audit (at, by, why, action, count, deliveries, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_OVER = "state NOT IN ('running', 'paused')"
_CHANGED = "(document::json ->> 'changed_at')::timestamptz"
_FORGET_AUDIT = """
DELETE FROM redrive.audit WHERE at <= $1 AND id = ANY (ARRAY(
    SELECT id FROM redrive.audit ORDER BY id LIMIT $2
)) RETURNING id
"""
_PAST_REPLAYS = f"""
SELECT id FROM redrive.replays WHERE {_OVER} AND {_CHANGED} <= $1 ORDER BY id LIMIT $2
FOR UPDATE SKIP LOCKED
"""
_FORGET_REPLAYS = """
WITH items AS (DELETE FROM redrive.replay_items WHERE replay = ANY ($1::bigint[])),
outcomes AS (DELETE FROM redrive.replay_outcomes WHERE replay = ANY ($1::bigint[]))
DELETE FROM redrive.replays WHERE id = ANY ($1::bigint[])
"""
# Whoever published by older routes than these has ended, and what they published is complete.
_FORGET_CHANGES = """
DELETE FROM redrive.route_changes WHERE version <= (
    SELECT max(version) FROM redrive.route_changes
) - $1 AND NOT EXISTS (SELECT FROM redrive.route_changes WHERE NOT is_done)
AND NOT EXISTS (SELECT FROM redrive.late_events)
"""
_COUNT_ACTS = f"""
SELECT (SELECT count(*) FROM redrive.audit WHERE at <= $1),
       (SELECT count(*) FROM redrive.replays WHERE {_OVER} AND {_CHANGED} <= $1)
"""
_CHANGES_KEPT = 1_000
"""How many changes of routes are kept; a deployment makes a few."""

_READ = """
SELECT id, at, by, why, action, count, deliveries, detail FROM redrive.audit
WHERE $1::bigint IS NULL OR id < $1 ORDER BY id DESC LIMIT $2
"""


async def record(
    link: Link,
    action: str,
    ids: Sequence[DeliveryId],
    actor: Actor,
    *,
    now: datetime,
    count: int | None = None,
    detail: str = "",
) -> None:
    """Write down what a person has done; `count` is that of the ids unless given."""
    await link.fetch(
        _RECORD,
        now,
        actor.by,
        actor.why,
        action,
        len(ids) if count is None else count,
        list(ids),
        detail,
    )


async def read_audit(link: Link, *, before: int | None, limit: int) -> Sequence[AuditEntry]:
    """Carry out `Audit.audit`."""
    return tuple(
        AuditEntry(
            id=number,
            at=at,
            by=by,
            why=why,
            action=action,
            count=count,
            deliveries=tuple(deliveries),
            detail=detail,
        )
        for number, at, by, why, action, count, deliveries, detail in await link.fetch(
            _READ, before, limit
        )
    )


def has_past_acts(span: str) -> str:
    """Return whether there is anything that people did, or was called otherwise, so long ago.

    Entries and replays are in the order of time, or next to it: a look at the first tells.
    """
    return f"""(
           coalesce((
               SELECT at <= present.now - {span}::interval FROM redrive.audit ORDER BY id LIMIT 1
           ), false)
           OR coalesce((
               SELECT {_CHANGED} <= present.now - {span}::interval FROM redrive.replays
               WHERE {_OVER} ORDER BY id LIMIT 1
           ), false)
           OR EXISTS (
               SELECT FROM redrive.group_aliases WHERE at <= present.now - {span}::interval
           )
       )"""


async def forget_acts(link: Link, *, by: datetime, limit: int) -> tuple[int, int]:
    """Remove entries up to an instant, and replays that were over; returns how many of each."""
    audit = await link.fetch(_FORGET_AUDIT, by, limit)
    replays = [row[0] for row in await link.fetch(_PAST_REPLAYS, by, limit)]
    if replays:
        await link.fetch(_FORGET_REPLAYS, replays)
    await link.fetch("DELETE FROM redrive.group_aliases WHERE at <= $1", by)
    await link.fetch(_FORGET_CHANGES, _CHANGES_KEPT)
    return len(audit), len(replays)


async def count_acts(link: Link, *, by: datetime) -> tuple[int, int]:
    """Count what `forget_acts` would remove."""
    [(audit, replays)] = await link.fetch(_COUNT_ACTS, by)
    return audit, replays
