"""Destinations that go and destinations that come late, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from redrive.claiming.ready import KINDS
from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Kind
from redrive.model.destination import Destination, Order
from redrive.model.pattern import matches
from redrive.model.standing import Standing
from redrive.policies.declaring import removed, restored
from redrive.store import LOWEST_PRIORITY, Backfilled, LogSlice, Moved
from redrive.stores.codec import destination_from, event_from
from redrive.stores.postgres.auditing import record
from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.giving import give, give_instead
from redrive.stores.postgres.lanes import free_lanes, hold, lanes_of, pass_by
from redrive.stores.postgres.log import grow
from redrive.stores.postgres.removing import remove
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sql.registering import hold_routes, keep_standing, read_standings

__all__ = ["backfill", "drop", "move", "read_log", "reregister", "unregister", "waiting_for"]

_SET_REMOVED = "UPDATE redrive.destinations SET removed_at = $2 WHERE id = $1"
_WAITING = """
SELECT id FROM redrive.deliveries
WHERE id > $1 AND destination = $2
  AND (status = 0 OR ($3 AND status = 3 AND resolution IS NULL))
ORDER BY id LIMIT $4
"""
_IS_MOVABLE = "(d.status = 0 OR (d.status = 3 AND d.resolution IS NULL))"
_CANDIDATES = f"""
SELECT d.id, CASE WHEN $2 OR d.lane IS NOT NULL THEN e.key END
FROM redrive.deliveries d JOIN redrive.events e ON e.position = d.position
WHERE d.id = ANY ($1::bigint[]) AND {_IS_MOVABLE}
"""
_MOVABLE = f"""
SELECT d.id, d.status, d.lane IS NOT NULL, e.position, e.key, e.destinations, t.name
FROM redrive.deliveries d
JOIN redrive.events e ON e.position = d.position
JOIN redrive.destinations t ON t.id = d.destination
WHERE d.id = ANY ($1::bigint[]) AND {_IS_MOVABLE}
ORDER BY d.id FOR NO KEY UPDATE OF d, e SKIP LOCKED
"""
_HEADS = """
SELECT min(d.id), given.lane FROM unnest($1::text[]) AS given (lane)
JOIN redrive.deliveries d
ON d.destination = $2 AND d.lane = given.lane AND d.status <> 2 AND d.resolution IS NULL
GROUP BY given.lane
"""
_LOCK_HEADS = """
SELECT id FROM redrive.deliveries WHERE id = ANY ($1::bigint[]) AND status <> 1
ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""
_LATEST = """
SELECT d.lane, max(d.position) FROM unnest($1::text[]) AS given (lane) JOIN redrive.deliveries d
ON d.destination = $2 AND d.lane = given.lane AND d.status <> 2 AND d.resolution IS NULL
GROUP BY d.lane
"""
_MOVE = """
UPDATE redrive.deliveries d
SET destination = $2, kind = kind % 3, is_behind = false, lane = CASE WHEN $3 THEN (
    SELECT key FROM redrive.events e WHERE e.position = d.position
) END
WHERE d.id = ANY ($1::bigint[])
"""
_ALIGN = """
UPDATE redrive.deliveries d SET is_behind = EXISTS (
    SELECT FROM redrive.deliveries AS head
    WHERE head.destination = d.destination AND head.lane = d.lane AND head.id < d.id
      AND head.status <> 2 AND head.resolution IS NULL
)
WHERE d.id = ANY ($1::bigint[]) AND d.lane IS NOT NULL
"""
_PENDING = """
SELECT id FROM redrive.deliveries WHERE id = ANY ($1::bigint[]) AND status = 0
ORDER BY id FOR UPDATE
"""
_READ_LOG = """
SELECT position, type, key, $3 = ANY (destinations), document FROM redrive.events
WHERE position > $1 ORDER BY position LIMIT $2
"""
# Like somebody who publishes to these keys, and in the same order.
_TAKE_TURNS = """
SELECT key FROM redrive.keys WHERE key IN (
    SELECT key FROM redrive.events WHERE position = ANY ($1::bigint[])
) ORDER BY key FOR NO KEY UPDATE
"""
_EVENTS = """
SELECT position, $2 = ANY (destinations), document FROM redrive.events
WHERE position = ANY ($1::bigint[]) ORDER BY position FOR NO KEY UPDATE
"""
_INSERT = """
INSERT INTO redrive.deliveries
    (position, destination, is_ready, kind, priority, generation, tenant, lane, is_behind, due,
     deadline, enqueued_at)
SELECT given.position, $1::integer, given.due <= $2, $3::smallint, $4::smallint,
       given.generation, given.tenant, given.lane, given.lane IS NOT NULL AND (
           row_number() OVER (PARTITION BY given.lane ORDER BY given.position) > 1
           OR EXISTS (
               SELECT FROM redrive.deliveries AS head
               WHERE head.destination = $1 AND head.lane = given.lane
                 AND head.status <> 2 AND head.resolution IS NULL
           )
       ),
       given.due, given.deadline, $2::timestamptz
FROM unnest($5::bigint[], $6::text[], $7::text[], $8::text[], $9::timestamptz[],
            $10::timestamptz[])
    AS given (position, generation, tenant, lane, due, deadline)
ORDER BY given.position
"""


