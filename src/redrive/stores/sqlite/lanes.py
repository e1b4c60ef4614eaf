"""How the next delivery of a lane is let go where there is one writer."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.stores.sql.lanes import lanes_of
from redrive.stores.sql.session import Lane, Session

__all__ = ["free_lanes", "line_up", "rejoin"]

_KEY = "(SELECT key FROM redrive_events e WHERE e.position = redrive_deliveries.position)"
_REJOIN = f"""
UPDATE redrive_deliveries SET lane = {_KEY}
WHERE id IN (SELECT value FROM json_each(?1)) AND lane IS NULL AND destination IN (
    SELECT id FROM redrive_destinations WHERE document ->> 'order' <> 'none'
)
"""
_BUSY = "SELECT destination, lane FROM redrive_deliveries WHERE status = 1 AND lane IS NOT NULL"
"""Asked of what is in flight, of which there is little, and not along the lanes."""

_HAS_EARLIER = """EXISTS (
    SELECT 1 FROM redrive_deliveries AS head
    WHERE head.destination = d.destination AND head.lane = d.lane AND head.id < d.id
      AND head.status <> 2 AND head.resolution IS NULL
)"""
_IS_BUSY = f"(d.destination, d.lane) IN ({_BUSY})"
_FREE = """
UPDATE redrive_deliveries SET is_behind = 0 WHERE is_behind = 1 AND id IN (
    SELECT (
        SELECT min(next.id) FROM redrive_deliveries AS next
        WHERE next.destination = value ->> 0 AND next.lane = value ->> 1
          AND next.status <> 2 AND next.resolution IS NULL
    )
    FROM json_each(?1)
)
"""
_FALL_IN = f"""
UPDATE redrive_deliveries AS d SET is_behind = 1
WHERE d.status = 0 AND d.lane IS NOT NULL AND ({_HAS_EARLIER} OR {_IS_BUSY}) AND (
    d.id IN (SELECT value FROM json_each(?1)) OR d.id IN (
        SELECT (
            SELECT min(o.id) FROM redrive_deliveries AS o
            WHERE o.destination = value ->> 0 AND o.lane = value ->> 1
              AND o.status <> 2 AND o.resolution IS NULL
              AND o.id NOT IN (SELECT value FROM json_each(?1))
        )
        FROM json_each(?2)
    )
)
"""


async def free_lanes(session: Session, lanes: Sequence[Lane]) -> None:
    """Let the next delivery go in each of the lanes, if nothing of it is in flight."""
    busy = frozenset(await session.fetch(_BUSY))
    await session.fetch(_FREE, [lane for lane in lanes if lane not in busy])


async def rejoin(session: Session, ids: Sequence[int]) -> None:
    """Let deliveries that are sent again take their place in their lanes, where they had left."""
    await session.fetch(_REJOIN, list(ids))
    await line_up(session, ids)


async def line_up(session: Session, ids: Sequence[int]) -> bool:
    """Find out who goes next in the lanes of deliveries that are pending again; tell if any."""
    lanes = await lanes_of(session, ids)
    if lanes:
        await session.fetch(_FALL_IN, list(ids), lanes)
        await free_lanes(session, lanes)
    return bool(lanes)
