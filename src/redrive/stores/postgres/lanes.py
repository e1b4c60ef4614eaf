"""Lanes in SQL: who goes next when the head of a lane is out of the way."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.stores.postgres.counting import counting
from redrive.stores.postgres.pool import Link
from redrive.stores.sql.counts import BEHIND, STATE
from redrive.stores.sql.lanes import hold, lanes_of
from redrive.stores.sql.session import Lane, Session

__all__ = [
    "free_held",
    "free_lanes",
    "free_late_lanes",
    "line_up",
    "line_up_chosen",
    "line_up_strays",
]

# What is in flight goes first, else the earliest; whoever else was about to go waits behind it.
_FREEING = f"""
WITH busy AS MATERIALIZED (
    SELECT destination, lane FROM redrive.deliveries WHERE status = 1 AND lane IS NOT NULL
), heads AS MATERIALIZED (
    SELECT given.destination, given.lane, (
        SELECT next.id FROM redrive.deliveries AS next
        WHERE next.destination = given.destination AND next.lane = given.lane
          AND next.status <> 2 AND next.resolution IS NULL
        ORDER BY next.id LIMIT 1
    ) AS head, (given.destination, given.lane) IN (SELECT destination, lane FROM busy) AS is_busy
    FROM unnest((SELECT {{numbers}}), (SELECT {{keys}})) AS given (destination, lane)
), stopped AS (
    UPDATE redrive.deliveries d SET is_behind = true FROM heads
    WHERE d.destination = heads.destination AND d.lane = heads.lane AND d.status = 0
      AND NOT d.is_behind AND (d.id <> heads.head OR heads.is_busy)
), freed AS (
    UPDATE redrive.deliveries d SET is_behind = false, counted = NOT d.counted FROM heads
    WHERE d.id = heads.head AND d.is_behind AND NOT heads.is_busy
    RETURNING d.destination, d.generation, {STATE} AS state,
              CASE WHEN d.status < 2 THEN d.counted END AS counted
)
{counting("freed", before=f"state + {BEHIND}", after="state")}
"""
_PUTTING_OFF = """
INSERT INTO redrive.late_lanes (destination, lane)
SELECT * FROM unnest((SELECT {numbers}), (SELECT {keys}))
"""
_AS_ARRAYS = {"numbers": "$1::integer[]", "keys": "$2::text[]"}
_AS_TEXTS = {"numbers": "$1::text::integer[]", "keys": "$2::text::text[]"}
_FREE, _FREE_HELD = _FREEING.format(**_AS_ARRAYS), _FREEING.format(**_AS_TEXTS)
_PUT_OFF, _PUT_OFF_HELD = _PUTTING_OFF.format(**_AS_ARRAYS), _PUTTING_OFF.format(**_AS_TEXTS)
# What was put in a lane, or in none, by an order that its destination no longer keeps.
_STRAYS = """
SELECT d.id, d.position, d.destination, e.key, d.lane IS NULL
FROM redrive.deliveries d
JOIN redrive.events e ON e.position = d.position
JOIN redrive.destinations t ON t.id = d.destination
WHERE d.position = ANY ($1::bigint[]) AND e.key IS NOT NULL AND d.status < 2
  AND (d.lane IS NULL) <> (coalesce(t.document::json ->> 'order', 'none') = 'none')
"""
_CHOSEN_STRAYS = """
SELECT d.id, d.position
FROM redrive.deliveries d
JOIN redrive.events e ON e.position = d.position
JOIN redrive.destinations t ON t.id = d.destination
WHERE d.id = ANY ($1::bigint[]) AND d.lane IS NULL AND e.key IS NOT NULL
  AND coalesce(t.document::json ->> 'order', 'none') <> 'none'