async def unregister(
    link: PostgresSession, destination: str, *, actor: Actor, now: datetime
) -> bool:
    """Carry out `Rerouting.unregister`."""
    number, standing = await _standing(link, destination)
    if standing.is_removed:
        return False
    await link.fetch(_SET_REMOVED, number, now)
    await keep_standing(link, number, removed(standing))
    await link.change_routes(())
    await record(link, "remove", (), actor, now=now, count=1, detail=destination)
    return True


async def reregister(
    link: PostgresSession, destination: str, *, actor: Actor, now: datetime
) -> bool:
    """Carry out `Rerouting.reregister`."""
    number, standing = await _standing(link, destination)
    if not standing.is_removed:
        return False
    await link.fetch(_SET_REMOVED, number, None)
    await keep_standing(link, number, restored(standing))
    await link.change_routes([standing.destination])
    await record(link, "restore", (), actor, now=now, count=1, detail=destination)
    return True


async def _standing(link: PostgresSession, destination: str) -> tuple[int, Standing]:
    await hold_routes(link)
    await _find(link, destination)
    return (await read_standings(link, [destination]))[destination]


async def waiting_for(
    link: Link, destination: str, *, after: int, limit: int, with_dead_letters: bool
) -> Sequence[DeliveryId]:
    """Carry out `Rerouting.waiting_for`."""
    number, _ = await _find(link, destination)
    found = await link.fetch(_WAITING, after, number, with_dead_letters, limit)
    return [DeliveryId(row[0]) for row in found]


async def move(
    link: Link, ids: Sequence[DeliveryId], *, target: str, actor: Actor, now: datetime
) -> Moved:
    """Carry out `Rerouting.move`, which waits for nobody.

    What somebody is just claiming or changing is busy, and so is a key they are publishing to.
    """
    number, destination = await _find(link, target)
    is_ordered = destination.order is not Order.NONE
    candidates = await link.fetch(_CANDIDATES, list(dict.fromkeys(ids)), is_ordered)
    held = await hold(link, {key for _, key in candidates if key is not None})
    heads = await _lock_heads(link, number, held) if is_ordered else {}
    quiet = {lane for lane in held if heads.get(lane, 0) is not None}
    movable = await link.fetch(_MOVABLE, [one for one, _ in candidates])
    free = _not_given(movable, target)
    chosen = [
        (delivery, status, position, source)
        for delivery, status, is_in_lane, position, key, _, source in free
        if key is None or key in quiet or not (is_in_lane or is_ordered)
    ]
    changed = [DeliveryId(delivery) for delivery, _, _, _ in chosen]
    if changed:
        left = await lanes_of(link, changed)
        await link.fetch(_MOVE, changed, number, is_ordered)
        await give_instead(link, [(position, source, target) for _, _, position, source in chosen])
        await link.fetch(_ALIGN, [*changed, *(one for one in heads.values() if one is not None)])
        await free_lanes(link, left)
        await pass_by(link, [delivery for delivery, status, _, _ in chosen if status != 0])
        await record(link, "move", changed, actor, now=now, detail=target)
    skipped = len(movable) - len(free)
    return Moved(
        moved=tuple(changed), skipped=skipped, busy=len(candidates) - skipped - len(changed)
    )


