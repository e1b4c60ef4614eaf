"""The tenants of destinations in SQL: their figures, and their pauses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import apsw

from redrive.model.audit import Actor
from redrive.store import TenantFigures
from redrive.stores.codec import maybe_from_micros, micros
from redrive.stores.sqlite.auditing import record
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.gating import GateRepository
from redrive.stores.tenancy import extent_of, figures_of, named_extent

__all__ = ["pause_tenant", "resume_tenant", "tenants"]

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
      AND (NOT :only_paused OR EXISTS (
          SELECT 1 FROM redrive_tenant_pauses p
          WHERE p.tenant = k.tenant AND p.destination IN (0, k.destination)
      ))
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
    only_paused: bool,
    limit: int,
    now: datetime,
) -> Sequence[TenantFigures]:
    """Carry out `Tenants.tenants`."""
    keeper = GateRepository(connection, now=now)
    names = {number: name for name, number in keeper.numbers.items()}
    number = None if destination is None else extent_of(keeper, destination)
    given = {
        "destination": number,
        "tenant": tenant,
        "only_paused": only_paused,
        "limit": limit,
    }
    found = rows(connection, _TENANTS, given)
    return [figures_of(_read(row), names.get(row[0]), keeper, now=now) for row in found]


def pause_tenant(
    connection: apsw.Connection,
    tenant: str,
    *,
    destination: str | None,
    actor: Actor,
    now: datetime,
) -> bool:
    """Carry out `Tenants.pause_tenant`."""
    number = extent_of(GateRepository(connection, now=now), destination)
    connection.execute(
        "INSERT INTO redrive_tenant_pauses VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (tenant, number, actor.by, actor.why, micros(now)),
    )
    if not connection.changes():
        return False
    detail = named_extent(tenant, destination)
    record(connection, "pause_tenant", (), actor, now=now, count=1, detail=detail)
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
    number = extent_of(GateRepository(connection, now=now), destination)
    connection.execute(
        "DELETE FROM redrive_tenant_pauses WHERE tenant = ? AND destination = ?", (tenant, number)
    )
    if not connection.changes():
        return False
    detail = named_extent(tenant, destination)
    record(connection, "resume_tenant", (), actor, now=now, count=1, detail=detail)
    return True


def _read(row: Sequence[Any]) -> list[Any]:
    """Return a row with its microseconds as instants."""
    instants = {4, 9, 12, 15}
    return [maybe_from_micros(one) if at in instants else one for at, one in enumerate(row)]
