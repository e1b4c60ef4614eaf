"""Lanes in SQL: who goes next when the head of a lane is out of the way."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from redrive.stores.postgres.connection import Link

__all__ = ["Lane", "free_lanes", "free_late_lanes", "hold", "lanes_of", "pass_by"]

Lane = tuple[int, str]
"""A destination's number, and the key."""

_LANES = """
SELECT DISTINCT destination, lane FROM redrive.deliveries
WHERE id = ANY ($1::bigint[]) AND lane IS NOT NULL
"""
_LEAVE_LANES = """
UPDATE redrive.deliveries SET lane = NULL
WHERE id = ANY ($1::bigint[]) AND lane IS NOT NULL AND destination IN (
    SELECT id FROM redrive.destinations WHERE document::json ->> 'order' = 'skip'
)
"""
_HOLD = """
SELECT key FROM redrive.keys WHERE key = ANY ($1::text[]) ORDER BY key
FOR NO KEY UPDATE SKIP LOCKED
"""
_FREE = """
UPDATE redrive.deliveries SET is_behind = false WHERE is_behind AND id IN (
    SELECT (
        SELECT next.id FROM redrive.deliveries AS next
        WHERE next.destination = given.destination AND next.lane = given.lane
          AND next.status <> 2 AND next.resolution IS NULL
        ORDER BY next.id LIMIT 1
    )
    FROM unnest($1::integer[], $2::text[]) AS given (destination, lane)
)
"""
_PUT_OFF = """
INSERT INTO redrive.late_lanes (destination, lane)
SELECT * FROM unnest($1::integer[], $2::text[]) ON CONFLICT DO NOTHING
"""
_TAKE_LATE = """
DELETE FROM redrive.late_lanes WHERE (destination, lane) IN (
    SELECT late.destination, late.lane FROM redrive.late_lanes late
    JOIN redrive.keys k ON k.key = late.lane
    ORDER BY late.lane LIMIT 1000 FOR NO KEY UPDATE OF k SKIP LOCKED
)
RETURNING destination, lane
"""


async def lanes_of(link: Link, ids: Sequence[int]) -> list[Lane]:
    """Return the lanes these deliveries are in."""
    return [(row[0], row[1]) for row in await link.fetch(_LANES, list(ids))]


async def hold(link: Link, keys: Collection[str]) -> set[str]:
    """Keep publishers from these keys until the transaction ends, but for those who are there."""
    return {row[0] for row in await link.fetch(_HOLD, sorted(keys))}


async def free_lanes(link: Link, lanes: Sequence[Lane]) -> None:
    """Let the next delivery go in each of the lanes, if nothing stands in front of it.

    Somebody may be publishing to a lane in a transaction that is still open: what they add would
    stay behind a head that has gone, and waiting for them would stop this worker. Such a lane is
    put off until they are done.
    """
    if not lanes:
        return
    held = await hold(link, {key for _, key in lanes})
    now = [lane for lane in lanes if lane[1] in held]
    later = [lane for lane in lanes if lane[1] not in held]
    if now:
        await link.fetch(_FREE, *_columns(now))
    if later:
        await link.fetch(_PUT_OFF, *_columns(later))


async def free_late_lanes(link: Link) -> None:
    """Free the lanes that were put off and to which nobody is publishing any more."""
    taken = [(row[0], row[1]) for row in await link.fetch(_TAKE_LATE)]
    if taken:
        await link.fetch(_FREE, *_columns(taken))


async def pass_by(link: Link, ids: Sequence[int]) -> None:
    """Let dead letters leave their lanes where that is how order is kept."""
    lanes = await lanes_of(link, ids)
    if lanes:
        await link.fetch(_LEAVE_LANES, list(ids))
        await free_lanes(link, lanes)


def _columns(lanes: Sequence[Lane]) -> tuple[list[int], list[str]]:
    return [number for number, _ in lanes], [key for _, key in lanes]
