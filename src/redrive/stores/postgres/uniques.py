"""Unique keys in SQL: an event that is to be unique takes one, for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from redrive.model.event import EventId, Receipt
from redrive.store import Entry
from redrive.stores.deduplicate import Kept, Remains, unique_key
from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.pool import Link

__all__ = ["Uniques", "give_back_uniques", "take_uniques"]

_TAKE = """
INSERT INTO redrive.uniques AS held (source, key, event, until)
SELECT source, key, event, until
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::timestamptz[])
    AS given (source, key, event, until)
ORDER BY source, key
ON CONFLICT (source, key) DO UPDATE SET event = excluded.event, until = excluded.until
WHERE held.until <= $5::timestamptz
RETURNING source, key
"""
_HOLDERS = """
SELECT u.source, u.key, u.event::text, e.destinations, e.version
FROM unnest($1::text[], $2::text[]) AS given (source, key)
JOIN redrive.uniques u ON u.source = given.source AND u.key = given.key
LEFT JOIN redrive.events e ON e.id = u.event
"""
_GIVE_BACK = """
DELETE FROM redrive.uniques
WHERE (source, key) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""


class Uniques(msgspec.Struct, frozen=True):
    """Which unique keys were asked for, and of those that others hold, what is said of them."""

    asked: Sequence[tuple[str, str]] = ()
    held: dict[tuple[str, str], Receipt] = {}


async def take_uniques(
    link: Link, entries: Sequence[Entry], known: Mapping[object, Kept | Remains], *, now: datetime
) -> Uniques:
    """Take the unique keys that are free, until their time has passed.

    Somebody who takes the same key at the same moment waits here until this transaction ends.
    """
    wanted: dict[tuple[str, str], tuple[EventId, datetime]] = {}
    for entry in entries:
        key = unique_key(entry, link.codec)
        if key is not None and entry.unique is not None and entry.event.id not in known:
            wanted.setdefault(key, (entry.event.id, now + entry.unique.span))
    asked, held = list(wanted), dict[tuple[str, str], Receipt]()
    while wanted:
        rows = [(*key, *given) for key, given in wanted.items()]
        for source, key in await link.fetch(_TAKE, *columns(rows, 4), now):
            del wanted[(source, key)]
        if not wanted:
            break
        for source, key, event, destinations, version in await link.fetch(
            _HOLDERS, *columns(list(wanted), 2)
        ):
            held[(source, key)] = Receipt(
                event_id=EventId(event),
                destinations=tuple(destinations or ()),
                is_duplicate=True,
                version=version,
            )
            del wanted[(source, key)]
        # What is left was there, and has gone since: it is free now.
    return Uniques(asked, held)


async def give_back_uniques(link: Link, uniques: Uniques, *, stored: Sequence[Entry]) -> None:
    """Free the keys that were taken for entries that are not stored."""
    used = {unique_key(entry, link.codec) for entry in stored}
    free = [one for one in uniques.asked if one not in used and one not in uniques.held]
    if free:
        await link.fetch(_GIVE_BACK, *columns(free, 2))
