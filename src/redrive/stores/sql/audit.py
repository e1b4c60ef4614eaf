"""The audit log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.model.audit import Actor, AuditEntry
from redrive.model.delivery import DeliveryId
from redrive.stores.sql.session import Session, instant
from redrive.stores.sql.store import SqlStore, reading, writing

__all__ = ["AuditRole", "read_audit", "record"]

_RECORD = """
INSERT INTO redrive.audit (at, by, why, action, count, deliveries, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_READ = """
SELECT id, at, by, why, action, count, deliveries, detail FROM redrive.audit
WHERE $1::bigint IS NULL OR id < $1 ORDER BY id DESC LIMIT $2
"""
_ids = msgspec.json.Decoder(tuple[int, ...])


class AuditRole(SqlStore):
    """`Audit`."""

    @reading
    async def audit(
        self, session: Session, *, before: int | None = None, limit: int = 50
    ) -> Sequence[AuditEntry]:
        return await read_audit(session, before=before, limit=limit)

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


async def read_audit(session: Session, *, before: int | None, limit: int) -> Sequence[AuditEntry]:
    """Return entries, the latest first."""
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
            _READ, before, limit
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
