"""The tenants of destinations in SQL: their figures, and their pauses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import apsw

from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.fairness import Fairness
from redrive.model.gate import Bucket, Hold, Pause, Rotation
from redrive.policies.fairness import affordable, next_token, rounds_waited, urgency
from redrive.store import TenantFigures
from redrive.stores.codec import from_micros, maybe_from_micros, micros
from redrive.stores.sqlite.auditing import record
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.gating import Gatekeeper

__all__ = ["pause_tenant", "resume_tenant", "tenants"]

_EVERYWHERE = 0
# Counted first and cut to the limit: what is looked up for each is then looked up for few.
_TENANTS = """
WITH busy AS (
    SELECT destination, ifnull(tenant, '') AS tenant, sum(status = 0) AS pending,
           sum(status = 1) AS in_flight
    FROM redrive_deliveries WHERE status IN (0, 1) GROUP BY 1, 2
), known AS (
    SELECT destination, tenant, pending, in_flight FROM busy
    UNION ALL SELECT destination, tenant, 0, 0 FROM redrive_tenants
    UNION ALL SELECT destination, tenant, 0, 0 FROM redrive_tenant_pauses WHERE destination <> 0
    UNION ALL SELECT 0, tenant, 0, 0 FROM redrive_tenant_pauses AS everywhere
        WHERE destination = 0
          AND NOT EXISTS (SELECT 1 FROM busy WHERE busy.tenant = everywhere.tenant)
          AND NOT EXISTS (SELECT 1 FROM redrive_tenants t WHERE t.tenant = everywhere.tenant)
          AND NOT EXISTS (
              SELECT 1 FROM redrive_tenant_pauses p
              WHERE p.tenant = everywhere.tenant AND p.destination <> 0
          )
), counted AS (
    SELECT k.destination, k.tenant, sum(k.pending) AS pending, sum(k.in_flight) AS in_flight
    FROM known k
    WHERE (:destination IS NULL OR k.destination = :destination)
      AND (:tenant IS NULL OR k.tenant = :tenant)
    GROUP BY 1, 2
)
SELECT c.destination, c.tenant, c.pending, c.in_flight, past.served_at, past.round,
       past.processed, past.consecutive, past.tokens, past.refilled_at,
       own.by, own.why, own.at, wide.by, wide.why, wide.at
FROM counted c
LEFT JOIN redrive_destinations d ON d.id = c.destination
LEFT JOIN redrive_tenants past ON past.destination = c.destination AND past.tenant = c.tenant
LEFT JOIN redrive_tenant_pauses own
    ON own.tenant = c.tenant AND own.destination = c.destination AND c.destination <> 0
LEFT JOIN redrive_tenant_pauses wide ON wide.tenant = c.tenant AND wide.destination = 0
ORDER BY c.pending DESC, ifnull(d.name, ''), c.tenant LIMIT :limit
"""


def tenants(
    connection: apsw.Connection,
    *,
    destination: str | None,
    tenant: str | None,
    limit: int,
    now: datetime,
) -> Sequence[TenantFigures]:
    """Carry out `Tenants.tenants`."""
    keeper = Gatekeeper(connection, now=now)
    names = {number: name for name, number in keeper.numbers.items()}
    number = None if destination is None else _extent(keeper, destination)
    found = rows(connection, _TENANTS, {"destination": number, "tenant": tenant, "limit": limit})
    return [_figures(row, names.get(row[0]), keeper, now=now) for row in found]


def pause_tenant(
    connection: apsw.Connection,
    tenant: str,
    *,
    destination: str | None,
    actor: Actor,
    now: datetime,
) -> bool:
    """Carry out `Tenants.pause_tenant`."""
    number = _extent(Gatekeeper(connection, now=now), destination)
    connection.execute(
        "INSERT INTO redrive_tenant_pauses VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (tenant, number, actor.by, actor.why, micros(now)),
    )
    if not connection.changes():
        return False
    _record(connection, "pause_tenant", tenant, destination, actor, now=now)
    return True


def resume_tenant(
    connection: apsw.Connection,
    tenant: str,
    *,
    destination: str | None,
    actor: Actor,
    now: datetime,
) -> bool:
    """Carry out `Tenants.resume_tenant`."""
    number = _extent(Gatekeeper(connection, now=now), destination)
    connection.execute(
        "DELETE FROM redrive_tenant_pauses WHERE tenant = ? AND destination = ?", (tenant, number)
    )
    if not connection.changes():
        return False
    _record(connection, "resume_tenant", tenant, destination, actor, now=now)
    return True


def _figures(
    row: Sequence[Any], destination: str | None, keeper: Gatekeeper, *, now: datetime
) -> TenantFigures:
    _, tenant, pending, in_flight, served_at, last_round, processed, consecutive = row[:8]
    fairness = Fairness() if destination is None else keeper.fairness(destination)
    rotation = Rotation() if destination is None else keeper.gate(destination).rotation
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
        last_served_at=maybe_from_micros(served_at),
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
    bucket = Bucket() if row[9] is None else Bucket(row[8], from_micros(row[9]))
    if rate is None or affordable(bucket, rate, now=now) > 0:
        return None, None
    return Hold.RATE, next_token(bucket, rate, now=now)


def _pause(columns: Sequence[Any]) -> Pause | None:
    by, why, at = columns
    return None if at is None else Pause(by=by, why=why, at=from_micros(at))


def _extent(keeper: Gatekeeper, destination: str | None) -> int:
    if destination is None:
        return _EVERYWHERE
    if destination not in keeper.numbers:
        raise not_found(destination, sorted(keeper.numbers), what="destination")
    return keeper.numbers[destination]


def _record(
    connection: apsw.Connection,
    action: str,
    tenant: str,
    destination: str | None,
    actor: Actor,
    *,
    now: datetime,
) -> None:
    detail = tenant if destination is None else f"{tenant} at {destination}"
    record(connection, action, (), actor, now=now, count=1, detail=detail)
