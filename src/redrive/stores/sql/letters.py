"""Dead letters on their way out of a store, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from redrive.claiming.ready import KINDS
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Status
from redrive.model.destination import Destination, Order
from redrive.model.event import EventId
from redrive.model.letter import Letter
from redrive.model.outcome import Exchange
from redrive.model.recipient import recipient
from redrive.store import LetterPage, Query, Restored
from redrive.stores.codec import (
    destination_from,
    json_text,
    read_cursor,
    write_cursor,
)
from redrive.stores.sealed import Codec
from redrive.stores.sql.audit import record
from redrive.stores.sql.erasing import erased_among
from redrive.stores.sql.gates import add_gates
from redrive.stores.sql.giving import give
from redrive.stores.sql.inspection import conditions_of, find_deliveries, with_exchanges
from redrive.stores.sql.lanes import pass_by
from redrive.stores.sql.leases import keep_addressees, keep_exchanges
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import SqlStore, reading, writing

__all__ = [
    "COLUMNS",
    "LettersRole",
    "add_destinations",
    "insert_deliveries",
    "insert_in_lanes",
    "restore",
]

_IN_ORDER = """
SELECT d.id FROM redrive.deliveries d /* by letters_in_order */
JOIN redrive.events e ON e.position = d.position
JOIN redrive.destinations t ON t.id = d.destination
WHERE {where} AND d.id > {last} ORDER BY d.id LIMIT {limit}
"""
_OLDEST = """
WHERE d.destination = (SELECT id FROM redrive.destinations WHERE name = $1)
  AND d.status = 3 AND d.resolution IS NULL ORDER BY d.settled_at, d.id LIMIT $2
