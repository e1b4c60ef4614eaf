"""Destinations that go and destinations that come late, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import apsw
import msgspec

from redrive.claiming.ready import KINDS
from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Kind
from redrive.model.destination import Destination, Order
from redrive.model.pattern import matches
from redrive.model.standing import Standing
from redrive.policies.declaring import removed, restored
from redrive.store import LOWEST_PRIORITY, Backfilled, LogSlice, Moved
from redrive.stores.codec import destination_from, event_from, json_text, maybe_micros, micros
from redrive.stores.sql.registering import keep_standing, read_standings
from redrive.stores.sqlite.append import fall_in_behind, give, grow
from redrive.stores.sqlite.auditing import record
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.lanes import free_lanes, lanes_of, pass_by
from redrive.stores.sqlite.removing import remove
from redrive.stores.sqlite.session import SqliteSession, finish

__all__ = ["backfill", "drop", "move", "read_log", "reregister", "unregister", "waiting_for"]

_names = msgspec.json.Decoder(tuple[str, ...])

_WAITING = """
SELECT id FROM redrive_deliveries
WHERE id > ?1 AND +destination = ?2 AND (status = 0 OR (?3 AND status = 3 AND resolution IS NULL))
ORDER BY id LIMIT ?4
"""
_MOVABLE = """
SELECT d.id, e.id, e.key, e.destinations, t.name
FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value
CROSS JOIN redrive_events e ON e.position = d.position
CROSS JOIN redrive_destinations t ON t.id = d.destination
WHERE d.status = 0 OR (d.status = 3 AND d.resolution IS NULL)
ORDER BY d.id
"""
_IN_LANES = """
SELECT {what} FROM json_each(?1) CROSS JOIN redrive_deliveries d
ON d.destination = ?2 AND d.lane = value AND d.status <> 2 AND d.resolution IS NULL
"""
_BUSY_LANES = _IN_LANES.format(what="DISTINCT d.lane") + "WHERE d.status = 1"
_HEADS = _IN_LANES.format(what="min(d.id)") + "GROUP BY d.lane"
_LATEST = _IN_LANES.format(what="d.lane, max(d.position)") + "GROUP BY d.lane"
_MOVE = """
UPDATE redrive_deliveries SET destination = ?1, is_behind = 0, lane = CASE WHEN ?2 THEN (
    SELECT key FROM redrive_events e WHERE e.position = redrive_deliveries.position
) END
WHERE id IN (SELECT value FROM json_each(?3))
"""
_ALIGN = """
UPDATE redrive_deliveries AS d SET is_behind = EXISTS (
    SELECT 1 FROM redrive_deliveries AS head
    WHERE head.destination = d.destination AND head.lane = d.lane AND head.id < d.id
      AND head.status <> 2 AND head.resolution IS NULL
)
WHERE d.id IN (SELECT value FROM json_each(?)) AND d.lane IS NOT NULL
"""
_PENDING = """
SELECT d.id, d.position FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value
WHERE d.status = 0 ORDER BY d.id
"""
_READ_LOG = """
SELECT position, type, key, destinations,
       iif(json_valid(document), document ->> 'published_at', '1970-01-01T00:00:00Z'),
       iif(json_valid(document), document ->> 'deadline', NULL)
FROM redrive_events WHERE position > ? ORDER BY position LIMIT ?
"""
_EVENTS = """
SELECT e.position, e.destinations, CAST(e.document AS BLOB) FROM json_each(?)
CROSS JOIN redrive_events e ON e.position = value ORDER BY e.position
"""
_INSERT = """
INSERT INTO redrive_deliveries
    (position, destination, is_ready, kind, priority, generation, tenant, lane, due, deadline,
     enqueued_at)
SELECT value ->> 0, :destination, (value ->> 4) <= :now, :kind, :priority, value ->> 1,
       value ->> 2, value ->> 3, value ->> 4, value ->> 5, :now
