"""Tenants: how they share destinations, and stopping one of them."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.errors import UsageError
from redrive.model.audit import Actor
from redrive.model.checks import check_text
from redrive.observer import Operated
from redrive.operations.context import OperationContext, check_limit
from redrive.store import TenantFigures

__all__ = ["Tenancy"]


class Tenancy(OperationContext):
    """Look at tenants, pause and resume them."""

    async def tenants(
        self,
        *,
        destination: str | None = None,
        tenant: str | None = None,
        only_paused: bool = False,
        limit: int = 50,
    ) -> Sequence[TenantFigures]:
        """Return the tenants with work or a past, those with the most pending first."""
        check_limit(limit)
        store = await self._store()
        found = await store.tenants(
            destination=destination, tenant=tenant, only_paused=only_paused, limit=limit
        )
        return [self._redaction.tenant(one) for one in found]

    async def pause_tenant(
        self, tenant: str, *, by: str, why: str = "", destination: str | None = None
    ) -> bool:
        """Let nothing of a tenant start, at one destination or at all of them; others go on."""
        name, actor = _named(tenant), Actor(by, why)
        store = await self._to_change()
        is_new = await store.pause_tenant(name, destination=destination, actor=actor)
        return self._tenant_acted("pause_tenant", name, destination, actor, is_new=is_new)

    async def resume_tenant(
        self, tenant: str, *, by: str, why: str = "", destination: str | None = None
    ) -> bool:
        """End a pause: that at one destination, or that at all of them."""
        name, actor = _named(tenant), Actor(by, why)
        store = await self._to_change()
        is_new = await store.resume_tenant(name, destination=destination, actor=actor)
        return self._tenant_acted("resume_tenant", name, destination, actor, is_new=is_new)

    def _tenant_acted(
        self, action: str, tenant: str, destination: str | None, actor: Actor, *, is_new: bool
    ) -> bool:
        if is_new:
            self._observer.notice(
                Operated(
                    action=action,
                    by=actor.by,
                    why=actor.why,
                    destination=destination or "",
                    tenant=tenant,
                )
            )
        return is_new


def _named(tenant: object) -> str:
    name = check_text("tenant", tenant)
    if not name:
        raise UsageError(
            "tenant is ''; name one. Events without a tenant are stopped with their destination."
        )
    return name
