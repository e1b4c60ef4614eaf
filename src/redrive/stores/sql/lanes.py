"""Lanes: of the deliveries of a key, which one may go; how the next is let go is each store's."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.stores.sql.session import Either, Lane, Session

__all__ = ["lanes_of", "pass_by"]

_LANES = Either(
    sqlite="""
SELECT DISTINCT d.destination, d.lane
FROM json_each(?1) CROSS JOIN redrive_deliveries d ON d.id = value
WHERE d.lane IS NOT NULL
""",
    postgres="""
SELECT DISTINCT destination, lane FROM redrive.deliveries
WHERE id = ANY ($1::bigint[]) AND lane IS NOT NULL
""",
)
_LEAVE = """
UPDATE redrive.deliveries SET lane = NULL, is_behind = false
WHERE id = ANY ($1::bigint[]) AND lane IS NOT NULL AND destination IN (
    SELECT id FROM redrive.destinations WHERE document::json ->> 'order' = 'skip'
)
"""


async def lanes_of(session: Session, ids: Sequence[int]) -> list[Lane]:
    """Return the lanes these deliveries are in."""
    return [(number, key) for number, key in await session.fetch(_LANES, list(ids))]


async def pass_by(session: Session, ids: Sequence[int]) -> None:
    """Let dead letters leave their lanes where that is how order is kept."""
    if lanes := await lanes_of(session, ids):
        await session.fetch(_LEAVE, list(ids))
        await session.free_lanes(lanes)
