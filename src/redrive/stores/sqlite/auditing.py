"""The audit log in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw
import msgspec

from redrive.model.audit import Actor, AuditEntry
from redrive.model.delivery import DeliveryId
from redrive.stores.codec import from_micros, json_text, micros
from redrive.stores.sqlite.connection import rows

__all__ = ["read_audit", "record"]

_ids = msgspec.json.Decoder(tuple[int, ...])


def record(
    connection: apsw.Connection,
    action: str,
    ids: Sequence[DeliveryId],
    actor: Actor,
    *,
    now: datetime,
    count: int | None = None,
    detail: str = "",
) -> None:
    """Write down what a person has done; `count` is that of the ids unless given."""
    connection.execute(
        "INSERT INTO redrive_audit (at, by, why, action, count, deliveries, detail) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            micros(now),
            actor.by,
            actor.why,
            action,
            len(ids) if count is None else count,
            json_text(ids),
            detail,
        ),
    )


def read_audit(
    connection: apsw.Connection, *, before: int | None, limit: int
) -> Sequence[AuditEntry]:
    """Carry out `Audit.audit`."""
    return tuple(
        AuditEntry(
            id=number,
            at=from_micros(at),
            by=by,
            why=why,
            action=action,
            count=count,
            deliveries=_ids.decode(deliveries),
            detail=detail,
        )
        for number, at, by, why, action, count, deliveries, detail in rows(
            connection,
            "SELECT id, at, by, why, action, count, deliveries, detail FROM redrive_audit "
            "WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2",
            (before, limit),
        )
    )