"""
# Who could not know of an order when they published came before everything of their key that went
# by it: what is looked for is just before, and what was marked.
_AND_EARLIER = """
WITH RECURSIVE changing AS MATERIALIZED (
    SELECT min(read_xid) AS since, max(version) AS routes_version FROM redrive.route_changes
    WHERE NOT is_done AND begins_order
), found AS (
    SELECT e.position, e.key, e.version FROM redrive.events e
    WHERE e.position IN ({positions}) AND (
        EXISTS (SELECT FROM changing WHERE since IS NOT NULL)
        OR EXISTS (SELECT FROM redrive.late_events)
    )
    UNION ALL
    SELECT earlier.position, found.key, earlier.version
    FROM found CROSS JOIN changing CROSS JOIN LATERAL (
        SELECT position, version, xid, routes_version FROM redrive.events
        WHERE key = found.key AND version < found.version
        ORDER BY version DESC LIMIT 1
    ) AS earlier
    WHERE earlier.xid >= changing.since AND earlier.routes_version < changing.routes_version
)
SELECT position FROM found
UNION
SELECT e.position FROM redrive.late_events l JOIN redrive.events e ON e.position = l.position
WHERE e.key IN (SELECT key FROM found)
"""
_EVENTS_AND_EARLIER = _AND_EARLIER.format(positions="SELECT unnest($1::bigint[])")
_HEADS_AND_EARLIER = _AND_EARLIER.format(
    positions="""
        SELECT (
            SELECT position FROM redrive.deliveries
            WHERE destination = given.destination AND lane = given.lane
              AND status <> 2 AND resolution IS NULL
            ORDER BY id LIMIT 1
        ) FROM unnest($1::integer[], $2::text[]) AS given (destination, lane)
    """
)
_ORDER_STAYS = """
SELECT FROM redrive.counters WHERE name = 'routes_version' FOR SHARE SKIP LOCKED
"""
_TAKE_OUT = """
UPDATE redrive.deliveries SET lane = NULL, is_behind = false WHERE id = ANY ($1::bigint[])
"""
_PUT_IN = """
UPDATE redrive.deliveries d SET lane = e.key, is_behind = d.status = 0, kind = d.kind % 3
FROM redrive.events e WHERE e.position = d.position AND d.id = ANY ($1::bigint[])
"""
_TAKE_LATE = """
DELETE FROM redrive.late_lanes WHERE (destination, lane) IN (
    SELECT late.destination, late.lane FROM redrive.late_lanes late
    JOIN redrive.keys k ON k.key = late.lane
    ORDER BY late.lane LIMIT 1000 FOR NO KEY UPDATE OF k SKIP LOCKED
)
RETURNING destination, lane
"""


async def free_lanes(session: Session, lanes: Sequence[Lane]) -> None:
    """Let the next delivery go in each of the lanes, if nothing stands in front of it.

    Somebody may be publishing to a lane in a transaction that is still open: what they add would
    stay behind a head that has gone, and waiting for them would stop this worker. Such a lane is
    put off until they are done.
    """
    if not lanes:
        return
    held = await hold(session, {key for _, key in lanes})
    now = [lane for lane in lanes if lane[1] in held]
    later = [lane for lane in lanes if lane[1] not in held]
    if now:
        await session.fetch(_FREE, *_columns(now))
    if later:
        await session.fetch(_PUT_OFF, *_columns(later))


async def free_held(
    link: Link,
    numbers: str | None,
    keys: str | None,
    late_numbers: str | None,
    late_keys: str | None,
) -> bool:
    """Let the next go in lanes that are held, put others off, and tell whether there were any.

    Each is the text of an array; a lane has a place in two of them.
    """
    if numbers is not None:
        await link.fetch(_FREE_HELD, numbers, keys)
    if late_numbers is not None:
        await link.fetch(_PUT_OFF_HELD, late_numbers, late_keys)
    return numbers is not None or late_numbers is not None


async def free_late_lanes(session: Session) -> None:
    """Free the lanes that were put off and to which nobody is publishing any more.

    This may wait for deliveries that others hold, so it comes before one takes hold of any.
    """
    taken = sorted({(row[0], row[1]) for row in await session.fetch(_TAKE_LATE)})
    if not taken:
        return
    lanes = _columns(taken)
    found = [position for (position,) in await session.fetch(_HEADS_AND_EARLIER, *lanes)]
    is_busy = bool(found and await line_up_strays(session, found))
    await session.fetch(_PUT_OFF if is_busy else _FREE, *lanes)


async def line_up(session: Session, ids: Sequence[int]) -> bool:
    """Find out who goes next in the lanes of deliveries that are pending again; tell if any."""
    lanes = await lanes_of(session, ids)
    await free_lanes(session, lanes)
    return bool(lanes)


async def line_up_chosen(session: Session, ids: Sequence[int]) -> tuple[int, frozenset[int]]:
    """Put deliveries into lanes that belong into one, and what came before them.

    Returns how many of these there were, and which of them have to wait: somebody else has their
    keys in hand.
    """
    strays = await session.fetch(_CHOSEN_STRAYS, ids)
    if not strays:
        return 0, frozenset()
    positions = [position for _, position in strays]
    found = [row[0] for row in await session.fetch(_EVENTS_AND_EARLIER, positions)]
    busy = await line_up_strays(session, found)
    return len(strays), frozenset(number for number, position in strays if position in busy)


async def line_up_strays(session: Session, positions: Sequence[int]) -> frozenset[int]:
    """Let the deliveries of these events keep the order that their destinations keep by now.

    Returns the events whose keys somebody else has in hand.
    """
    strays = await session.fetch(_STRAYS, list(positions))
    if not strays:
        return frozenset()
    if not await session.fetch(_ORDER_STAYS):  # somebody is just changing it
        return frozenset(row[1] for row in strays)
    strays = await session.fetch(_STRAYS, list(positions))
    held = await hold(session, {row[3] for row in strays})
    ours = [row for row in strays if row[3] in held]
    await session.fetch(_TAKE_OUT, [row[0] for row in ours if not row[4]])
    if joining := [row for row in ours if row[4]]:
        await session.fetch(_PUT_IN, [row[0] for row in joining])
        await session.fetch(_FREE, *_columns(sorted({(row[2], row[3]) for row in joining})))
    return frozenset(row[1] for row in strays if row[3] not in held)


def _columns(lanes: Sequence[Lane]) -> tuple[list[int], list[str]]:
    return [number for number, _ in lanes], [key for _, key in lanes]
