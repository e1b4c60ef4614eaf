"""Shedding in SQL: what is due and not to wait for its gate becomes a dead letter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw

from redrive.claiming.ready import KINDS
from redrive.model.delivery import Delivery, DeliveryId
from redrive.model.settlement import FailureReason
from redrive.policies.outage import Shedding
from redrive.store import Blame, ShedBlame
from redrive.stores.codec import json_text, micros
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.inspection import find_deliveries
from redrive.stores.sqlite.intervention import fail_pending
from redrive.stores.sqlite.session import SqliteSession, finish

__all__ = ["has_to_shed", "shed"]

# One part per partial index: what a claim sees, suspects, and what no claim has looked at yet.
_DUE = """
SELECT id FROM (
    SELECT id FROM redrive_deliveries
    WHERE destination = :destination AND status = 0 AND is_ready = 1 AND is_behind = 0
      AND crashes < 2 AND (:kind IS NULL OR kind = :kind)
    UNION ALL
    SELECT id FROM redrive_deliveries
    WHERE destination = :destination AND status = 0 AND is_ready = 1 AND is_behind = 0
      AND crashes >= 2 AND (:kind IS NULL OR kind = :kind)
    UNION ALL
    SELECT id FROM redrive_deliveries
    WHERE destination = :destination AND status = 0 AND is_ready = 0 AND is_behind = 0
      AND due <= :now AND (:kind IS NULL OR kind = :kind)
) LIMIT :limit
"""


def has_to_shed(connection: apsw.Connection, *, now: datetime) -> bool:
    """Tell whether anything is not to wait; takes no write lock, unlike `shed`."""
    keeper = finish(GateRepository.read(SqliteSession(connection, now)))
    return any(
        _due(connection, keeper.numbers[name], why, now=now, limit=1)
        for name in keeper.numbers
        if (why := finish(keeper.shedding(name)))
    )


def shed(
    connection: apsw.Connection, *, blame: ShedBlame, now: datetime, limit: int
) -> Sequence[Delivery]:
    """Carry out `DeliveryQueue.shed`."""
    keeper = finish(GateRepository.read(SqliteSession(connection, now)))
    everything: list[DeliveryId] = []
    for name in sorted(keeper.numbers):
        why, rest = finish(keeper.shedding(name)), limit - len(everything)
        if why is None or rest <= 0:
            continue
        found = _due(connection, keeper.numbers[name], why, now=now, limit=rest)
        if found:
            fail_pending(connection, found, why.reason, _of(blame, why.reason), now=now)
            everything += found
    return find_deliveries(
        connection,
        "WHERE d.id IN (SELECT value FROM json_each(?)) ORDER BY d.id",
        (json_text(everything),),
    )


def _due(
    connection: apsw.Connection, destination: int, why: Shedding, *, now: datetime, limit: int
) -> list[DeliveryId]:
    values = {
        "destination": destination,
        "kind": None if why.kind is None else KINDS.index(why.kind),
        "now": micros(now),
        "limit": limit,
    }
    return [DeliveryId(number) for (number,) in rows(connection, _DUE, values)]


def _of(blame: ShedBlame, reason: FailureReason) -> Blame:
    return lambda destination: blame(destination, reason)
