"""Deliveries that go, in SQL, and what that means for their events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.connection import Link

__all__ = ["leave_idle", "remove"]

_DELETE = "DELETE FROM redrive.deliveries WHERE id = ANY ($1::bigint[]) RETURNING position"
# In the order of positions, so that two who remove deliveries of the same events take turns.
_LEAVE_IDLE = """
INSERT INTO redrive.idle AS known (position, since)
SELECT position, max(since) FROM unnest($1::bigint[], $2::timestamptz[]) AS given (position, since)
GROUP BY position ORDER BY position
ON CONFLICT (position) DO UPDATE SET since = greatest(known.since, excluded.since)
"""


async def remove(link: Link, ids: Sequence[int], *, now: datetime) -> None:
    """Delete deliveries, as of now."""
    gone = await link.fetch(_DELETE, list(ids))
    await leave_idle(link, [(row[0], now) for row in gone])


async def leave_idle(link: Link, gone: Sequence[tuple[int, datetime]]) -> None:
    """Note of which events a delivery was removed, and when that was settled.

    An event is idle from then on when the last of its deliveries has gone.
    """
    if gone:
        await link.fetch(_LEAVE_IDLE, *columns(gone, 2))
