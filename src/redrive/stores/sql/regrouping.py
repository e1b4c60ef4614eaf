"""Dead letters whose fingerprint was made in an older way get their group of today."""

from __future__ import annotations

from redrive.store import Grouping
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import SqlStore, reading, writing

__all__ = ["RegroupingRole"]

_IS_OUTDATED = """d.status = 3 AND d.group_id COLLATE "C" < $1"""
_COUNT = f"SELECT count(*) FROM redrive.deliveries d WHERE {_IS_OUTDATED}"
_HAS_OUTDATED = f"SELECT EXISTS (SELECT FROM redrive.deliveries d WHERE {_IS_OUTDATED})"
_OUTDATED = f"""
SELECT d.id, t.name, d.group_id, d.fault::text
FROM redrive.deliveries d CROSS JOIN redrive.destinations t
WHERE t.id = d.destination AND {_IS_OUTDATED}
ORDER BY d.group_id COLLATE "C" LIMIT $2 FOR UPDATE OF d SKIP LOCKED
"""
_REGROUP = """
UPDATE redrive.deliveries AS d
SET group_id = given.fault::jsonb ->> 'group', fault = given.fault::jsonb
FROM json_to_recordset($1::json) AS given (id bigint, fault text) WHERE d.id = given.id
"""
_NAME = """
INSERT INTO redrive.group_aliases (old, new, at)
SELECT old, new, $2 FROM json_to_recordset($1::json) AS given (old text, new text) WHERE true
ON CONFLICT DO NOTHING
"""


class RegroupingRole(SqlStore):
    """What `Housekeeping` does about groups."""

    async def regroup(self, grouped: Grouping, *, before: str, limit: int = 200) -> int:
        if not await self._has_outdated(before):
            return 0
        return await self._regroup(grouped, before=before, limit=limit)

    @reading
    async def _has_outdated(self, session: Session, before: str) -> bool:
        return bool(await session.value(_HAS_OUTDATED, before))

    @writing()
    async def _regroup(
        self, session: Session, grouped: Grouping, *, before: str, limit: int
    ) -> int:
        found = [
            (number, old, grouped(fault, name))
            for number, name, old, document in await session.fetch(_OUTDATED, before, limit)
            if (fault := session.codec.fault(document)) is not None
        ]
        faults = [{"id": number, "fault": session.json(fault)} for number, _, fault in found]
        await session.fetch(_REGROUP, session.records(faults))
        aliases = sorted({(old, fault.group) for _, old, fault in found if old})
        names = [{"old": old, "new": new} for old, new in aliases]
        await session.fetch(_NAME, session.records(names), session.now)
        return len(found)

    @reading
    async def outdated(self, session: Session, *, before: str) -> int:
        return int(await session.value(_COUNT, before))
