"""Dead letters whose fingerprint was made in an older way get their group of today, in SQL."""

from __future__ import annotations

from datetime import datetime

from redrive.store import Grouping
from redrive.stores.codec import fault_from
from redrive.stores.postgres.codec import columns, jsonb
from redrive.stores.postgres.connection import Link

__all__ = ["COUNT_OUTDATED", "HAS_OUTDATED", "OF_GROUP", "regroup"]

OF_GROUP = """d.group_id IN (
    WITH RECURSIVE named (id) AS (
        SELECT {}::text
        UNION SELECT a.new FROM named JOIN redrive.group_aliases a ON a.old = named.id
    ) SELECT id FROM named
)"""
"""Whether a letter is in a group, by its name of today or an older one."""

HAS_OUTDATED = """
SELECT EXISTS (
    SELECT FROM redrive.deliveries WHERE status = 3 AND group_id COLLATE "C" < $2
), $1::timestamptz
"""
"""Tells whether there is anything to regroup."""

COUNT_OUTDATED = """
SELECT count(*), $1::timestamptz FROM redrive.deliveries
WHERE status = 3 AND group_id COLLATE "C" < $2
"""
_OUTDATED = """
SELECT d.id, t.name, d.group_id, d.fault::text
FROM redrive.deliveries d JOIN redrive.destinations t ON t.id = d.destination
WHERE d.status = 3 AND d.group_id COLLATE "C" < $1
ORDER BY d.group_id COLLATE "C" LIMIT $2 FOR UPDATE OF d SKIP LOCKED
"""
_REGROUP = """
UPDATE redrive.deliveries d
SET group_id = given.fault::jsonb ->> 'group', fault = given.fault::jsonb
FROM unnest($1::bigint[], $2::text[]) AS given (id, fault) WHERE d.id = given.id
"""
_NAME = """
INSERT INTO redrive.group_aliases (old, new, at)
SELECT old, new, $3 FROM unnest($1::text[], $2::text[]) AS given (old, new)
ON CONFLICT DO NOTHING
"""


async def regroup(link: Link, grouped: Grouping, *, before: str, limit: int, now: datetime) -> int:
    """Regroup; what somebody else has in hand is left for the next time."""
    found = [
        (number, old, grouped(fault, name))
        for number, name, old, document in await link.fetch(_OUTDATED, before, limit)
        if (fault := fault_from(document)) is not None
    ]
    if not found:
        return 0
    await link.fetch(_REGROUP, *columns([(number, jsonb(fault)) for number, _, fault in found], 2))
    aliases = sorted({(old, fault.group) for _, old, fault in found if old})
    if aliases:
        await link.fetch(_NAME, *columns(aliases, 2), now)
    return len(found)
