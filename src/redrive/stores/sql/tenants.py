"""The tenants of destinations: their figures, and their pauses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from redrive.claiming.round_robin import affordable, next_token, rounds_waited, urgency
from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.fairness import Fairness
from redrive.model.gate import Bucket, Hold, Pause, Rotation
from redrive.store import TenantFigures
from redrive.stores.sql.audit import record
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.session import Session, instant
from redrive.stores.sql.store import SqlStore, surveying, writing

__all__ = ["TenantsRole"]

_EVERYWHERE = 0
"""Stands for all destinations where the number of one would be."""

_READY = "status = 0 AND is_ready = true"
_IN_LANES = "lane IS NOT NULL AND status <> 2 AND resolution IS NULL"
_TENANT = "coalesce(tenant, '') COLLATE \"C\""
# Each part reads an index of what is under way, and nobody reads through history.
_BUSY = " UNION ALL ".join(
    f"""SELECT destination, {_TENANT} AS tenant, {pending} AS pending, {in_flight} AS in_flight
    FROM redrive.deliveries /* by {index} */ WHERE {which}{{narrowed}}
    GROUP BY destination, {_TENANT}"""
    for index, which, pending, in_flight in (
        ("ready", f"{_READY} AND is_behind = false AND crashes < 2", "count(*)", "0"),
        ("suspects", f"{_READY} AND is_behind = false AND crashes >= 2", "count(*)", "0"),
        ("waiting_tenants", "status = 0 AND is_ready = false", "count(*)", "0"),
        ("lanes", f"{_IN_LANES} AND {_READY} AND is_behind = true", "count(*)", "0"),
        ("leases", "status = 1", "0", "count(*)"),
    )
)
_TENANTS = f"""
WITH busy AS (
    {_BUSY}
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
SELECT d.name, c.tenant, c.pending, c.in_flight, past.served_at, past.round,
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
_NUMBER = "SELECT id FROM redrive.destinations WHERE name = $1"
_HAS_PAUSES = "SELECT 1 FROM redrive.tenant_pauses LIMIT 1"
_PAUSE = """
INSERT INTO redrive.tenant_pauses (tenant, destination, by, why, at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING RETURNING tenant
"""
_RESUME = """
DELETE FROM redrive.tenant_pauses WHERE tenant = $1 AND destination = $2 RETURNING tenant
"""


class TenantsRole(SqlStore):
    """`Tenants`."""

    @surveying
    async def tenants(
        self,
        session: Session,
        *,
        destination: str | None = None,
        tenant: str | None = None,
        only_paused: bool = False,
        limit: int = 50,
    ) -> Sequence[TenantFigures]:
        number = None if destination is None else await _extent(session, destination)
        if only_paused and not await session.value(_HAS_PAUSES):
            return []
        narrowed = "" if number is None else " AND destination = $1"
        narrowed += "" if tenant is None else f" AND {_TENANT} = $2"
        statement = _TENANTS.replace("{narrowed}", narrowed)
        rows = await session.fetch(statement, number, tenant, limit, only_paused)
        gates = await GateRepository.read(session, {name for name, *_ in rows if name is not None})
        return [_figures(session, row, row[0], gates) for row in rows]

    @writing()
    async def pause_tenant(
        self, session: Session, tenant: str, *, destination: str | None, actor: Actor
    ) -> bool:
        number = await _extent(session, destination)
        if not await session.fetch(_PAUSE, tenant, number, actor.by, actor.why, session.now):
            return False
        detail = _named(tenant, destination)
        await record(session, "pause_tenant", (), actor, count=1, detail=detail)
        return True

    @writing(notifies=True)
    async def resume_tenant(
        self, session: Session, tenant: str, *, destination: str | None, actor: Actor
    ) -> bool:
        if not await session.fetch(_RESUME, tenant, await _extent(session, destination)):
            return False
        detail = _named(tenant, destination)
        await record(session, "resume_tenant", (), actor, count=1, detail=detail)
        return True


async def _extent(session: Session, destination: str | None) -> int:
    """Return the number of a destination, or the one that stands for all of them."""
    if destination is None:
        return _EVERYWHERE
    number = await session.value(_NUMBER, destination)
    if number is None:
        names = await session.fetch("SELECT name FROM redrive.destinations ORDER BY name")
        raise not_found(destination, [name for (name,) in names], what="destination")
    return int(number)


def _named(tenant: str, destination: str | None) -> str:
    """Return a tenant, and where it is meant, as the audit log has it."""
    return tenant if destination is None else f"{tenant} at {destination}"


def _figures(
    session: Session, row: Sequence[Any], destination: str | None, gates: GateRepository
) -> TenantFigures:
    """Return the figures of a row: counts, the past, the bucket, the own pause and the wide one."""
    _, tenant, pending, in_flight, served_at, last_round, processed, consecutive = row[:8]
    fairness = Fairness() if destination is None else gates.fairness(destination)
    rotation = Rotation() if destination is None else gates.gate(destination).rotation
    waited = rounds_waited(rotation, last_round, pending=pending)
    own, wide = _pause(row[10:13]), _pause(row[13:16])
    hold, until = (Hold.PAUSED, None) if own or wide else _rate_hold(row, fairness, session.now)
    return TenantFigures(
        tenant=tenant or None,
        destination=destination,
        pending=pending,
        in_flight=in_flight,
        processed=processed or 0,
        consecutive=consecutive or 0,
        last_served_at=instant(served_at),
        rounds_waited=waited,
        urgency=urgency(waited),
        turn=0 if destination is None else fairness.turn_of(tenant),
        hold=hold,
        until=until,
        pause=own or wide,
        is_paused_everywhere=wide is not None,
    )


def _rate_hold(
    row: Sequence[Any], fairness: Fairness, now: datetime
) -> tuple[Hold | None, datetime | None]:
    rate = fairness.rate_of(row[1])
    bucket = Bucket() if row[9] is None else Bucket(row[8], instant(row[9]))
    if rate is None or affordable(bucket, rate, now=now) > 0:
        return None, None
    return Hold.RATE, next_token(bucket, rate, now=now)


def _pause(columns: Sequence[Any]) -> Pause | None:
    by, why, at = columns
    return None if at is None else Pause(by=by, why=why, at=instant(at))
