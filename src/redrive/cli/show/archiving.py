"""What was kept long enough, in words."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from redrive.cli.show.words import counted, safe
from redrive.model.duration import spell_duration
from redrive.model.retention import Retention
from redrive.operations import PrunePlan

__all__ = ["pruned", "would_prune"]


def would_prune(plan: PrunePlan, retention: Retention | None) -> RenderableType:
    """Say what a prune would remove, and why, where that is known."""
    if plan.is_empty:
        return Text("Nothing was kept longer than it has to be.")
    return Group(*(Text(line) for line in _planned(plan, retention)))


def pruned(plan: PrunePlan) -> RenderableType:
    """Say what a prune has removed."""
    parts = _parts(plan)
    lines = [f"Removed {', '.join(parts)}."] if parts else []
    if plan.exported:
        lines.append(f"Exported {counted(plan.exported, 'dead letter')} over a limit.")
    return Group(*(Text(line) for line in lines or ["Nothing was left to remove."]))


def _parts(plan: PrunePlan) -> list[str]:
    gone = plan.pruned
    return [
        counted(number, one, many)
        for number, one, many in (
            (gone.delivered, "delivered delivery", "delivered deliveries"),
            (gone.resolved, "resolved dead letter", ""),
            (gone.events, "event", ""),
            (gone.keys, "idempotency key", ""),
            (gone.inbox, "inbox record", ""),
            (gone.audit, "entry of the audit log", "entries of the audit log"),
            (gone.replays, "replay", ""),
        )
        if number
    ]


def _planned(plan: PrunePlan, retention: Retention | None) -> Iterator[str]:
    if retention is None:
        yield from _planned_elsewhere(plan)
    else:
        yield from _planned_here(plan, retention)
    if plan.exported:
        yield f"Would export {counted(plan.exported, 'dead letter')} over the count kept."
    for name in plan.expiring:
        yield f"Would export dead letters of {safe(name)} over the age kept."


def _planned_elsewhere(plan: PrunePlan) -> Iterator[str]:
    if gone := _parts(plan):
        yield f"Would remove {', '.join(gone)}, kept as long as the server is told to."


def _planned_here(plan: PrunePlan, retention: Retention) -> Iterator[str]:
    gone = plan.pruned
    events = spell_duration(retention.events)
    acts = f"{spell_duration(retention.audit)} ago or more"
    for number, one, many, since in (
        (
            gone.delivered,
            "delivery",
            "deliveries",
            f"arrived {spell_duration(retention.delivered)} ago or more",
        ),
        (gone.resolved, "dead letter", "dead letters", f"resolved {events} ago or more"),
        (gone.events, "event", "events", f"done with {events} ago or more"),
        (
            gone.keys,
            "idempotency key",
            "idempotency keys",
            f"not needed for {spell_duration(retention.idempotency)} or more",
        ),
        (
            gone.inbox,
            "inbox record",
            "inbox records",
            f"not needed for {spell_duration(retention.inbox)} or more",
        ),
        (gone.audit, "entry of the audit log", "entries of the audit log", f"made {acts}"),
        (gone.replays, "replay", "replays", f"over {acts}"),
    ):
        if number:
            yield f"Would remove {counted(number, one, many)}, {since}."
