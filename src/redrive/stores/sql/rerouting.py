"""Destinations that go, and destinations that come late."""

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
from redrive.model.recipient import destination_of, is_given, recipient
from redrive.model.standing import Standing
from redrive.policies.declaring import removed, restored
from redrive.store import LOWEST_PRIORITY, Backfilled, LogSlice, Moved
from redrive.stores.codec import destination_from
from redrive.stores.declaring import refuse_service
from redrive.stores.sql.audit import record
from redrive.stores.sql.giving import give, names_of
from redrive.stores.sql.lanes import hold, lanes_of, pass_by
from redrive.stores.sql.registering import hold_routes, keep_standings, read_standings
from redrive.stores.sql.removal import grow, remove
from redrive.stores.sql.session import Either, Session
from redrive.stores.sql.store import SqlStore, reading, writing

__all__ = ["ReroutingRole", "backfill"]

_SET_REMOVED = "UPDATE redrive.destinations SET removed_at = $2 WHERE id = $1"
# SQLite would look through all that the destination has, and sort it.
_WAITING = Either(sqlite="+destination", postgres="destination").within("""
SELECT id FROM redrive.deliveries
WHERE id > $1 AND {} = $2 AND (status = 0 OR ($3 AND status = 3 AND resolution IS NULL))
ORDER BY id LIMIT $4
""")
_IS_MOVABLE = "(d.status = 0 OR (d.status = 3 AND d.resolution IS NULL))"
_CANDIDATES = f"""
SELECT d.id, CASE WHEN $2 OR d.lane IS NOT NULL THEN e.key END
FROM redrive.deliveries d JOIN redrive.events e ON e.position = d.position
WHERE d.id = ANY ($1::bigint[]) AND {_IS_MOVABLE}
"""
_MOVABLE = f"""
SELECT d.id, d.status, d.lane IS NOT NULL, e.position, e.key, e.destinations, t.name, d.rule
FROM redrive.deliveries d
JOIN redrive.events e ON e.position = d.position
JOIN redrive.destinations t ON t.id = d.destination
WHERE d.id = ANY ($1::bigint[]) AND {_IS_MOVABLE}
ORDER BY d.id FOR NO KEY UPDATE OF d, e SKIP LOCKED
"""
_HEADS = """
SELECT min(d.id), d.lane, max(CASE WHEN d.status = 1 THEN 1 ELSE 0 END)
FROM redrive.deliveries d
WHERE d.destination = $2 AND d.lane = ANY ($1::text[])
  AND d.status <> 2 AND d.resolution IS NULL
GROUP BY d.lane
"""
# Where a dead letter has left its lane, it takes its place there again when it is sent.
_LATEST = """
SELECT key, max(position) FROM (
    SELECT d.lane AS key, d.position FROM redrive.deliveries d
    WHERE d.destination = $2 AND d.lane = ANY ($1::text[])
      AND d.status <> 2 AND d.resolution IS NULL
    UNION ALL
    SELECT e.key, d.position
    FROM redrive.deliveries d JOIN redrive.events e ON e.position = d.position
    WHERE $3 AND d.destination = $2 AND d.status = 3 AND d.resolution IS NULL
      AND e.key = ANY ($1::text[])
) AS found GROUP BY key
"""
_LOCK_HEADS = """
SELECT id FROM redrive.deliveries WHERE id = ANY ($1::bigint[]) AND status <> 1
ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""
# A kind of 3 goes in publish order alone, in PostgreSQL: one that is changed no longer does.
_MOVE = """
UPDATE redrive.deliveries AS d
SET destination = $2, kind = kind % 3, is_behind = false, lane = CASE WHEN $3 THEN (
    SELECT key FROM redrive.events e WHERE e.position = d.position
) END, rule = CASE WHEN $4 THEN rule END
WHERE d.id = ANY ($1::bigint[])
"""
_ALIGN = """
UPDATE redrive.deliveries AS d SET is_behind = EXISTS (
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
SELECT position, type, key, destinations, convert_to(document, 'UTF8') FROM redrive.events
WHERE position > $1 ORDER BY position LIMIT $2
"""
# Like somebody who publishes to these keys, and in the same order.
_TAKE_TURNS = """
SELECT key FROM redrive.keys WHERE key IN (
    SELECT key FROM redrive.events WHERE position = ANY ($1::bigint[])
) ORDER BY key FOR NO KEY UPDATE
"""
_EVENTS = """
SELECT position, destinations, convert_to(document, 'UTF8') FROM redrive.events
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
FROM json_to_recordset($5::json) AS given (
    position bigint, generation text, tenant text, lane text, due timestamptz,
    deadline timestamptz
)
ORDER BY given.position
"""


class ReroutingRole(SqlStore):
    """`Rerouting`."""

    @writing()
    async def unregister(self, session: Session, destination: str, *, actor: Actor) -> bool:
        number, standing = await _standing(session, destination)
        if standing.is_removed:
            return False
        refuse_service(standing, "delete")
        await session.fetch(_SET_REMOVED, number, session.now)
        await keep_standings(session, {number: removed(standing)})
        await session.change_routes([])
        await record(session, "remove", (), actor, count=1, detail=destination)
        return True

    @writing(notifies=True)
    async def reregister(self, session: Session, destination: str, *, actor: Actor) -> bool:
        number, standing = await _standing(session, destination)
        if not standing.is_removed:
            return False
        refuse_service(standing, "add")
        await session.fetch(_SET_REMOVED, number, None)
        await keep_standings(session, {number: restored(standing)})
        await session.change_routes([standing.destination])
        await record(session, "restore", (), actor, count=1, detail=destination)
        return True

    @reading
    async def waiting_for(
        self,
        session: Session,
        destination: str,
        *,
        after: int = 0,
        limit: int = 500,
        with_dead_letters: bool = False,
    ) -> Sequence[DeliveryId]:
        number, _ = await _find(session, destination)
        found = await session.fetch(_WAITING, after, number, with_dead_letters, limit)
        return [DeliveryId(one) for (one,) in found]

    @writing(notifies=True)
    async def move(
        self, session: Session, ids: Sequence[DeliveryId], *, target: str, actor: Actor
    ) -> Moved:
        """Wait for nobody.

        What somebody is just claiming or changing is busy, and so is a key they are publishing to.
        """
        number, destination = await _find(session, target)
        is_ordered = destination.order is not Order.NONE
        candidates = await session.fetch(_CANDIDATES, list(dict.fromkeys(ids)), is_ordered)
        held = await hold(session, {key for _, key in candidates if key is not None})
        heads = await _lock_heads(session, number, held) if is_ordered else {}
        quiet = {lane for lane in held if heads.get(lane, 0) is not None}
        movable = await session.fetch(_MOVABLE, [one for one, _ in candidates])
        free = _not_given(movable, destination)
        chosen = [
            (delivery, status, position, recipient(source, rule or ""), _moved(rule, destination))
            for delivery, status, is_in_lane, position, key, _, source, rule in free
            if key is None or key in quiet or not (is_in_lane or is_ordered)
        ]
        changed = [DeliveryId(one[0]) for one in chosen]
        if changed:
            left = await lanes_of(session, changed)
            await session.fetch(_MOVE, changed, number, is_ordered, bool(destination.service))
            await give(session, [one[2:] for one in chosen])
            kept = [one for one in heads.values() if one is not None]
            await session.fetch(_ALIGN, [*changed, *kept])
            await session.free_lanes(left)
            await pass_by(session, [one[0] for one in chosen if one[1] != 0])
            await record(session, "move", changed, actor, detail=target)
        skipped = len(movable) - len(free)
        busy = len(candidates) - skipped - len(changed)
        return Moved(moved=tuple(changed), skipped=skipped, busy=busy)

    @writing(notifies=True)
    async def drop(
        self, session: Session, ids: Sequence[DeliveryId], *, actor: Actor
    ) -> Sequence[DeliveryId]:
        dropped = [DeliveryId(one) for (one,) in await session.fetch(_PENDING, list(ids))]
        if dropped:
            lanes = await lanes_of(session, dropped)
            await remove(session, dropped)
            await session.free_lanes(lanes)
            await grow(session, "deleted", len(dropped))
            await record(session, "drop", dropped, actor)
        return dropped

    @reading
    async def read_log(
        self,
        session: Session,
        destination: str,
        *,
        after: int = 0,
        limit: int = 1_000,
        since: datetime | None = None,
        until: datetime | None = None,
        event_type: str | None = None,
    ) -> LogSlice:
        _, wanting = await _find(session, destination)
        missing: list[tuple[int, str | None]] = []
        given: list[tuple[int, str | None]] = []
        last = None
        for position, kind, key, names, document in await session.fetch(_READ_LOG, after, limit):
            last = position
            if destination in {destination_of(one) for one in names_of(names)}:
                given.append((position, key))
            elif wanting.wants_type(kind) and (event_type is None or matches(event_type, kind)):
                event = session.codec.event(document)
                if (
                    wanting.wants_event(event)
                    and (since is None or event.published_at >= since)
                    and (until is None or event.published_at < until)
                    and (event.deadline is None or event.deadline > session.now)
                ):
                    missing.append((position, key))
        return LogSlice(
            missing=tuple(missing),
            given=tuple(given),
            last=last,
            is_ordered=wanting.order is not Order.NONE,
        )

    @writing(notifies=True)
    async def backfill(
        self,
        session: Session,
        destination: str,
        positions: Sequence[int],
        *,
        actor: Actor,
        generation: str | None = None,
    ) -> Backfilled:
        return await backfill(session, destination, positions, actor=actor, generation=generation)


async def backfill(
    session: Session,
    destination: str,
    positions: Sequence[int],
    *,
    actor: Actor,
    generation: str | None,
) -> Backfilled:
    """Give events the delivery to a destination that they never had."""
    number, wanting = await _find(session, destination)
    is_ordered = wanting.order is not Order.NONE
    asked = sorted(set(positions))
    if is_ordered:
        await session.fetch(_TAKE_TURNS, asked)
    events = [
        (position, event)
        for position, names, document in await session.fetch(_EVENTS, asked)
        if destination not in names_of(names)
        and (event := session.codec.event(document, is_strict=False)).erased is None
    ]
    latest: dict[str, int] = {}
    if is_ordered:
        keys = sorted({event.key for _, event in events if event.key is not None})
        latest = dict(await session.fetch(_LATEST, keys, number, wanting.order is Order.SKIP))
    fresh = [one for one in events if one[1].key is None or latest.get(one[1].key, 0) <= one[0]]
    if fresh:
        rows = [
            {
                "position": position,
                "generation": generation or event.generation,
                "tenant": event.tenant,
                "lane": event.key if is_ordered else None,
                "due": session.now if event.due is None else max(session.now, event.due),
                "deadline": wanting.deadline_of(event, now=session.now),
            }
            for position, event in fresh
        ]
        kind = KINDS.index(Kind.REPLAY)
        await session.fetch(
            _INSERT, number, session.now, kind, LOWEST_PRIORITY, session.records(rows)
        )
        await give(session, [(position, None, destination) for position, _ in fresh])
        await record(session, "backfill", (), actor, count=len(fresh), detail=destination)
    return Backfilled(added=len(fresh), overtaken=len(events) - len(fresh))


async def _lock_heads(session: Session, destination: int, lanes: set[str]) -> dict[str, int | None]:
    """Keep the heads of these lanes from running; `None` is where one runs, or is being changed."""
    found = await session.fetch(_HEADS, sorted(lanes), destination) if lanes else []
    heads = [head for head, _, _ in found]
    still = {number for (number,) in await session.fetch(_LOCK_HEADS, heads)}
    return {lane: head if head in still and not runs else None for head, lane, runs in found}


def _not_given(movable: Sequence[Sequence[Any]], target: Destination) -> list[Sequence[Any]]:
    """Leave out events that the target has, or gets by another of these deliveries."""
    first: dict[tuple[int, str], Sequence[Any]] = {}
    for one in movable:
        position, names, rule = one[3], one[5], one[7]
        moved = _moved(rule, target)
        if not is_given(moved, names_of(names)):
            first.setdefault((position, moved), one)
    return list(first.values())


def _moved(rule: str | None, target: Destination) -> str:
    """Return what a delivery is named at a target; code knows of no rules."""
    return recipient(target.name, (rule or "") if target.service else "")


async def _standing(session: Session, destination: str) -> tuple[int, Standing]:
    await hold_routes(session)
    await _find(session, destination)
    return (await read_standings(session, [destination]))[destination]


async def _find(session: Session, name: str) -> tuple[int, Destination]:
    for number, document in await session.fetch(
        "SELECT id, document FROM redrive.destinations WHERE name = $1", name
    ):
        return number, destination_from(document)
    names = [one for (one,) in await session.fetch("SELECT name FROM redrive.destinations")]
    raise not_found(name, sorted(names), what="destination")
