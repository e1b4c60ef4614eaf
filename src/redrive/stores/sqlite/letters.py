"""Dead letters on their way out of the SQLite store, and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import apsw
import msgspec

from redrive.claiming.ready import KINDS
from redrive.model.audit import Actor
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.destination import Destination
from redrive.model.letter import Letter
from redrive.store import LetterPage, Query, Restored
from redrive.stores.codec import (
    event_from,
    json_text,
    maybe_micros,
    micros,
    read_cursor,
    write_cursor,
)
from redrive.stores.sql.leases import keep_exchanges
from redrive.stores.sqlite.auditing import record
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.effects import restore_inbox
from redrive.stores.sqlite.inspection import conditions_of, find_deliveries, with_exchanges
from redrive.stores.sqlite.lanes import pass_by
from redrive.stores.sqlite.log import add_events, destination_ids, fall_in_behind, give
from redrive.stores.sqlite.session import SqliteSession, finish

__all__ = ["letters", "letters_of", "restore"]

_IN_ORDER = """
SELECT d.id FROM redrive_deliveries d INDEXED BY redrive_letters_in_order
JOIN redrive_events e ON e.position = d.position
JOIN redrive_destinations t ON t.id = d.destination
WHERE {where} AND d.id > ? ORDER BY d.id LIMIT ?
"""
_EVENTS = """
SELECT id, CAST(document AS BLOB) FROM redrive_events
WHERE id IN (SELECT value FROM json_each(?))
"""
_KNOWN = """
SELECT e.id, t.name FROM json_each(?)
CROSS JOIN redrive_events e ON e.id = value ->> 0
CROSS JOIN redrive_deliveries d ON d.position = e.position
CROSS JOIN redrive_destinations t ON t.id = d.destination
WHERE t.name = value ->> 1
"""
_INSERT = """
INSERT INTO redrive_deliveries
    (position, destination, status, is_ready, kind, priority, generation, tenant, lane, due,
     deadline, enqueued_at, attempts, snoozes, crashes, settled_at, first_failed_at,
     last_failed_at, reason, group_id, fault, log, cycles, resolution, resolved_at, payload,
     edits, auto_replays)
SELECT position, ?, 3, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
FROM redrive_events WHERE id = ?
"""


def letters(
    connection: apsw.Connection, query: Query, *, cursor: str | None, limit: int
) -> LetterPage:
    """Carry out `Letters.letters`."""
    dead = msgspec.structs.replace(query, status=Status.FAILED)
    conditions, values = conditions_of(dead, "d.settled_at")
    _, last = (0, 0) if cursor is None else read_cursor(cursor)
    found = rows(
        connection,
        _IN_ORDER.format(where=" AND ".join(conditions)),
        (*values, last, limit + 1),
    )
    ids = [number for (number,) in found[:limit]]
    page = letters_of(
        connection,
        "WHERE d.id IN (SELECT value FROM json_each(?)) ORDER BY d.id",
        (json_text(ids),),
    )
    has_more = page and len(found) > limit
    return LetterPage(
        letters=tuple(page),
        next_cursor=_place(page[-1].delivery) if has_more else None,
    )


def letters_of(connection: apsw.Connection, where: str, values: Sequence[Any]) -> list[Letter]:
    """Return the dead letters of a condition of ours, whole."""
    deliveries = with_exchanges(connection, find_deliveries(connection, where, values))
    ids = json_text([one.event_id for one in deliveries])
    documents: dict[str, bytes] = dict(rows(connection, _EVENTS, (ids,)))
    return [
        Letter(
            event=event_from(documents[one.event_id], one.event_id, one.event_type), delivery=one
        )
        for one in deliveries
    ]


def _place(delivery: Delivery) -> str:
    return write_cursor(delivery.settled_at or delivery.enqueued_at, delivery.id)


def restore(
    connection: apsw.Connection, given: Sequence[Letter], *, actor: Actor, now: datetime
) -> Restored:
    """Carry out `Letters.restore`."""
    fresh = _unknown(connection, given)
    if not fresh:
        return Restored(known=len(given))
    names = frozenset(one.delivery.destination for one in fresh)
    _add_destinations(connection, sorted(names), now=now)
    destinations = destination_ids(connection, names, with_removed=True)
    add_events(connection, {one.event.id: one.event for one in fresh}.values())
    restore_inbox(connection, {one.event.id for one in fresh})
    give(connection, [(one.event.id, one.delivery.destination) for one in fresh])
    last = connection.execute("SELECT max(id) FROM redrive_deliveries").get or 0
    connection.executemany(_INSERT, [_row(one, destinations) for one in fresh])
    ids = [
        DeliveryId(number)
        for (number,) in rows(
            connection, "SELECT id FROM redrive_deliveries WHERE id > ? ORDER BY id", (last,)
        )
    ]
    told = [(n, one.delivery.exchange) for n, one in zip(ids, fresh, strict=True)]
    finish(keep_exchanges(SqliteSession(connection, now), told))
    fall_in_behind(connection, last)
    pass_by(connection, ids)
    record(connection, "import", ids, actor, now=now)
    return Restored(deliveries=tuple(ids), known=len(given) - len(ids))


def _unknown(connection: apsw.Connection, given: Sequence[Letter]) -> list[Letter]:
    pairs = {(one.event.id, one.delivery.destination): one for one in reversed(given)}
    known = frozenset(rows(connection, _KNOWN, (json_text(list(pairs)),)))
    return [one for pair, one in reversed(pairs.items()) if pair not in known]


def _add_destinations(connection: apsw.Connection, names: Sequence[str], *, now: datetime) -> None:
    """Add destinations that nobody has declared, as removed: nothing is routed to them."""
    for name in names:
        connection.execute(
            "INSERT OR IGNORE INTO redrive_destinations (name, document, removed_at) "
            "VALUES (?, ?, ?)",
            (name, json_text(Destination(name=name, patterns=("*",))), micros(now)),
        )


def _row(letter: Letter, destinations: dict[str, tuple[int, bool]]) -> tuple[object, ...]:
    told = letter.delivery
    number, is_ordered = destinations[told.destination]
    is_in_lane = is_ordered and told.resolution is None
    return (
        number,
        KINDS.index(told.kind),
        told.priority,
        told.generation,
        letter.event.tenant,
        letter.event.key if is_in_lane else None,
        micros(told.due),
        maybe_micros(told.deadline),
        micros(told.enqueued_at),
        told.attempts,
        told.snoozes,
        told.crashes,
        maybe_micros(told.settled_at),
        maybe_micros(told.first_failed_at),
        maybe_micros(told.last_failed_at),
        told.reason,
        told.fault and told.fault.group,
        json_text(told.fault),
        json_text(told.log) if told.log else None,
        json_text(told.cycles) if told.cycles else None,
        json_text(told.resolution) if told.resolution else None,
        None if told.resolution is None else micros(told.resolution.at),
        None if told.payload is None else bytes(told.payload).decode(),
        json_text(told.edits) if told.edits else None,
        told.auto_replays,
        letter.event.id,
    )
