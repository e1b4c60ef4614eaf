"""Records: who did what, which workers there are, and the settings, as plain lists."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.model.audit import AuditEntry, AuditQuery
from redrive.model.setting import SettingInForce
from redrive.operations.explain.diagnosis import is_alive
from redrive.web.pages.page import Page, Visit

__all__ = [
    "AuditList",
    "SettingList",
    "WorkerRow",
    "Workers",
    "show_audit",
    "show_settings",
    "show_workers",
]

_PER_PAGE = 50


class AuditList(msgspec.Struct, frozen=True, kw_only=True):
    """Acts of the past, the latest first; `by`, `action` and `name` are what was asked for."""

    entries: tuple[AuditEntry, ...]
    by: str = ""
    action: str = ""
    name: str = ""
    next: int | None = None


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, when it was heard of, and what it claims if it said so."""

    id: str
    is_alive: bool
    seen_at: datetime
    in_flight: int
    destinations: tuple[str, ...] = ()
    generations: tuple[str, ...] = ()


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """All workers that were heard of, the live ones first."""

    workers: tuple[WorkerRow, ...]


class SettingList(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force."""

    settings: tuple[SettingInForce, ...]


async def show_audit(visit: Visit) -> Page:
    """Show who did what, when and why."""
    by, action, name = (visit.asked(one) for one in ("by", "action", "name"))
    found = await visit.operations.audit(
        AuditQuery(by=by, action=action, name=name), before=visit.number("before"), limit=_PER_PAGE
    )
    more = found[-1].id if len(found) == _PER_PAGE else None
    model = AuditList(
        entries=tuple(found), by=by or "", action=action or "", name=name or "", next=more
    )
    return Page(template="audit.html", title="Audit", model=model)


async def show_workers(visit: Visit) -> Page:
    """Show which workers there are."""
    figures = await visit.operations.status()
    rows = [
        WorkerRow(
            id=one.id,
            is_alive=is_alive(one, figures),
            seen_at=one.seen_at,
            in_flight=one.in_flight,
            destinations=tuple(one.serving.destinations) if one.serving else (),
            generations=tuple(one.serving.generations) if one.serving else (),
        )
        for one in figures.workers
    ]
    rows.sort(key=lambda one: (not one.is_alive, one.id))
    return Page(template="workers.html", title="Workers", model=Workers(workers=tuple(rows)))


async def show_settings(visit: Visit) -> Page:
    """Show the settings of the process that serves this, and where each comes from."""
    model = SettingList(settings=tuple(visit.settings))
    return Page(template="settings.html", title="Settings", model=model)
