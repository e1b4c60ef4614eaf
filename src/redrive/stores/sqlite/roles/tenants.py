"""The turns of tenants, each call handed to the thread that carries it out."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.model.audit import Actor
from redrive.store import TenantFigures
from redrive.stores.sqlite import tenants
from redrive.stores.sqlite.core import Core

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
        now = self._clock.now()
        return await self._reader.call(
            lambda c: tenants.tenants(
                c,
                destination=destination,
                tenant=tenant,
                only_paused=only_paused,
                limit=limit,
                now=now,
            )
        )

    async def pause_tenant(self, tenant: str, *, destination: str | None, actor: Actor) -> bool:
        return await self._commit(
            lambda c, now: tenants.pause_tenant(
                c, tenant, destination=destination, actor=actor, now=now
            )
        )

    async def resume_tenant(self, tenant: str, *, destination: str | None, actor: Actor) -> bool:
        return await self._commit(
            lambda c, now: tenants.resume_tenant(
                c, tenant, destination=destination, actor=actor, now=now
            ),
            rings=True,
        )
