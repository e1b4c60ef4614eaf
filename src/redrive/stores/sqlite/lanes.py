"""Lanes in SQL: of the deliveries of a key, which one may go."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from redrive.stores.codec import json_text

__all__ = ["Lane", "free_lanes", "lanes_of", "line_up", "pass_by", "rejoin"]

_OF = "IN (SELECT value FROM json_each(?))"
_LANES = """
SELECT DISTINCT d.destination, d.lane
FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value
WHERE d.lane IS NOT NULL
"""
_SKIPS = "destination IN (SELECT id FROM redrive_destinations WHERE document ->> 'order' = 'skip')"
_KEY = "(SELECT key FROM redrive_events e WHERE e.position = redrive_deliveries.position)"
_LEAVE = f"""
UPDATE redrive_deliveries SET lane = NULL, is_behind = 0
WHERE id {_OF} AND lane IS NOT NULL AND {_SKIPS}
"""
_REJOIN = f"""
UPDATE redrive_deliveries SET lane = {_KEY} WHERE id {_OF} AND lane IS NULL AND destination IN (
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
    FROM json_each(?)
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

Lane = tuple[int, str]
"""A destination's number, and the key."""


def lanes_of(connection: apsw.Connection, ids: Sequence[int]) -> list[Lane]:
    """Return the lanes these deliveries are in."""
    return list(connection.execute(_LANES, (json_text(ids),)))


def free_lanes(connection: apsw.Connection, lanes: Sequence[Lane]) -> None:
    """Let the next delivery go in each of the lanes, if nothing of it is in flight."""
    busy = frozenset(connection.execute(_BUSY))
    connection.execute(_FREE, (json_text([lane for lane in lanes if lane not in busy]),))


def pass_by(connection: apsw.Connection, ids: Sequence[int]) -> None:
    """Let dead letters leave their lanes where that is how order is kept."""
    lanes = lanes_of(connection, ids)
    if lanes:
        connection.execute(_LEAVE, (json_text(ids),))
        free_lanes(connection, lanes)


def rejoin(connection: apsw.Connection, ids: Sequence[int]) -> None:
    """Let deliveries that are sent again take their place in their lanes, where they had left."""
    connection.execute(_REJOIN, (json_text(ids),))
    line_up(connection, ids)


def line_up(connection: apsw.Connection, ids: Sequence[int]) -> bool:
    """Find out who goes next in the lanes of deliveries that are pending again; tell if any."""
    lanes = lanes_of(connection, ids)
    if lanes:
        connection.execute(_FALL_IN, (json_text(ids), json_text(lanes)))
        free_lanes(connection, lanes)
    return bool(lanes)
