"""Shedding: what is due and not to wait for its gate becomes a dead letter."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.claiming.ready import KINDS
from redrive.model.delivery import Delivery, DeliveryId
from redrive.model.settlement import FailureReason
from redrive.policies.outage import Shedding
from redrive.store import Blame, ShedBlame
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.inspection import find_deliveries
from redrive.stores.sql.intervention import fail_pending
from redrive.stores.sql.session import Either, Session

__all__ = ["has_to_shed", "shed"]

# One part per partial index: what a claim sees, suspects, and what no claim has looked at yet.
# What has changed since it was found is left alone.
_DUE = """
SELECT id FROM redrive.deliveries WHERE id IN (
    SELECT id FROM (
        SELECT id FROM redrive.deliveries
        WHERE destination = $1 AND status = 0 AND is_ready = true AND is_behind = false
          AND crashes < 2 AND ($2::smallint IS NULL OR kind % 3 = $2)
        UNION ALL
        SELECT id FROM redrive.deliveries
        WHERE destination = $1 AND status = 0 AND is_ready = true AND is_behind = false
          AND crashes >= 2 AND ($2::smallint IS NULL OR kind % 3 = $2)
        UNION ALL
        SELECT id FROM redrive.deliveries
        WHERE destination = $1 AND status = 0 AND is_ready = false AND is_behind = false
          AND due <= $3 AND ($2::smallint IS NULL OR kind % 3 = $2)
    ) AS found LIMIT $4
) AND status = 0 AND is_behind = false AND due <= $3
FOR NO KEY UPDATE SKIP LOCKED
"""
# What a destination is like is told by its document; a name that looks the same costs a look.
_MAY_SHED = Either(
    sqlite="SELECT name FROM redrive.destinations WHERE instr(document, '\"dead_letter\"') > 0",
    postgres="SELECT name FROM redrive.destinations WHERE document LIKE '%\"dead_letter\"%'",
)


async def has_to_shed(session: Session) -> bool:
    """Tell whether anything is not to wait; takes no lock, unlike `shed`."""
    gates = await _who_may_shed(session)
    for name, number in gates.numbers.items():
        why = await gates.shedding(name)
        if why is not None and await _due(session, number, why, limit=1):
            return True
    return False


async def shed(session: Session, *, blame: ShedBlame, limit: int) -> Sequence[Delivery]:
    """Fail what is not to wait, and return it; gates where nothing is given up are not locked."""
    seen = await _who_may_shed(session)
    suspected = [name for name in seen.numbers if await seen.shedding(name)]
    if not suspected:
        return ()
    gates = await GateRepository.lock(session, suspected)
    everything: list[DeliveryId] = []
    for name in sorted(gates.numbers):
        why, rest = await gates.shedding(name), limit - len(everything)
        if why is None or rest <= 0:
            continue
        found = await _due(session, gates.numbers[name], why, limit=rest)
        if found:
            await fail_pending(session, found, why.reason, _of(blame, why.reason))
            everything += found
    return await find_deliveries(
        session, "WHERE d.id = ANY ($1::bigint[]) ORDER BY d.id", everything
    )


async def _who_may_shed(session: Session) -> GateRepository:
    """Read the gates where something may not wait; most destinations have none such."""
    return await GateRepository.read(session, [name for (name,) in await session.fetch(_MAY_SHED)])


async def _due(
    session: Session, destination: int, why: Shedding, *, limit: int
) -> list[DeliveryId]:
    kind = None if why.kind is None else KINDS.index(why.kind)
    found = await session.fetch(_DUE, destination, kind, session.now, limit)
    return [DeliveryId(number) for (number,) in found]


def _of(blame: ShedBlame, reason: FailureReason) -> Blame:
    return lambda destination: blame(destination, reason)
