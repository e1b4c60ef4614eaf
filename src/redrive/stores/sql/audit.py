"""The audit log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.model.audit import Actor, AuditEntry, AuditQuery
from redrive.model.delivery import DeliveryId
from redrive.store import EVERYTHING
from redrive.stores.sql.session import Either, Session, instant
from redrive.stores.sql.store import SqlStore, reading, writing

__all__ = ["AuditRole", "read_audit", "record"]

_RECORD = """
INSERT INTO redrive.audit (at, by, why, action, count, deliveries, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_READ = """
SELECT id, at, by, why, action, count, deliveries, detail FROM redrive.audit
WHERE ($1::bigint IS NULL OR id < $1) AND ($3::text IS NULL OR by = $3)
  AND ($4::text IS NULL OR action = $4) AND ($5::text IS NULL OR {contains}(detail, $5) > 0)
  AND ($6::timestamptz IS NULL OR at >= $6) AND ($7::timestamptz IS NULL OR at < $7)
  AND ($8 IS NULL OR {changed})
ORDER BY id DESC LIMIT $2
"""
_FOUND = Either(
    sqlite=_READ.format(
        contains="instr",
        changed="""EXISTS (
      SELECT 1 FROM json_each(deliveries) AS one
      WHERE one.value IN (SELECT value FROM json_each($8))
  )""",
    ),
    postgres=_READ.replace("$8 IS", "$8::bigint[] IS").format(
        contains="strpos", changed="deliveries && $8::bigint[]"
    ),
)
_ids = msgspec.json.Decoder(tuple[int, ...])


class AuditRole(SqlStore):
    """`Audit`."""

    @reading
    async def audit(
        self,
        session: Session,
        query: AuditQuery = EVERYTHING,
        *,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[AuditEntry]:
        return await read_audit(session, query, before=before, limit=limit)

    @writing()
    async def note(
        self,
        session: Session,
        action: str,
        ids: Sequence[DeliveryId],
        *,
        actor: Actor,
        count: int | None = None,
        detail: str = "",
    ) -> None:
        await record(session, action, ids, actor, count=count, detail=detail)


async def read_audit(
    session: Session, query: AuditQuery = EVERYTHING, *, before: int | None, limit: int
) -> Sequence[AuditEntry]:
    """Return matching entries, the latest first."""
    values = query.by, query.action, query.name, query.since, query.until
    deliveries = None if query.deliveries is None else list(query.deliveries)
    return tuple(
        AuditEntry(
            id=number,
            at=instant(at),
            by=by,
            why=why,
            action=action,
            count=count,
            deliveries=_ids.decode(ids) if isinstance(ids, str) else tuple(ids),
            detail=detail,
        )
        for number, at, by, why, action, count, ids, detail in await session.fetch(
            _FOUND, before, limit, *values, deliveries
        )
    )


async def record(
    session: Session,
    action: str,
    ids: Sequence[DeliveryId],
    actor: Actor,
    *,
    count: int | None = None,
    detail: str = "",
) -> None:
    """Write down what a person has done; `count` is that of the ids unless given."""
    size = len(ids) if count is None else count
    await session.fetch(_RECORD, session.now, actor.by, actor.why, action, size, list(ids), detail)
