"""The audit log in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.stores.codec import json_text, micros

__all__ = ["record"]


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
