"""The audit log in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.stores.postgres.connection import Link

__all__ = ["record"]

_RECORD = """
INSERT INTO redrive.audit (at, by, why, action, count, deliveries, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""


async def record(
    link: Link,
    action: str,
    ids: Sequence[DeliveryId],
    actor: Actor,
    *,
    now: datetime,
    count: int | None = None,
    detail: str = "",
) -> None:
    """Write down what a person has done; `count` is that of the ids unless given."""
    await link.fetch(
        _RECORD,
        now,
        actor.by,
        actor.why,
        action,
        len(ids) if count is None else count,
        list(ids),
        detail,
    )
