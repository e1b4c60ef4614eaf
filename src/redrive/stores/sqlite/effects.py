"""Effects in SQL: the inbox, and what is committed together with an effect."""

from __future__ import annotations

from datetime import datetime

import apsw

from redrive.model.delivery import Attempt, Leased
from redrive.model.settlement import Delivered
from redrive.store import ALREADY_APPLIED, Settled
from redrive.stores.codec import micros
from redrive.stores.inbox import inbox_key
from redrive.stores.sql.leases import note, settle
from redrive.stores.sqlite.session import SqliteSession

__all__ = [
    "enter",
    "settle_effect",
    "settle_repeat",
]

_WORKER = """
SELECT worker FROM redrive_deliveries
WHERE id = ? AND token = ? AND status = 1 AND lease_until > ?
"""
_TAKE = """
INSERT INTO redrive_inbox (handler, source, key, event) VALUES (?, ?, ?, ?)
ON CONFLICT (handler, source, key) DO NOTHING
"""
_TAKE_OVER = """
UPDATE redrive_inbox SET event = ?, since = NULL WHERE handler = ? AND source = ? AND key = ?
"""


def enter(connection: apsw.Connection, leased: Leased, *, now: datetime) -> bool | None:
    """Take the inbox record of a delivery whose lease is current; `None` if it is not.

    Tells whether the effect is still to be applied.
    """
    if _worker(connection, leased, now=now) is None:
        return None
    record = (leased.destination, *inbox_key(leased.event))
    connection.execute(_TAKE, (*record, leased.event.id))
    if connection.changes():
        return True
    connection.execute(_TAKE_OVER, (leased.event.id, *record))
    return False


async def settle_effect(session: SqliteSession, leased: Leased, *, history: int) -> bool:
    """Settle as delivered, and tell whether that was accepted."""
    settled = Settled(lease=leased.lease, settlement=Delivered())
    refused, _ = await settle(session, [settled], history=history)
    return not refused


async def settle_repeat(session: SqliteSession, leased: Leased, *, history: int) -> bool:
    """Settle what was applied before, and say so in its story."""
    attempt = Attempt(
        number=leased.attempt,
        started_at=leased.claimed_at,
        ended_at=session.now,
        worker=_worker(session.connection, leased, now=session.now) or "",
        result=ALREADY_APPLIED,
    )
    await note(session, [(leased.lease, attempt)], history=history)
    return await settle_effect(session, leased, history=history)


def _worker(connection: apsw.Connection, leased: Leased, *, now: datetime) -> str | None:
    lease = leased.lease
    worker: str | None = connection.execute(
        _WORKER, (lease.delivery_id, lease.token, micros(now))
    ).get
    return worker
