"""Effects in SQL: the inbox, and what is committed together with an effect."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from redrive.errors import TransactionError
from redrive.model.delivery import Attempt, Leased
from redrive.model.settlement import Delivered
from redrive.store import ALREADY_APPLIED, Settled
from redrive.stores.inbox import inbox_key
from redrive.stores.postgres.codec import jsonb
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.settling import settle

__all__ = [
    "Entered",
    "enter",
    "settle_effect",
    "settle_repeat",
    "still_open",
]

_SILENCE = timedelta(seconds=5)

_ENTER = """
SELECT pg_current_xact_id()::text, set_config('idle_in_transaction_session_timeout', $1, true)
"""
_STILL_OPEN = """
SELECT pg_current_xact_id_if_assigned()::text,
       set_config('idle_in_transaction_session_timeout', $1, true)
"""
# Somebody who applies the same waits here until this transaction ends.
_TAKE = """
INSERT INTO redrive.inbox (handler, source, key, event)
SELECT $1, $2, $3, $4::uuid FROM redrive.deliveries d
WHERE d.id = $5 AND d.token = $6 AND d.status = 1 AND d.lease_until > $7
ON CONFLICT (handler, source, key) DO UPDATE SET event = excluded.event, since = NULL
RETURNING xmax = 0
"""
_WORKER = "SELECT worker FROM redrive.deliveries WHERE id = $1"
_NOTE = """
UPDATE redrive.deliveries SET log = CASE
    WHEN jsonb_array_length(coalesce(log, '[]')) < $2 THEN coalesce(log, '[]') || $3::text::jsonb
    ELSE (log - 0) || $3::text::jsonb END
WHERE id = $1
"""


class Entered(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that an effect may run in; with `is_new`, it is still to be applied."""

    number: str
    is_new: bool


async def enter(link: Link, leased: Leased, *, at_most: timedelta, now: datetime) -> Entered | None:
    """Take the inbox record of a delivery whose lease is current; `None` if it is not."""
    number = (await link.fetch(_ENTER, _milliseconds(at_most + _SILENCE)))[0][0]
    lease, event = leased.lease, leased.event
    taken = await link.fetch(
        _TAKE,
        *(leased.destination, *inbox_key(event), event.id),
        *(lease.delivery_id, lease.token, now),
    )
    return Entered(number=number, is_new=taken[0][0]) if taken else None


async def still_open(link: Link, entered: Entered) -> None:
    """Make sure that the handler has left the transaction open."""
    number = (await link.fetch(_STILL_OPEN, _milliseconds(_SILENCE)))[0][0]
    if number != entered.number:
        raise TransactionError(
            "The handler has ended the transaction that it was handed, so its effect could not be "
            "committed together with the delivery; leave commit and rollback to Redrive, and use "
            "`async with connection.transaction():` for a part of it."
        )


async def settle_effect(
    link: Link, leased: Leased, *, now: datetime, history: int
) -> tuple[bool, bool]:
    """Settle as delivered; tell whether that was refused, and whether a lane was freed."""
    settled = Settled(lease=leased.lease, settlement=Delivered())
    refused, frees = await settle(link, [settled], now=now, history=history)
    return bool(refused), frees


async def settle_repeat(
    link: Link, leased: Leased, *, now: datetime, history: int
) -> tuple[bool, bool]:
    """Settle what was applied before, and say so in its story."""
    number = leased.lease.delivery_id
    attempt = Attempt(
        number=leased.attempt,
        started_at=leased.claimed_at,
        ended_at=now,
        worker=await link.value(_WORKER, number) or "",
        result=ALREADY_APPLIED,
    )
    refused, frees = await settle_effect(link, leased, now=now, history=history)
    if not refused:
        await link.fetch(_NOTE, number, history, jsonb(attempt))
    return refused, frees


def _milliseconds(span: timedelta) -> str:
    return str(int(span.total_seconds() * 1000))
