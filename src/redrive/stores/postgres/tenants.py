"""The tenants of destinations in SQL: their figures, and their pauses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redrive.model.audit import Actor
from redrive.store import TenantFigures
from redrive.stores.postgres.auditing import record
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.gating import GateRepository
from redrive.stores.tenancy import extent_of, figures_of, named_extent

__all__ = ["pause_tenant", "resume_tenant", "tenants"]

# Counted first and cut to the limit: what is looked up for each is then looked up for few.
_TENANTS = """
WITH busy AS (
    SELECT destination, coalesce(tenant, '') COLLATE "C" AS tenant,
           count(*) FILTER (WHERE status = 0) AS pending,
           count(*) FILTER (WHERE status = 1) AS in_flight
    FROM redrive.deliveries WHERE status IN (0, 1) GROUP BY 1, 2
), known AS (
    SELECT destination, tenant, pending, in_flight FROM busy
    UNION ALL SELECT destination, tenant, 0, 0 FROM redrive.tenants
    UNION ALL SELECT destination, tenant, 0, 0 FROM redrive.tenant_pauses WHERE destination <> 0
    UNION ALL SELECT 0, tenant, 0, 0 FROM redrive.tenant_pauses AS everywhere
        WHERE destination = 0
          AND NOT EXISTS (SELECT 1 FROM busy WHERE busy.tenant = everywhere.tenant)
          AND NOT EXISTS (SELECT 1 FROM redrive.tenants t WHERE t.tenant = everywhere.tenant)
          AND NOT EXISTS (
              SELECT 1 FROM redrive.tenant_pauses p
              WHERE p.tenant = everywhere.tenant AND p.destination <> 0
          )
), counted AS (
    SELECT k.destination, k.tenant, sum(k.pending)::integer AS pending,
           sum(k.in_flight)::integer AS in_flight
    FROM known k
    WHERE ($1::integer IS NULL OR k.destination = $1)
      AND ($2::text IS NULL OR k.tenant = $2)
      AND (NOT $4 OR EXISTS (
          SELECT FROM redrive.tenant_pauses p
          WHERE p.tenant = k.tenant AND p.destination IN (0, k.destination)
      ))
    GROUP BY 1, 2
)
SELECT c.destination, c.tenant, c.pending, c.in_flight, past.served_at, past.round,
       past.processed, past.consecutive, past.tokens, past.refilled_at,
       own.by, own.why, own.at, wide.by, wide.why, wide.at
FROM counted c
LEFT JOIN redrive.destinations d ON d.id = c.destination
LEFT JOIN redrive.tenants past ON past.destination = c.destination AND past.tenant = c.tenant
LEFT JOIN redrive.tenant_pauses own
    ON own.tenant = c.tenant AND own.destination = c.destination AND c.destination <> 0
LEFT JOIN redrive.tenant_pauses wide ON wide.tenant = c.tenant AND wide.destination = 0
ORDER BY c.pending DESC, coalesce(d.name, '') COLLATE "C", c.tenant LIMIT $3
"""
_PAUSE = """
INSERT INTO redrive.tenant_pauses VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING
RETURNING tenant
"""
_RESUME = """
DELETE FROM redrive.tenant_pauses WHERE tenant = $1 AND destination = $2 RETURNING tenant
"""


async def tenants(
    link: Link,
    *,
    destination: str | None,
    tenant: str | None,
    only_paused: bool,
    limit: int,
    now: datetime,
) -> Sequence[TenantFigures]:
    """Carry out `Tenants.tenants`."""
    keeper = await GateRepository.read(link, now=now, locks=False)
    names = {number: name for name, number in keeper.numbers.items()}
    number = None if destination is None else extent_of(keeper, destination)
    found = await link.fetch(_TENANTS, number, tenant, limit, only_paused)
    return [figures_of(row, names.get(row[0]), keeper, now=now) for row in found]


async def pause_tenant(
    link: Link,
    tenant: str,
    *,
    destination: str | None,
    actor: Actor,
    now: datetime,
) -> bool:
    """Carry out `Tenants.pause_tenant`."""
    keeper = await GateRepository.read(link, now=now, locks=False)
    number = extent_of(keeper, destination)
    if not await link.fetch(_PAUSE, tenant, number, actor.by, actor.why, now):
        return False
    detail = named_extent(tenant, destination)
    await record(link, "pause_tenant", (), actor, now=now, count=1, detail=detail)
    return True


async def resume_tenant(
    link: Link,
    tenant: str,
    *,
    destination: str | None,
    actor: Actor,
    now: datetime,
) -> bool:
    """Carry out `Tenants.resume_tenant`."""
    keeper = await GateRepository.read(link, now=now, locks=False)
    number = extent_of(keeper, destination)
    if not await link.fetch(_RESUME, tenant, number):
        return False
    detail = named_extent(tenant, destination)
    await record(link, "resume_tenant", (), actor, now=now, count=1, detail=detail)
    return True
