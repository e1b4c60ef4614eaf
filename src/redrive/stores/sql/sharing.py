"""Rates that several destinations share: a row for each, held by whoever claims from one of them.

They are held after the gates, in the order of their names, by claims and requests alone:
nobody who holds one asks for a gate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from redrive.claiming.sharing import SharedBucket
from redrive.stores.codec import json_text
from redrive.stores.sql.session import Session

__all__ = ["lock_shared", "read_shared", "write_shared"]

_READ = "SELECT name, document FROM redrive.shared_rates WHERE name = ANY ($1::text[])"
_LOCK = f"{_READ} ORDER BY name FOR UPDATE"
_ADD = """
INSERT INTO redrive.shared_rates (name, document)
SELECT name, '{}' FROM json_to_recordset($1::json) AS given (name text) WHERE true
ORDER BY name ON CONFLICT DO NOTHING
"""
_WRITE = """
INSERT INTO redrive.shared_rates (name, document)
SELECT name, document
FROM json_to_recordset($1::json) AS given (name text, document text) WHERE true
ON CONFLICT (name) DO UPDATE SET document = excluded.document
"""

_buckets = msgspec.json.Decoder(SharedBucket)


async def lock_shared(session: Session, names: Collection[str]) -> dict[str, SharedBucket]:
    """Read the tokens of these rates, to take some; what nobody has used yet is full."""
    wanted = sorted(names)
    rows = await session.fetch(_LOCK, wanted)
    if len(rows) < len(wanted):
        await session.fetch(_ADD, session.records([{"name": name} for name in wanted]))
        rows = await session.fetch(_LOCK, wanted)
    return {name: _buckets.decode(document) for name, document in rows}


async def read_shared(session: Session, names: Collection[str]) -> dict[str, SharedBucket]:
    """Read the tokens of these rates, to look at them."""
    rows = await session.fetch(_READ, sorted(names))
    found = {name: _buckets.decode(document) for name, document in rows}
    return {name: found.get(name, SharedBucket()) for name in names}


async def write_shared(session: Session, changed: Mapping[str, SharedBucket]) -> None:
    """Keep what is left of rates that are held."""
    rows = [{"name": name, "document": json_text(one)} for name, one in changed.items()]
    if rows:
        await session.fetch(_WRITE, session.records(rows))