"""
_EVENTS = """
SELECT id::text, convert_to(document, 'UTF8') FROM redrive.events WHERE id = ANY ($1::uuid[])
"""
_ADD_DESTINATIONS = """
INSERT INTO redrive.destinations (name, document, removed_at)
SELECT name, document, $2::timestamptz
FROM json_to_recordset($1::json) AS given (name text, document text) WHERE true ORDER BY name
ON CONFLICT (name) DO NOTHING
"""
_DESTINATIONS = """
SELECT id, document FROM redrive.destinations WHERE name = ANY ($1::text[])
"""
_KEEP_INBOX = """
UPDATE redrive.inbox SET since = NULL WHERE event = ANY ($1::uuid[]) AND since IS NOT NULL
"""
_KNOWN = """
SELECT d.position, t.name, d.rule FROM redrive.deliveries d
JOIN redrive.destinations t ON t.id = d.destination
WHERE d.position = ANY ($1::bigint[])
"""
_TYPES = (
    "position bigint, destination integer, status smallint, is_ready boolean, kind smallint, "
    "priority smallint, generation text, tenant text, lane text, due timestamptz, "
    "deadline timestamptz, enqueued_at timestamptz, attempts integer, snoozes integer, "
    "crashes integer, settled_at timestamptz, first_failed_at timestamptz, "
    "last_failed_at timestamptz, reason text, group_id text, fault jsonb, log jsonb, "
    "cycles jsonb, resolution jsonb, resolved_at timestamptz, payload text, edits jsonb, "
    "auto_replays integer, rule text"
)
COLUMNS = tuple(column.split()[0] for column in _TYPES.split(", "))
"""What a row of a delivery has that is stored as it is."""
_COLUMNS = ", ".join(COLUMNS)
_INSERT = f"""
INSERT INTO redrive.deliveries ({_COLUMNS}, is_behind)
SELECT {_COLUMNS}, lane IS NOT NULL AND (
    row_number() OVER (PARTITION BY destination, lane ORDER BY place) > 1 OR EXISTS (
        SELECT FROM redrive.deliveries AS head
        WHERE head.destination = given.destination AND head.lane = given.lane
          AND head.status <> 2 AND head.resolution IS NULL
    )
)
FROM json_to_recordset($1::json) AS given (place integer, {_TYPES})
ORDER BY place
RETURNING id, position, destination, rule
"""


class LettersRole(SqlStore):
    """`Letters`, and which of them are the oldest."""

    @reading
    async def letters(
        self, session: Session, query: Query, *, cursor: str | None = None, limit: int = 500
    ) -> LetterPage:
        dead = msgspec.structs.replace(query, status=Status.FAILED)
        conditions, values = await conditions_of(session, dead, "d.settled_at")
        _, last = (0, 0) if cursor is None else read_cursor(cursor)
        statement = _IN_ORDER.format(
            where=" AND ".join(conditions),
            last=f"${len(values) + 1}",
            limit=f"${len(values) + 2}",
        )
        ids = [number for (number,) in await session.fetch(statement, *values, last, limit + 1)]
        page = await _letters(session, "WHERE d.id = ANY ($1::bigint[]) ORDER BY d.id", ids[:limit])
        if not page or len(ids) <= limit:
            return LetterPage(letters=tuple(page))
        end = page[-1].delivery
        return LetterPage(
            letters=tuple(page),
            next_cursor=write_cursor(end.settled_at or end.enqueued_at, end.id),
        )

    @reading
    async def oldest_letters(
        self, session: Session, destination: str, *, limit: int = 500
    ) -> Sequence[Letter]:
        return await _letters(session, _OLDEST, destination, limit)

    @writing()
    async def restore(
        self, session: Session, letters: Sequence[Letter], *, actor: Actor
    ) -> Restored:
        return await restore(session, letters, actor=actor)


async def _letters(session: Session, where: str, *values: object) -> list[Letter]:
    """Return the dead letters of a condition of ours, whole."""
    deliveries = await with_exchanges(session, await find_deliveries(session, where, *values))
    found = await session.fetch(_EVENTS, [one.event_id for one in deliveries])
    documents: dict[str, bytes] = dict(found)
    return [
        Letter(
            event=session.codec.event(documents[one.event_id], one.event_id, one.event_type),
            delivery=one,
        )
        for one in deliveries
    ]


async def restore(session: Session, given: Sequence[Letter], *, actor: Actor) -> Restored:
    """Take dead letters in, but for those of which there is a delivery."""
    await session.look_at_encryption()
    destinations = await add_destinations(
        session, sorted({one.delivery.destination for one in given})
    )
    positions = await session.add_events({one.event.id: one.event for one in given})
    await session.fetch(_KEEP_INBOX, list(positions))
    fresh = await _unknown(session, given, positions)
    if not fresh:
        return Restored(known=len(given))
    rows = [
        _row(one, positions[one.event.id], *destinations[one.delivery.destination], session.codec)
        for one in fresh
    ]
    numbers = await insert_deliveries(session, rows, [one.delivery.exchange for one in fresh])
    addressees = [one.delivery.addressees for one in fresh]
    await keep_addressees(session, list(zip(numbers, addressees, strict=True)))
    await give(session, [(positions[one.event.id], None, one.delivery.recipient) for one in fresh])
    ids = sorted(numbers)
    await pass_by(session, ids)
    await record(session, "import", ids, actor)
    return Restored(deliveries=tuple(ids), known=len(given) - len(ids))


async def insert_deliveries(
    session: Session,
    rows: Sequence[Mapping[str, object]],
    exchanges: Sequence[Exchange | None],
) -> list[DeliveryId]:
    """Store deliveries as they are, behind those of their lanes; returns their ids."""
    found = await session.insert_deliveries(rows)
    numbers: dict[tuple[object, ...], int] = {tuple(whose): number for number, *whose in found}
    ids = [
        DeliveryId(numbers[row["position"], row["destination"], row.get("rule")]) for row in rows
    ]
    await keep_exchanges(session, list(zip(ids, exchanges, strict=True)))
    return ids


async def insert_in_lanes(
    session: Session, rows: Sequence[Mapping[str, object]]
) -> Sequence[tuple[int, int, int, int | None]]:
    """Insert rows of deliveries, each behind those of its lane if it is in one."""
    numbered = [{"place": place, **row} for place, row in enumerate(rows)]
    return await session.fetch(_INSERT, session.records(numbered))


async def add_destinations(
    session: Session, names: Sequence[str]
) -> dict[str, tuple[int, Destination]]:
    """Add destinations that nobody has declared, as removed: nothing is routed to them."""
    rows = [
        {"name": name, "document": json_text(Destination(name=name, patterns=("*",)))}
        for name in names
    ]
    await session.fetch(_ADD_DESTINATIONS, session.records(rows), session.now)
    await add_gates(session, list(names))
    found = await session.fetch(_DESTINATIONS, list(names))
    known = [(number, destination_from(document)) for number, document in found]
    return {destination.name: (number, destination) for number, destination in known}


async def _unknown(
    session: Session, given: Sequence[Letter], positions: Mapping[EventId, int]
) -> list[Letter]:
    erased = await erased_among(session, positions)
    pairs = {
        (positions[one.event.id], one.delivery.recipient): one
        for one in reversed(given)
        if one.event.id not in erased
    }
    found = await session.fetch(_KNOWN, list(positions.values()))
    known = {(position, recipient(name, rule or "")) for position, name, rule in found}
    return [one for pair, one in reversed(pairs.items()) if pair not in known]


def _row(
    letter: Letter, position: int, number: int, destination: Destination, codec: Codec
) -> dict[str, object]:
    told = letter.delivery
    resolution = told.resolution
    is_in_lane = destination.order is not Order.NONE and resolution is None
    return {
        "position": position,
        "destination": number,
        "status": 3,
        "is_ready": True,
        "kind": KINDS.index(told.kind),
        "priority": told.priority,
        "generation": told.generation,
        "tenant": letter.event.tenant,
        "lane": letter.event.key if is_in_lane else None,
        "due": told.due,
        "deadline": told.deadline,
        "enqueued_at": told.enqueued_at,
        "attempts": told.attempts,
        "snoozes": told.snoozes,
        "crashes": told.crashes,
        "settled_at": told.settled_at,
        "first_failed_at": told.first_failed_at,
        "last_failed_at": told.last_failed_at,
        "reason": told.reason,
        "group_id": told.fault and told.fault.group,
        "fault": told.fault,
        "log": told.log or None,
        "cycles": told.cycles or None,
        "resolution": resolution,
        "resolved_at": resolution and resolution.at,
        "payload": told.payload and codec.payload_text(told.payload, letter.event.id),
        "edits": told.edits or None,
        "auto_replays": told.auto_replays,
        "rule": told.rule or None,
    }
