"""Tenants: how they share the destinations, and stopping one of them."""

from __future__ import annotations

import msgspec

from redrive.store import TenantFigures
from redrive.web.pages.page import Moved, Page, Visit

__all__ = ["Tenants", "pause_tenant", "resume_tenant", "show_tenants"]

_MOST = 200


class Tenants(msgspec.Struct, frozen=True, kw_only=True):
    """Tenants at their destinations, those with the most pending first, and what they fit."""

    tenants: tuple[TenantFigures, ...]
    tenant: str = ""
    destination: str = ""
    only_paused: bool = False
    has_more: bool = False


async def show_tenants(visit: Visit) -> Page:
    """Show how tenants share the destinations."""
    tenant, destination = visit.asked("tenant"), visit.asked("destination")
    only_paused = visit.asked("show") == "paused"
    found = await visit.operations.tenants(
        destination=destination, tenant=tenant, only_paused=only_paused, limit=_MOST + 1
    )
    model = Tenants(
        tenants=tuple(found[:_MOST]),
        tenant=tenant or "",
        destination=destination or "",
        only_paused=only_paused,
        has_more=len(found) > _MOST,
    )
    return Page(template="tenants.html", title="Tenants", model=model)


async def pause_tenant(visit: Visit) -> Moved:
    """Let nothing of a tenant start, at one destination or at all of them."""
    destination = visit.form.get("destination") or None
    await visit.operations.pause_tenant(
        visit.name, by=visit.by, why=visit.why, destination=destination
    )
    return Moved("/tenants", f"{visit.name} is paused {_where(destination)}.")


async def resume_tenant(visit: Visit) -> Moved:
    """End a pause: that at one destination, or that at all of them."""
    destination = visit.form.get("destination") or None
    is_new = await visit.operations.resume_tenant(
        visit.name, by=visit.by, why=visit.why, destination=destination
    )
    said = "goes on" if is_new else "was not paused"
    return Moved("/tenants", f"{visit.name} {said} {_where(destination)}.")


def _where(destination: str | None) -> str:
    return "everywhere" if destination is None else f"at {destination}"
