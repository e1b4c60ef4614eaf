"""Deliveries that go, and what that means for their events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.stores.sql.session import Session

__all__ = ["grow", "leave_idle", "remove"]

_DELETE = "DELETE FROM redrive.deliveries WHERE id = ANY ($1::bigint[]) RETURNING position"
# In the order of positions, so that two who remove deliveries of the same events take turns.
_LEAVE_IDLE = """
INSERT INTO redrive.idle AS known (position, since)
SELECT position, max(since)
FROM json_to_recordset($1::json) AS given (position bigint, since timestamptz) WHERE true
GROUP BY position ORDER BY position
ON CONFLICT (position) DO UPDATE SET since = greatest(known.since, excluded.since)
"""


async def remove(session: Session, ids: Sequence[int]) -> None:
    """Delete deliveries, as of now."""
    gone = await session.fetch(_DELETE, list(ids))
    await leave_idle(session, [(position, session.now) for (position,) in gone])


async def leave_idle(session: Session, gone: Sequence[tuple[int, datetime]]) -> None:
    """Note of which events a delivery was removed, and when that was settled.

    An event is idle from then on when the last of its deliveries has gone.
    """
    if gone:
        rows = [{"position": position, "since": since} for position, since in gone]
        await session.fetch(_LEAVE_IDLE, session.records(rows))


async def grow(session: Session, name: str, by: int) -> None:
    """Add to one of the counters."""
    await session.fetch("UPDATE redrive.counters SET value = value + $2 WHERE name = $1", name, by)
