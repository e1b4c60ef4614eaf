"""Events that come back with their dead letters, in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.event import Event, EventId
from redrive.stores.postgres.append import take_versions
from redrive.stores.postgres.codec import columns, is_uuid
from redrive.stores.postgres.idempotency import restore_keys
from redrive.stores.postgres.pool import Link

__all__ = ["add_events"]

_KNOWN = "SELECT id::text FROM redrive.events WHERE id = ANY ($1::uuid[])"
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


async def add_events(
    link: Link, events: Mapping[EventId, Event[msgspec.Raw]]
) -> dict[EventId, int]:
    """Append events unless they are there; return their positions, and lock them and their keys.

    One that is there when it is looked for may have been pruned when it is to be locked.
    """
    ids = list(events)
    for one in ids:
        _check_id(one)
    # Whoever restores the same events waits here, so that no version is given to nothing.
    await take_versions(link, (), also=[one.key for one in events.values() if one.key is not None])
    while True:
        known = {row[0] for row in await link.fetch(_KNOWN, ids)}
        missing = [one for one in events.values() if one.id not in known]
        await _add_missing(link, missing)
        locked = {EventId(row[0]): int(row[1]) for row in await link.fetch(_LOCK_EVENTS, ids)}
        if len(locked) == len(events):
            return locked


async def _add_missing(link: Link, missing: Sequence[Event[msgspec.Raw]]) -> None:
    turns = await take_versions(link, [one.key for one in missing])
    rows = [
        (one.id, one.type, one.key, *turn, link.codec.event_text(one))
        for one, turn in zip(missing, turns, strict=True)
    ]
    added = {EventId(row[0]) for row in await link.fetch(_ADD_EVENTS, *columns(rows, 6))}
    await restore_keys(link, [one for one in missing if one.id in added])


def _check_id(event_id: EventId) -> None:
    if not is_uuid(event_id) or event_id != event_id.lower():
        raise ConfigurationError(
            f"The event id {event_id!r} is not a UUID in small letters, as PostgreSQL keeps them; "
            "import the letter into a store of its own kind."
        )
