"""The tenants of destinations in memory: their turns, their rates and their pauses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime

from redrive.claiming.round_robin import (
    Line,
    Share,
    affordable,
    next_token,
    rounds_waited,
    spent,
    urgency,
)
from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.delivery import Status
from redrive.model.gate import Bucket, Hold, Pause
from redrive.model.limits import Rate
from redrive.store import TenantFigures
from redrive.stores.memory.gates import MemoryGates
from redrive.stores.memory.row import Row
from redrive.stores.memory.tables import TenantPast

__all__ = ["MemoryTenants"]


class MemoryTenants(MemoryGates):
    """`Tenants` over the tables."""

    async def tenants(
        self,
        *,
        destination: str | None = None,
        tenant: str | None = None,
        only_paused: bool = False,
        limit: int = 50,
    ) -> Sequence[TenantFigures]:
        with self._lock:
            self._check_extent(destination)
            now = self._clock.now()
            counts = self._count_by_tenant()
            found = [
                self._tenant_figures(name, one, counts[name, one], now)
                for name, one in self._known_tenants()
                if destination in (None, name) and tenant in (None, one)
            ]
            if destination is None:
                found += [one for one in self._paused_unseen() if tenant in (None, one.tenant)]
            if only_paused:
                found = [one for one in found if one.pause is not None]
            found.sort(key=lambda one: (-one.pending, one.destination or "", one.tenant or ""))
            return found[:limit]

    async def pause_tenant(self, tenant: str, *, destination: str | None, actor: Actor) -> bool:
        with self._lock:
            now = self._clock.now()
            self._check_extent(destination)
            if (tenant, destination) in self._tenant_pauses:
                return False
            self._tenant_pauses[tenant, destination] = Pause(by=actor.by, why=actor.why, at=now)
            extent = _extent(tenant, destination)
            self._note("pause_tenant", actor, now=now, count=1, detail=extent)
            return True

    async def resume_tenant(self, tenant: str, *, destination: str | None, actor: Actor) -> bool:
        with self._lock:
            self._check_extent(destination)
            if self._tenant_pauses.pop((tenant, destination), None) is None:
                return False
            now = self._clock.now()
            extent = _extent(tenant, destination)
            self._note("resume_tenant", actor, now=now, count=1, detail=extent)
            return True

    def _line(self, destination: str, tenant: str, work: Sequence[Row], now: datetime) -> Line[Row]:
        return Line(
            tenant=tenant,
            turn=self._destinations[destination].fairness.turn_of(tenant),
            work=() if self._pause_of(destination, tenant) else work,
            tokens=self._tokens(destination, tenant, now),
        )

    def _tokens(self, destination: str, tenant: str, now: datetime) -> int:
        """Return how many attempts a tenant may have now."""
        if self._pause_of(destination, tenant) is not None:
            return 0
        rate = self._rate_of(destination, tenant)
        return affordable(self._bucket(destination, tenant), rate, now=now)

    def _keep_account(self, destination: str, serving: Share[Row], now: datetime) -> None:
        self._turn_on(destination, serving.rotation)
        for one in serving.served:
            past = self._tenants.get((destination, one.tenant))
            rate = self._rate_of(destination, one.tenant)
            self._tenants[destination, one.tenant] = TenantPast(
                bucket=spent(self._bucket(destination, one.tenant), rate, one.count, now=now),
                served_at=now,
                round=one.round,
                processed=one.count + (0 if past is None else past.processed),
                consecutive=one.in_a_row,
            )
        for tenant in serving.spent:
            rate = self._rate_of(destination, tenant)
            if rate is not None:
                bucket = self._bucket(destination, tenant)
                self._gates_open_at.append(next_token(bucket, rate, now=now))

    def _pause_of(self, destination: str, tenant: str) -> Pause | None:
        pauses = self._tenant_pauses
        return pauses.get((tenant, destination)) or pauses.get((tenant, None))

    def _rate_of(self, destination: str, tenant: str) -> Rate | None:
        return self._destinations[destination].fairness.rate_of(tenant)

    def _bucket(self, destination: str, tenant: str) -> Bucket:
        past = self._tenants.get((destination, tenant))
        return Bucket() if past is None else past.bucket

    def _known_tenants(self) -> list[tuple[str, str]]:
        """Return who has work or a past or a pause, and at which destination."""
        known = dict.fromkeys([*self._tenants, *self._count_by_tenant()])
        for tenant, destination in self._tenant_pauses:
            if destination is not None:
                known[destination, tenant] = None
        return list(known)

    def _paused_unseen(self) -> list[TenantFigures]:
        seen = [tenant for _, tenant in self._known_tenants()]
        return [
            TenantFigures(
                tenant=tenant,
                destination=None,
                hold=Hold.PAUSED,
                pause=pause,
                is_paused_everywhere=True,
            )
            for (tenant, destination), pause in self._tenant_pauses.items()
            if destination is None and tenant not in seen
        ]

    def _count_by_tenant(self) -> defaultdict[tuple[str, str], Counter[Status]]:
        """Count what each tenant has pending and in flight at each destination."""
        counts: defaultdict[tuple[str, str], Counter[Status]] = defaultdict(Counter)
        for row in self._rows.values():
            if row.status in (Status.PENDING, Status.IN_FLIGHT):
                counts[row.destination, row.event.tenant or ""][row.status] += 1
        return counts

    def _tenant_figures(
        self, destination: str, tenant: str, own: Counter[Status], now: datetime
    ) -> TenantFigures:
        past = self._tenants.get((destination, tenant))
        pending = own[Status.PENDING]
        last_round = None if past is None else past.round
        waited = rounds_waited(self._gate(destination).rotation, last_round, pending=pending)
        pause, rate = self._pause_of(destination, tenant), self._rate_of(destination, tenant)
        hold, until = (None if pause is None else Hold.PAUSED), None
        if hold is None and rate is not None and not self._tokens(destination, tenant, now):
            hold = Hold.RATE
            until = next_token(self._bucket(destination, tenant), rate, now=now)
        return TenantFigures(
            tenant=tenant or None,
            destination=destination,
            pending=pending,
            in_flight=own[Status.IN_FLIGHT],
            processed=0 if past is None else past.processed,
            consecutive=0 if past is None else past.consecutive,
            last_served_at=None if past is None else past.served_at,
            rounds_waited=waited,
            urgency=urgency(waited),
            turn=self._destinations[destination].fairness.turn_of(tenant),
            hold=hold,
            until=until,
            pause=pause,
            is_paused_everywhere=(tenant, None) in self._tenant_pauses,
        )

    def _check_extent(self, destination: str | None) -> None:
        if destination is not None and destination not in self._destinations:
            raise not_found(destination, sorted(self._destinations), what="destination")


def _extent(tenant: str, destination: str | None) -> str:
    return tenant if destination is None else f"{tenant} at {destination}"