async def _lock_heads(link: Link, destination: int, lanes: set[str]) -> dict[str, int | None]:
    """Keep the heads of these lanes from running; `None` is one that runs, or is being changed."""
    found = await link.fetch(_HEADS, sorted(lanes), destination) if lanes else []
    still = {row[0] for row in await link.fetch(_LOCK_HEADS, [head for head, _ in found])}
    return {lane: head if head in still else None for head, lane in found}


def _not_given(movable: Sequence[Sequence[Any]], target: str) -> list[Sequence[Any]]:
    """Leave out events that the target has, or gets by another of these deliveries."""
    first: dict[int, Sequence[Any]] = {}
    for one in movable:
        position, names = one[3], one[5]
        if target not in names:
            first.setdefault(position, one)
    return list(first.values())


async def drop(
    link: Link, ids: Sequence[DeliveryId], *, actor: Actor, now: datetime
) -> Sequence[DeliveryId]:
    """Carry out `Rerouting.drop`."""
    dropped = [DeliveryId(row[0]) for row in await link.fetch(_PENDING, list(ids))]
    if dropped:
        lanes = await lanes_of(link, dropped)
        await remove(link, dropped, now=now)
        await free_lanes(link, lanes)
        await grow(link, "deleted", len(dropped))
        await record(link, "drop", dropped, actor, now=now)
    return dropped


async def read_log(
    link: Link,
    destination: str,
    *,
    after: int,
    limit: int,
    since: datetime | None,
    until: datetime | None,
    event_type: str | None,
    now: datetime,
) -> LogSlice:
    """Carry out `Rerouting.read_log`."""
    _, wanting = await _find(link, destination)
    missing: list[tuple[int, str | None]] = []
    given: list[tuple[int, str | None]] = []
    last = None
    for position, kind, key, is_given, document in await link.fetch(
        _READ_LOG, after, limit, destination
    ):
        last = position
        if is_given:
            given.append((position, key))
        elif wanting.wants(kind) and (event_type is None or matches(event_type, kind)):
            event = event_from(document)
            if (
                (since is None or event.published_at >= since)
                and (until is None or event.published_at < until)
                and (event.deadline is None or event.deadline > now)
            ):
                missing.append((position, key))
    return LogSlice(missing=tuple(missing), given=tuple(given), last=last)


async def backfill(
    link: Link,
    destination: str,
    positions: Sequence[int],
    *,
    actor: Actor,
    generation: str | None,
    now: datetime,
) -> Backfilled:
    """Carry out `Rerouting.backfill`."""
    number, wanting = await _find(link, destination)
    is_ordered = wanting.order is not Order.NONE
    asked = sorted(set(positions))
    if is_ordered:
        await link.fetch(_TAKE_TURNS, asked)
    events = [
        (position, event_from(document))
        for position, is_given, document in await link.fetch(_EVENTS, asked, destination)
        if not is_given
    ]
    latest: dict[str, int] = {}
    if is_ordered:
        keys = sorted({event.key for _, event in events if event.key is not None})
        latest = {row[0]: row[1] for row in await link.fetch(_LATEST, keys, number)}
    fresh = [one for one in events if one[1].key is None or latest.get(one[1].key, 0) <= one[0]]
    if fresh:
        rows = [
            (
                position,
                generation or event.generation,
                event.tenant,
                event.key if is_ordered else None,
                now if event.due is None else max(now, event.due),
                event.deadline,
            )
            for position, event in fresh
        ]
        kind = KINDS.index(Kind.REPLAY)
        await link.fetch(_INSERT, number, now, kind, LOWEST_PRIORITY, *columns(rows, 6))
        await give(link, [(position, destination) for position, _ in fresh])
        await record(link, "backfill", (), actor, now=now, count=len(fresh), detail=destination)
    return Backfilled(added=len(fresh), overtaken=len(events) - len(fresh))


async def _find(link: Link, name: str) -> tuple[int, Destination]:
    for number, document in await link.fetch(
        "SELECT id, document FROM redrive.destinations WHERE name = $1", name
    ):
        return number, destination_from(document)
    names = [row[0] for row in await link.fetch("SELECT name FROM redrive.destinations")]
    raise not_found(name, sorted(names), what="destination")
