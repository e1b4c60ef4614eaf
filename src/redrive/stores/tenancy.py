"""The tenants of a destination as people see them, whatever SQL their rows come from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from redrive.claiming.round_robin import affordable, next_token, rounds_waited, urgency
from redrive.errors import not_found
from redrive.model.fairness import Fairness
from redrive.model.gate import Bucket, Hold, Pause, Rotation
from redrive.store import TenantFigures
from redrive.stores.gatekeeping import GateBook

__all__ = ["extent_of", "figures_of", "named_extent"]

_EVERYWHERE = 0
"""Stands for all destinations where the number of one would be."""


def extent_of(book: GateBook, destination: str | None) -> int:
    """Return the number of a destination, or the one that stands for all of them."""
    if destination is None:
        return _EVERYWHERE
    if destination not in book.numbers:
        raise not_found(destination, sorted(book.numbers), what="destination")
    return book.numbers[destination]


def named_extent(tenant: str, destination: str | None) -> str:
    """Return a tenant, and where it is meant, as the audit log has it."""
    return tenant if destination is None else f"{tenant} at {destination}"


def figures_of(
    row: Sequence[Any], destination: str | None, book: GateBook, *, now: datetime
) -> TenantFigures:
    """Return the figures of a row: counts, the past, the bucket, the own pause and the wide one.

    Its instants are instants already.
    """
    _, tenant, pending, in_flight, served_at, last_round, processed, consecutive = row[:8]
    fairness = Fairness() if destination is None else book.fairness(destination)
    rotation = Rotation() if destination is None else book.gate(destination).rotation
    waited = rounds_waited(rotation, last_round, pending=pending)
    own, wide = _pause(row[10:13]), _pause(row[13:16])
    hold, until = (Hold.PAUSED, None) if own or wide else _rate_hold(row, fairness, now=now)
    return TenantFigures(
        tenant=tenant or None,
        destination=destination,
        pending=pending,
        in_flight=in_flight,
        processed=processed or 0,
        consecutive=consecutive or 0,
        last_served_at=served_at,
        rounds_waited=waited,
        urgency=urgency(waited),
        turn=0 if destination is None else fairness.turn_of(tenant),
        hold=hold,
        until=until,
        pause=own or wide,
        is_paused_everywhere=wide is not None,
    )


def _rate_hold(
    row: Sequence[Any], fairness: Fairness, *, now: datetime
) -> tuple[Hold | None, datetime | None]:
    rate = fairness.rate_of(row[1])
    bucket = Bucket() if row[9] is None else Bucket(row[8], row[9])
    if rate is None or affordable(bucket, rate, now=now) > 0:
        return None, None
    return Hold.RATE, next_token(bucket, rate, now=now)


def _pause(columns: Sequence[Any]) -> Pause | None:
    by, why, at = columns
    return None if at is None else Pause(by=by, why=why, at=at)
