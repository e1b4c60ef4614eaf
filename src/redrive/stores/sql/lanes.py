"""Lanes: of the deliveries of a key, which one may go; how the next is let go is each store's."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from redrive.model.delivery import DeliveryId
from redrive.model.destination import Order
from redrive.stores.codec import destination_from
from redrive.stores.sql.session import Either, Lane, Session
from redrive.stores.sql.store import SqlStore, reading

__all__ = ["HELD_LANES", "LanesRole", "hold", "lanes_of", "pass_by", "relane"]

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
_MAY_LEAVE = """
SELECT d.id, t.document, e.type FROM redrive.deliveries d
JOIN redrive.destinations t ON t.id = d.destination
JOIN redrive.events e ON e.position = d.position
WHERE d.id = ANY ($1::bigint[]) AND d.lane IS NOT NULL AND (
    t.document::json ->> 'order' = 'skip'
    OR coalesce(t.document::json ->> 'passing', '[]') <> '[]'
)
"""
_LEAVE = """
UPDATE redrive.deliveries SET lane = NULL, is_behind = false WHERE id = ANY ($1::bigint[])
"""
_HOLD = """
SELECT key FROM redrive.keys WHERE key = ANY ($1::text[]) ORDER BY key
FOR NO KEY UPDATE SKIP LOCKED
"""
_OUT_OF_LANES = """
UPDATE redrive.deliveries SET lane = NULL, is_behind = false
WHERE destination = $1 AND lane IS NOT NULL AND ($2::smallint IS NULL OR status = $2)
"""
_INTO_LANES = """
UPDATE redrive.deliveries AS d SET lane = e.key, is_behind = d.status = 0, kind = d.kind % 3
FROM redrive.events e
WHERE e.position = d.position AND e.key IS NOT NULL AND d.destination = $1 AND d.lane IS NULL
  AND d.status <> 2 AND d.resolution IS NULL AND (d.status < 3 OR $2)
"""
_STEP_BACK = """
UPDATE redrive.deliveries AS d SET is_behind = true
WHERE d.destination = $1 AND d.lane IS NOT NULL AND d.resolution IS NULL AND d.status <> 2
  AND d.status = 0 AND NOT d.is_behind AND EXISTS (
      SELECT FROM redrive.deliveries AS head
      WHERE head.destination = d.destination AND head.lane = d.lane AND head.id < d.id
        AND head.status <> 2 AND head.resolution IS NULL
  )
"""
_ALL_LANES = """
SELECT DISTINCT destination, lane FROM redrive.deliveries
WHERE destination = $1 AND lane IS NOT NULL AND status <> 2 AND resolution IS NULL
"""
# A lane that PostgreSQL has put off is not stuck.
_STUCK = Either(
    sqlite="",
    postgres="""AND NOT EXISTS (
      SELECT FROM redrive.late_lanes l WHERE l.destination = d.destination AND l.lane = d.lane
  )""",
).within("""
SELECT d.id FROM redrive.deliveries d
WHERE d.lane IS NOT NULL AND d.resolution IS NULL AND d.status <> 2 AND d.status = 0
  AND d.is_behind AND NOT EXISTS (
      SELECT FROM redrive.deliveries o
      WHERE o.destination = d.destination AND o.lane = d.lane AND o.resolution IS NULL
        AND o.status <> 2 AND (o.id < d.id OR o.status = 1)
  ) {}
ORDER BY d.id LIMIT $1
""")
HELD_LANES = Either(
    sqlite="SELECT 1 WHERE $1 IS NULL AND $2 IS NOT NULL",  # nobody else has a hold of anything
    postgres="""
SELECT true FROM redrive.late_lanes late CROSS JOIN LATERAL (
    SELECT status, is_behind, due FROM redrive.deliveries
    WHERE destination = late.destination AND lane = late.lane
      AND status <> 2 AND resolution IS NULL
    ORDER BY id LIMIT 1
) AS head
WHERE ($2::integer[] IS NULL OR late.destination = ANY ($2))
  AND head.status = 0 AND head.is_behind
  AND head.due <= coalesce($1::timestamptz, clock_timestamp())
LIMIT 1
""",
)
"""Whether something due of some destinations stays behind while somebody publishes to its lane."""
_FAILED = 3


class LanesRole(SqlStore):
    """What `Checkup` asks of lanes."""

    @reading
    async def stuck(self, session: Session, *, limit: int = 100) -> Sequence[DeliveryId]:
        return tuple(DeliveryId(number) for (number,) in await session.fetch(_STUCK, limit))


async def hold(session: Session, keys: Collection[str]) -> set[str]:
    """Keep publishers from these keys until the transaction ends, but for those who are there."""
    return {key for (key,) in await session.fetch(_HOLD, sorted(keys))}


async def relane(session: Session, destination: int, *, before: Order, after: Order) -> None:
    """Put what waits for a destination into lanes, or out of them, when its order has changed.

    Dead letters that were passed by stay out of the way.
    """
    if after is Order.NONE:
        await session.fetch(_OUT_OF_LANES, destination, None)
        return
    if after is Order.SKIP:
        await session.fetch(_OUT_OF_LANES, destination, _FAILED)
    stops = after is not Order.SKIP and before is not Order.SKIP
    await session.fetch(_INTO_LANES, destination, stops)
    await session.fetch(_STEP_BACK, destination)
    lanes = await session.fetch(_ALL_LANES, destination)
    await session.free_lanes([(number, key) for number, key in lanes])


async def lanes_of(session: Session, ids: Sequence[int]) -> list[Lane]:
    """Return the lanes these deliveries are in."""
    return [(number, key) for number, key in await session.fetch(_LANES, list(ids))]


async def pass_by(session: Session, ids: Sequence[int]) -> None:
    """Let dead letters leave their lanes where that is how order is kept."""
    if lanes := await lanes_of(session, ids):
        leaving = [
            number
            for number, document, event_type in await session.fetch(_MAY_LEAVE, list(ids))
            if destination_from(document).passes_by(event_type)
        ]
        if leaving:
            await session.fetch(_LEAVE, leaving)
        await session.free_lanes(lanes)
