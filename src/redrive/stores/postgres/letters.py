"""Dead letters on their way out of the PostgreSQL store, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from redrive.claiming.ready import KINDS
from redrive.errors import ConfigurationError
from redrive.model.audit import Actor
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.destination import Destination
from redrive.model.event import Event, EventId
from redrive.model.letter import Letter
from redrive.store import LetterPage, Query, Restored
from redrive.stores.codec import event_from, json_text, read_cursor, write_cursor
from redrive.stores.postgres.auditing import record
from redrive.stores.postgres.codec import columns, is_uuid, jsonb
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.effects import restore_inbox
from redrive.stores.postgres.giving import give
from redrive.stores.postgres.idempotency import restore_keys
from redrive.stores.postgres.inspection import conditions_of, find_deliveries, with_exchanges
from redrive.stores.postgres.lanes import pass_by
from redrive.stores.postgres.log import destination_ids, take_turns
from redrive.stores.postgres.settling import keep_exchanges

__all__ = ["letters", "letters_of", "restore"]

_EVENTS = "SELECT id::text, document FROM redrive.events WHERE id = ANY ($1::uuid[])"
_ADD_DESTINATION = """
WITH added AS (
    INSERT INTO redrive.destinations (name, document, removed_at) VALUES ($1, $2, $3)
    ON CONFLICT (name) DO NOTHING
    RETURNING id
)
INSERT INTO redrive.gates (destination, document) SELECT id, '{}' FROM added
"""
_ADD_EVENTS = """
INSERT INTO redrive.events (id, type, key, version, xid, destinations, document)
SELECT id, type, key, version, coalesce(xid, redrive.log_time()), '{}', document
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[])
    AS given (id, type, key, version, xid, document)
