"""Shedding in SQL: what is due and not to wait for its gate becomes a dead letter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.claiming.ready import KINDS
from redrive.model.delivery import Delivery, DeliveryId
from redrive.model.settlement import FailureReason
from redrive.policies.outage import Shedding
from redrive.store import Blame, ShedBlame
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.inspection import find_deliveries
from redrive.stores.postgres.intervention import fail_pending
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.sql.gates import GateRepository

__all__ = ["shed"]

# One part per partial index: what a claim sees, suspects, and what no claim has looked at yet.
# What has changed since it was found is left alone.
_DUE = """
SELECT id FROM redrive.deliveries WHERE id IN (
    SELECT id FROM (
        SELECT id FROM redrive.deliveries
        WHERE destination = $1 AND status = 0 AND is_ready AND NOT is_behind
          AND crashes < 2 AND ($2::smallint IS NULL OR kind % 3 = $2)
        UNION ALL
        SELECT id FROM redrive.deliveries
        WHERE destination = $1 AND status = 0 AND is_ready AND NOT is_behind
          AND crashes >= 2 AND ($2::smallint IS NULL OR kind % 3 = $2)
        UNION ALL
        SELECT id FROM redrive.deliveries
        WHERE destination = $1 AND status = 0 AND NOT is_ready AND NOT is_behind
          AND due <= $3 AND ($2::smallint IS NULL OR kind % 3 = $2)
    ) AS found LIMIT $4
) AND status = 0 AND NOT is_behind AND due <= $3
FOR NO KEY UPDATE SKIP LOCKED
"""


async def shed(
    link: PostgresSession, *, blame: ShedBlame, now: datetime, limit: int
) -> Sequence[Delivery]:
    """Carry out `DeliveryQueue.shed`; gates where nothing is given up are not locked."""
    glance = await GateRepository.read(link, locks=False)
    suspected = [name for name in glance.numbers if await glance.shedding(name)]
    if not suspected:
        return ()
    keeper = await GateRepository.read(link, only=suspected)
    everything: list[DeliveryId] = []
    for name in sorted(keeper.numbers):
        why, rest = await keeper.shedding(name), limit - len(everything)
        if why is None or rest <= 0:
            continue
        found = await _due(link, keeper.numbers[name], why, now=now, limit=rest)
        if found:
            await fail_pending(link, found, why.reason, _of(blame, why.reason), now=now)
            everything += found
    return await find_deliveries(
        link, "WHERE d.id = ANY ($1::bigint[]) ORDER BY d.id", (everything,)
    )


async def _due(
    link: Link, destination: int, why: Shedding, *, now: datetime, limit: int
) -> list[DeliveryId]:
    kind = None if why.kind is None else KINDS.index(why.kind)
    return [DeliveryId(row[0]) for row in await link.fetch(_DUE, destination, kind, now, limit)]


def _of(blame: ShedBlame, reason: FailureReason) -> Blame:
    return lambda destination: blame(destination, reason)
