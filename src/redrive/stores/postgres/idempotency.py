"""Idempotency keys in SQL: who takes one, and what it answers when its event has gone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from redrive.model.event import Event, EventId
from redrive.store import Entry
from redrive.stores.deduplicate import Kept, Remains, remains_from
from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.pool import Link

__all__ = ["give_back_keys", "restore_keys", "take_keys"]

_TAKE = """
WITH taken AS (
    INSERT INTO redrive.idempotency (source, key, event)
    SELECT source, key, event FROM unnest($1::text[], $2::text[], $3::uuid[])
        AS given (source, key, event)
    ORDER BY source, key
    ON CONFLICT (source, key) DO NOTHING
    RETURNING source, key
)
SELECT source, key FROM taken
"""
_HOLDERS = """
SELECT i.source, i.key, i.remains, e.destinations, e.version, e.document
FROM unnest($1::text[], $2::text[]) AS given (source, key)
JOIN redrive.idempotency i ON i.source = given.source AND i.key = given.key
LEFT JOIN redrive.events e ON e.id = i.event
"""
_GIVE_BACK = """
DELETE FROM redrive.idempotency
WHERE (source, key) IN (SELECT * FROM unnest($1::text[], $2::text[]))
"""
_REVIVE = """
UPDATE redrive.idempotency i SET since = NULL, remains = NULL
FROM unnest($1::text[], $2::text[], $3::uuid[]) AS given (source, key, event)
WHERE i.source = given.source AND i.key = given.key AND i.event = given.event
  AND i.remains IS NOT NULL
"""


async def take_keys(
    link: Link, entries: Sequence[Entry], known: dict[object, Kept | Remains]
) -> list[tuple[str, str]]:
    """Take the idempotency keys that are free, and note in `known` who had the others.

    Somebody who takes the same key at the same moment waits here until this transaction ends.
    """
    wanted: dict[tuple[str, str], EventId] = {}
    for entry in entries:
        event = entry.event
        if event.idempotency_key is not None and event.id not in known:
            wanted.setdefault((event.source, event.idempotency_key), event.id)
    taken: list[tuple[str, str]] = []
    while wanted:
        rows = [(*pair, event_id) for pair, event_id in wanted.items()]
        for source, key in await link.fetch(_TAKE, *columns(rows, 3)):
            taken.append((source, key))
            del wanted[(source, key)]
        if not wanted:
            break
        for source, key, remains, destinations, version, document in await link.fetch(
            _HOLDERS, *columns(list(wanted), 2)
        ):
            known[(source, key)] = (
                remains_from(remains)
                if document is None
                else Kept(link.codec.event(document), tuple(destinations), version)
            )
            del wanted[(source, key)]
        # What is left was there, and has been kept long enough since: it is free now.
    return taken


async def give_back_keys(link: Link, taken: Sequence[tuple[str, str]]) -> None:
    """Free keys that this transaction has taken."""
    if taken:
        await link.fetch(_GIVE_BACK, *columns(taken, 2))


async def restore_keys(link: Link, events: Collection[Event[msgspec.Raw]]) -> None:
    """Take the keys of events that come back; one that somebody else has stays as it is."""
    rows = sorted(
        (one.source, one.idempotency_key, one.id)
        for one in events
        if one.idempotency_key is not None
    )
    if rows:
        await link.fetch(_REVIVE, *columns(rows, 3))
        await link.fetch(_TAKE, *columns(rows, 3))
