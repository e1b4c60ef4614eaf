"""The inbox of effects, and what is committed together with an effect."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.model.delivery import Attempt, Leased
from redrive.model.settlement import Delivered
from redrive.store import ALREADY_APPLIED, Settled
from redrive.stores.inbox import inbox_key
from redrive.stores.sql.leases import note, settle
from redrive.stores.sql.session import Session

__all__ = ["settle_effect", "take_effect"]

_WORKER = """
SELECT worker FROM redrive.deliveries
WHERE id = $1 AND token = $2 AND status = 1 AND lease_until > $3
"""
# In PostgreSQL, somebody who applies the same waits here until this transaction ends.
_TAKE = """
INSERT INTO redrive.inbox (handler, source, key, event)
SELECT $1, $2, $3, $4::uuid FROM redrive.deliveries
WHERE id = $5 AND token = $6 AND status = 1 AND lease_until > $7
ON CONFLICT (handler, source, key) DO NOTHING RETURNING 1
"""
_TAKE_OVER = """
UPDATE redrive.inbox SET event = $4::uuid, since = NULL
WHERE handler = $1 AND source = $2 AND key = $3
"""


async def take_effect(session: Session, leased: Leased) -> bool | None:
    """Take the inbox record of a delivery whose lease is current; `None` if it is not.

    Tells whether the effect is still to be applied.
    """
    record = (leased.destination, *inbox_key(leased.event), leased.event.id)
    lease = leased.lease
    if await session.fetch(_TAKE, *record, lease.delivery_id, lease.token, session.now):
        return True
    if await _worker(session, leased) is None:
        return None
    await session.fetch(_TAKE_OVER, *record)
    return False


async def settle_effect(
    session: Session,
    leased: Leased,
    *,
    is_new: bool,
    history: int,
    followers: Sequence[Leased] = (),
) -> tuple[bool, bool]:
    """Settle as delivered; tell whether any was refused, and whether a lane was freed.

    The story of a delivery whose effect is not new says that it was applied before.
    """
    if not is_new:
        attempt = Attempt(
            number=leased.attempt,
            started_at=leased.claimed_at,
            ended_at=session.now,
            worker=await _worker(session, leased) or "",
            result=ALREADY_APPLIED,
        )
        await note(session, [(leased.lease, attempt)], history=history)
    settled = [Settled(lease=one.lease, settlement=Delivered()) for one in (leased, *followers)]
    refused, frees = await settle(session, settled, history=history)
    return bool(refused), frees


async def _worker(session: Session, leased: Leased) -> str | None:
    lease = leased.lease
    worker: str | None = await session.value(_WORKER, lease.delivery_id, lease.token, session.now)
    return worker
