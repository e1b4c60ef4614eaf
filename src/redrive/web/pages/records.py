"""Records: who did what, and which workers there are, as plain lists."""

from __future__ import annotations

from datetime import datetime

import msgspec

from redrive.model.audit import AuditEntry, AuditQuery
from redrive.operations.explain.diagnosis import is_alive
from redrive.web.pages.page import Page, Visit

__all__ = ["AuditList", "WorkerRow", "Workers", "show_audit", "show_workers"]

_PER_PAGE = 50


class AuditList(msgspec.Struct, frozen=True, kw_only=True):
    """Acts of the past, the latest first; `by` and `action` are what they were asked for by."""

    entries: tuple[AuditEntry, ...]
    by: str = ""
    action: str = ""
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


async def show_audit(visit: Visit) -> Page:
    """Show who did what, when and why."""
    by, action = visit.asked("by"), visit.asked("action")
    found = await visit.operations.audit(
        AuditQuery(by=by, action=action), before=visit.number("before"), limit=_PER_PAGE
    )
    more = found[-1].id if len(found) == _PER_PAGE else None
    model = AuditList(entries=tuple(found), by=by or "", action=action or "", next=more)
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
