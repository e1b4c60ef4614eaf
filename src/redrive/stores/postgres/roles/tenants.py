"""The turns of tenants, each call in a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.model.audit import Actor
from redrive.store import TenantFigures
from redrive.stores.postgres import tenants
from redrive.stores.postgres.core import Core

__all__ = ["TenantsRole"]


class TenantsRole(Core):
    """`Tenants`."""

    async def tenants(
        self,
        *,
        destination: str | None = None,
        tenant: str | None = None,
        only_paused: bool = False,
        limit: int = 50,
    ) -> Sequence[TenantFigures]:
        return await self._read(
            lambda link, now: tenants.tenants(
                link,
                destination=destination,
                tenant=tenant,
                only_paused=only_paused,
                limit=limit,
                now=now,
            )
        )

    async def pause_tenant(self, tenant: str, *, destination: str | None, actor: Actor) -> bool:
        return await self._write(
            lambda link, now: tenants.pause_tenant(
                link, tenant, destination=destination, actor=actor, now=now
            )
        )

    async def resume_tenant(self, tenant: str, *, destination: str | None, actor: Actor) -> bool:
        return await self._write(
            lambda link, now: tenants.resume_tenant(
                link, tenant, destination=destination, actor=actor, now=now
            ),
            rings=True,
        )
