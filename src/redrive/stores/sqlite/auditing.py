"""The audit log in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw
import msgspec

from redrive.model.audit import Actor, AuditEntry
from redrive.model.delivery import DeliveryId
from redrive.stores.codec import from_micros, json_text, micros
from redrive.stores.sqlite.connection import rows

__all__ = ["HAS_PAST_ACTS", "count_acts", "forget_acts", "read_audit", "record"]

_ids = msgspec.json.Decoder(tuple[int, ...])
_OVER = "state NOT IN ('running', 'paused')"
_CHANGED = "unixepoch(document ->> 'changed_at') * 1000000"
# Both are in the order of time, or next to it: a look at the first tells.
HAS_PAST_ACTS = f"""(
    ifnull((SELECT at FROM redrive_audit ORDER BY id LIMIT 1) <= {{0}}, 0)
    OR ifnull((
        SELECT {_CHANGED} FROM redrive_replays WHERE {_OVER} ORDER BY id LIMIT 1
    ) <= {{0}}, 0)
    OR EXISTS (SELECT 1 FROM redrive_group_aliases WHERE at <= {{0}})
)"""
"""Whether there is anything that people did, or that was called otherwise, before an instant."""

_PAST_REPLAYS = f"""
SELECT id FROM redrive_replays WHERE {_OVER} AND {_CHANGED} <= ?1 ORDER BY id LIMIT ?2
"""


def forget_acts(connection: apsw.Connection, *, by: int, limit: int) -> tuple[int, int]:
    """Remove entries up to an instant, and replays that were over; returns how many of each."""
    connection.execute(
        "DELETE FROM redrive_audit WHERE at <= ?1 "
        "AND id IN (SELECT id FROM redrive_audit ORDER BY id LIMIT ?2)",
        (by, limit),
    )
    audit = connection.changes()
    replays = json_text([number for (number,) in rows(connection, _PAST_REPLAYS, (by, limit))])
    of_replays = "IN (SELECT value FROM json_each(?))"
    connection.execute(f"DELETE FROM redrive_replay_items WHERE replay {of_replays}", (replays,))
    connection.execute(f"DELETE FROM redrive_replays WHERE id {of_replays}", (replays,))
    gone = connection.changes()
    connection.execute("DELETE FROM redrive_group_aliases WHERE at <= ?", (by,))
    return audit, gone


def count_acts(connection: apsw.Connection, *, by: int) -> tuple[int, int]:
    """Count what `forget_acts` would remove."""
    audit = connection.execute("SELECT count(*) FROM redrive_audit WHERE at <= ?", (by,)).get
    return audit, len(rows(connection, _PAST_REPLAYS, (by, -1)))


def record(
    connection: apsw.Connection,
    action: str,
    ids: Sequence[DeliveryId],
    actor: Actor,
    *,
    now: datetime,
    count: int | None = None,
    detail: str = "",
) -> None:
    """Write down what a person has done; `count` is that of the ids unless given."""
    connection.execute(
        "INSERT INTO redrive_audit (at, by, why, action, count, deliveries, detail) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            micros(now),
            actor.by,
            actor.why,
            action,
            len(ids) if count is None else count,
            json_text(ids),
            detail,
        ),
    )


def read_audit(
    connection: apsw.Connection, *, before: int | None, limit: int
) -> Sequence[AuditEntry]:
    """Carry out `Audit.audit`."""
    return tuple(
        AuditEntry(
            id=number,
            at=from_micros(at),
            by=by,
            why=why,
            action=action,
            count=count,
            deliveries=_ids.decode(deliveries),
            detail=detail,
        )
        for number, at, by, why, action, count, deliveries, detail in rows(
            connection,
            "SELECT id, at, by, why, action, count, deliveries, detail FROM redrive_audit "
            "WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2",
            (before, limit),
        )
    )