FROM json_each(:rows) ORDER BY json_each.key
"""


def unregister(
    connection: apsw.Connection, destination: str, *, actor: Actor, now: datetime
) -> bool:
    """Carry out `Rerouting.unregister`."""
    number, standing = _standing(connection, destination, now=now)
    if standing.is_removed:
        return False
    _set_removed(connection, number, micros(now))
    finish(keep_standing(SqliteSession(connection, now), number, removed(standing)))
    record(connection, "remove", (), actor, now=now, count=1, detail=destination)
    return True


def reregister(
    connection: apsw.Connection, destination: str, *, actor: Actor, now: datetime
) -> bool:
    """Carry out `Rerouting.reregister`."""
    number, standing = _standing(connection, destination, now=now)
    if not standing.is_removed:
        return False
    _set_removed(connection, number, None)
    finish(keep_standing(SqliteSession(connection, now), number, restored(standing)))
    record(connection, "restore", (), actor, now=now, count=1, detail=destination)
    return True


def _standing(
    connection: apsw.Connection, destination: str, *, now: datetime
) -> tuple[int, Standing]:
    _find(connection, destination)
    return finish(read_standings(SqliteSession(connection, now), [destination]))[destination]


def _set_removed(connection: apsw.Connection, number: int, moment: int | None) -> None:
    connection.execute(
        "UPDATE redrive_destinations SET removed_at = ? WHERE id = ?", (moment, number)
    )
    grow(connection, "routes_version", 1)


def waiting_for(
    connection: apsw.Connection,
    destination: str,
    *,
    after: int,
    limit: int,
    with_dead_letters: bool,
) -> Sequence[DeliveryId]:
    """Carry out `Rerouting.waiting_for`."""
    number, _ = _find(connection, destination)
    found = rows(connection, _WAITING, (after, number, with_dead_letters, limit))
    return [DeliveryId(one) for (one,) in found]


def move(
    connection: apsw.Connection,
    ids: Sequence[DeliveryId],
    *,
    target: str,
    actor: Actor,
    now: datetime,
) -> Moved:
    """Carry out `Rerouting.move`."""
    number, destination = _find(connection, target)
    is_ordered = destination.order is not Order.NONE
    movable: list[Any] = rows(connection, _MOVABLE, (json_text(list(dict.fromkeys(ids))),))
    unknown = [one for one in movable if target not in _names.decode(one[3])]
    free = list({one[1]: one for one in reversed(unknown)}.values())[::-1]  # an event goes once
    keys = json_text(sorted({key for _, _, key, _, _ in free if key is not None}))
    busy = frozenset[str]()
    if is_ordered:
        busy = frozenset(key for (key,) in rows(connection, _BUSY_LANES, (keys, number)))
    chosen = [one for one in free if one[2] not in busy]
    changed = [DeliveryId(one[0]) for one in chosen]
    if changed:
        heads = [one for (one,) in rows(connection, _HEADS, (keys, number))]
        left = lanes_of(connection, changed)
        connection.execute(_MOVE, (number, is_ordered, json_text(changed)))
        for source in sorted({name for _, _, _, _, name in chosen}):
            events = [(event, target) for _, event, _, _, name in chosen if name == source]
            give(connection, events, instead_of=source)
        connection.execute(_ALIGN, (json_text([*changed, *heads]),))
        free_lanes(connection, left)
        pass_by(connection, _dead(connection, changed))
        record(connection, "move", changed, actor, now=now, detail=target)
    return Moved(
        moved=tuple(changed), skipped=len(movable) - len(free), busy=len(free) - len(chosen)
    )


def drop(
    connection: apsw.Connection, ids: Sequence[DeliveryId], *, actor: Actor, now: datetime
) -> Sequence[DeliveryId]:
    """Carry out `Rerouting.drop`."""
    found: list[Any] = rows(connection, _PENDING, (json_text(list(dict.fromkeys(ids))),))
    dropped = [DeliveryId(number) for number, _ in found]
    if dropped:
        lanes = lanes_of(connection, dropped)
        moment = micros(now)
        remove(connection, json_text([(*one, moment) for one in found]))
        free_lanes(connection, lanes)
        grow(connection, "deleted", len(dropped))
        record(connection, "drop", dropped, actor, now=now)
    return dropped


def read_log(
    connection: apsw.Connection,
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
    _, wanting = _find(connection, destination)
    missing: list[tuple[int, str | None]] = []
    given: list[tuple[int, str | None]] = []
    last = None
    for position, kind, key, names, published_at, deadline in rows(
        connection, _READ_LOG, (after, limit)
    ):
        last = position
        if destination in _names.decode(names):
            given.append((position, key))
        elif (
            wanting.wants(kind)
            and (event_type is None or matches(event_type, kind))
            and (since is None or datetime.fromisoformat(published_at) >= since)
            and (until is None or datetime.fromisoformat(published_at) < until)
            and (deadline is None or datetime.fromisoformat(deadline) > now)
        ):
            missing.append((position, key))
    return LogSlice(missing=tuple(missing), given=tuple(given), last=last)


def backfill(
    connection: apsw.Connection,
    destination: str,
    positions: Sequence[int],
    *,
    actor: Actor,
    generation: str | None,
    now: datetime,
) -> Backfilled:
    """Carry out `Rerouting.backfill`."""
    number, wanting = _find(connection, destination)
    is_ordered = wanting.order is not Order.NONE
    events = [
        (position, event_from(document))
        for position, names, document in rows(
            connection, _EVENTS, (json_text(sorted(set(positions))),)
        )
        if destination not in _names.decode(names)
    ]
    latest: dict[str, int] = {}
    if is_ordered:
        keys = sorted({event.key for _, event in events if event.key is not None})
        latest = dict(rows(connection, _LATEST, (json_text(keys), number)))
    fresh = [one for one in events if one[1].key is None or latest.get(one[1].key, 0) <= one[0]]
    if fresh:
        moment = micros(now)
        last = connection.execute("SELECT max(id) FROM redrive_deliveries").get or 0
        connection.execute(
            _INSERT,
            {
                "destination": number,
                "kind": KINDS.index(Kind.REPLAY),
                "priority": LOWEST_PRIORITY,
                "now": moment,
                "rows": json_text(
                    [
                        (
                            position,
                            generation or event.generation,
                            event.tenant,
                            event.key if is_ordered else None,
                            moment if event.due is None else max(moment, micros(event.due)),
                            maybe_micros(event.deadline),
                        )
                        for position, event in fresh
                    ]
                ),
            },
        )
        if is_ordered:
            fall_in_behind(connection, last)
        give(connection, [(event.id, destination) for _, event in fresh])
        record(connection, "backfill", (), actor, now=now, count=len(fresh), detail=destination)
    return Backfilled(added=len(fresh), overtaken=len(events) - len(fresh))


def _find(connection: apsw.Connection, name: str) -> tuple[int, Destination]:
    found = connection.execute(
        "SELECT id, document FROM redrive_destinations WHERE name = ?", (name,)
    ).fetchone()
    if found is None:
        names = [one for (one,) in rows(connection, "SELECT name FROM redrive_destinations")]
        raise not_found(name, sorted(names), what="destination")
    return found[0], destination_from(found[1])


def _dead(connection: apsw.Connection, ids: Sequence[DeliveryId]) -> list[int]:
    found = rows(
        connection,
        "SELECT id FROM redrive_deliveries WHERE id IN (SELECT value FROM json_each(?)) "
        "AND status = 3",
        (json_text(ids),),
    )
    return [number for (number,) in found]