ORDER BY id
ON CONFLICT (id) DO NOTHING
RETURNING id::text
"""
_LOCK_EVENTS = """
SELECT id::text, position FROM redrive.events WHERE id = ANY ($1::uuid[])
ORDER BY id FOR NO KEY UPDATE
"""
_KNOWN = """
SELECT d.position, t.name FROM redrive.deliveries d
JOIN redrive.destinations t ON t.id = d.destination
WHERE d.position = ANY ($1::bigint[])
"""
_COLUMNS = (
    "position, destination, status, is_ready, kind, priority, generation, tenant, lane, due, "
    "deadline, enqueued_at, attempts, snoozes, crashes, settled_at, first_failed_at, "
    "last_failed_at, reason, group_id, fault, log, cycles, resolution, resolved_at, payload, "
    "edits, auto_replays"
)
_INSERT = f"""
INSERT INTO redrive.deliveries ({_COLUMNS}, is_behind)
SELECT {_COLUMNS}, lane IS NOT NULL AND (
    row_number() OVER (PARTITION BY destination, lane ORDER BY ordinality) > 1 OR EXISTS (
        SELECT FROM redrive.deliveries AS head
        WHERE head.destination = given.destination AND head.lane = given.lane
          AND head.status <> 2 AND head.resolution IS NULL
    )
)
FROM json_populate_recordset(NULL::redrive.deliveries, $1::json) WITH ORDINALITY AS given
ORDER BY ordinality
RETURNING id, position, destination
"""


async def letters(link: Link, query: Query, *, cursor: str | None, limit: int) -> LetterPage:
    """Carry out `Letters.letters`."""
    dead = msgspec.structs.replace(query, status=Status.FAILED)
    conditions, values = conditions_of(dead, "d.settled_at")
    _, last = (0, 0) if cursor is None else read_cursor(cursor)
    where = f"WHERE {' AND '.join(conditions)} AND d.id > ${len(values) + 1}"
    found = await letters_of(
        link, f"{where} ORDER BY d.id LIMIT ${len(values) + 2}", (*values, last, limit + 1)
    )
    page = found[:limit]
    has_more = len(found) > limit
    return LetterPage(
        letters=tuple(page), next_cursor=_place(page[-1].delivery) if has_more and page else None
    )


def _place(delivery: Delivery) -> str:
    return write_cursor(delivery.settled_at or delivery.enqueued_at, delivery.id)


async def letters_of(link: Link, where: str, values: Sequence[object]) -> list[Letter]:
    """Return the dead letters of a condition of ours, whole."""
    deliveries = await with_exchanges(link, await find_deliveries(link, where, values))
    found = await link.fetch(_EVENTS, [one.event_id for one in deliveries])
    documents: dict[str, str] = dict(found)
    return [
        Letter(
            event=event_from(documents[one.event_id], one.event_id, one.event_type), delivery=one
        )
        for one in deliveries
    ]


async def restore(link: Link, given: Sequence[Letter], *, actor: Actor, now: datetime) -> Restored:
    """Carry out `Letters.restore`."""
    for one in given:
        _check_id(one.event.id)
    names = frozenset(one.delivery.destination for one in given)
    await _add_destinations(link, sorted(names), now=now)
    destinations = await destination_ids(link, names, with_removed=True)
    positions = await _add_events(link, {one.event.id: one.event for one in given})
    fresh = await _unknown(link, given, positions)
    if not fresh:
        return Restored(known=len(given))
    rows = [
        _row(one, positions[one.event.id], *destinations[one.delivery.destination]) for one in fresh
    ]
    numbers = {
        (row[1], row[2]): DeliveryId(row[0]) for row in await link.fetch(_INSERT, jsonb(rows))
    }
    ids = sorted(numbers.values())
    await keep_exchanges(
        link,
        [
            (numbers[row["position"], row["destination"]], one.delivery.exchange)
            for row, one in zip(rows, fresh, strict=True)
        ],
    )
    await give(link, [(positions[one.event.id], one.delivery.destination) for one in fresh])
    await pass_by(link, ids)
    await record(link, "import", ids, actor, now=now)
    return Restored(deliveries=tuple(ids), known=len(given) - len(ids))


def _check_id(event_id: EventId) -> None:
    if not is_uuid(event_id) or event_id != event_id.lower():
        raise ConfigurationError(
            f"The event id {event_id!r} is not a UUID in small letters, as PostgreSQL keeps them; "
            "import the letter into a store of its own kind."
        )


async def _add_destinations(link: Link, names: Sequence[str], *, now: datetime) -> None:
    """Add destinations that nobody has declared, as removed: nothing is routed to them."""
    for name in names:
        document = json_text(Destination(name=name, patterns=("*",)))
        await link.fetch(_ADD_DESTINATION, name, document, now)


async def _add_events(
    link: Link, events: Mapping[EventId, Event[msgspec.Raw]]
) -> dict[EventId, int]:
    """Append events unless they are there; return their positions, and lock them and their keys.

    One that is there when it is looked for may have been pruned when it is to be locked.
    """
    ids = list(events)
    # Whoever restores the same events waits here, so that no version is given to nothing.
    await take_turns(link, (), also=[one.key for one in events.values() if one.key is not None])
    while True:
        known = {row[0] for row in await link.fetch(_EVENTS, ids)}
        missing = [one for one in events.values() if one.id not in known]
        await _add_missing(link, missing)
        locked = {EventId(row[0]): int(row[1]) for row in await link.fetch(_LOCK_EVENTS, ids)}
        if len(locked) == len(events):
            return locked


async def _add_missing(link: Link, missing: Sequence[Event[msgspec.Raw]]) -> None:
    turns = await take_turns(link, [one.key for one in missing])
    rows = [
        (one.id, one.type, one.key, *turn, json_text(one))
        for one, turn in zip(missing, turns, strict=True)
    ]
    added = {EventId(row[0]) for row in await link.fetch(_ADD_EVENTS, *columns(rows, 6))}
    await restore_keys(link, [one for one in missing if one.id in added])
    await restore_inbox(link, added)


async def _unknown(
    link: Link, given: Sequence[Letter], positions: Mapping[EventId, int]
) -> list[Letter]:
    pairs = {(positions[one.event.id], one.delivery.destination): one for one in reversed(given)}
    known = {(row[0], row[1]) for row in await link.fetch(_KNOWN, list(positions.values()))}
    return [one for pair, one in reversed(pairs.items()) if pair not in known]


def _row(letter: Letter, position: int, destination: int, is_ordered: bool) -> dict[str, Any]:  # noqa: FBT001 - as it was found
    told = letter.delivery
    resolution = told.resolution
    return {
        "position": position,
        "destination": destination,
        "status": 3,
        "is_ready": True,
        "kind": KINDS.index(told.kind),
        "priority": told.priority,
        "generation": told.generation,
        "tenant": letter.event.tenant,
        "lane": letter.event.key if is_ordered and resolution is None else None,
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
        "payload": None if told.payload is None else bytes(told.payload).decode(),
        "edits": told.edits or None,
        "auto_replays": told.auto_replays,
    }
