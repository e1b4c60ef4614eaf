"""Deliveries: many in a list, and what became of those somebody acted on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import assert_never

from rich.console import RenderableType
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.words import ago, brief, counted, safe, title, verdict
from redrive.model.delivery import Delivery, Status
from redrive.operations import DeliveryState
from redrive.store import Page

__all__ = ["changed", "deliveries"]

_MOST_IDS = 10
_HEADINGS = {
    None: "Changed",
    Status.PENDING: "Due",
    Status.IN_FLIGHT: "Lease ends",
    Status.DELIVERED: "Delivered",
    Status.FAILED: "Failed",
}
_WORDS = {
    None: "delivery",
    Status.PENDING: "pending delivery",
    Status.IN_FLIGHT: "delivery in flight",
    Status.DELIVERED: "delivered event",
    Status.FAILED: "dead letter",
}


def deliveries(
    page: Page, status: Status | None, *, now: datetime, is_filtered: bool
) -> Iterator[RenderableType]:
    """Show a page of deliveries, and how to see the next."""
    if not page.deliveries:
        yield Text(f"No {_WORDS[status]}{' fits' if is_filtered else ''}.")
        return
    table = Listing()
    table.add_figures("ID")
    table.add_figures(_HEADINGS[status], is_text=True)
    table.add_figures("Tries")
    table.add_words("Delivery")
    for one in page.deliveries:
        when = _time(one) if status else one.settled_at or one.enqueued_at
        lines = _lines(one, with_status=status is None)
        table.add_row(str(one.id), ago(when, now), str(one.attempts), lines)
    yield table
    if page.next_cursor is not None:
        yield ""
        yield Text(f"There are more: add --cursor {page.next_cursor}", style="dim")


def changed(
    done: str, ids: Sequence[int], left: Mapping[str, Sequence[int]], *, needs: Collection[str]
) -> Iterator[RenderableType]:
    """Say which deliveries were changed, and why others were left alone, by how they stand."""
    if ids:
        yield Text(f"{done} {counted(len(ids), 'delivery', 'deliveries')}{_named(ids)}.")
    elif not left:
        yield Text("No dead letter matches, so nothing was changed.")
    for condition, some in left.items():
        verb = "was" if len(some) == 1 else "were"
        yield Text(
            f"{counted(len(some), 'delivery', 'deliveries')}{_named(some)} {verb} left alone: "
            f"{_why(condition, needs)}.",
            style="yellow",
        )


def _why(condition: str, needs: Collection[str]) -> str:
    if condition in needs:
        return "changed by somebody else at the same time"
    is_known = condition in tuple(DeliveryState)
    return f"{condition}, not {' or '.join(needs)}" if is_known else condition


def _named(ids: Sequence[int]) -> str:
    shown = ", ".join(str(one) for one in ids[:_MOST_IDS])
    return f" ({shown}{', …' if len(ids) > _MOST_IDS else ''})"


def _time(delivery: Delivery) -> datetime:
    match delivery.status:
        case Status.PENDING:
            return delivery.due
        case Status.IN_FLIGHT:
            return delivery.lease_until or delivery.due
        case Status.DELIVERED | Status.FAILED:
            return delivery.settled_at or delivery.enqueued_at
        case never:
            assert_never(never)


def _lines(delivery: Delivery, *, with_status: bool) -> Text:
    text = Text(safe(title(delivery)))
    about = [delivery.status.replace("_", " ")] if with_status else []
    about += [f"{name} {safe(value)}".strip() for name, value in _marks(delivery) if value]
    if about:
        text.append(f"  {' · '.join(about)}", style="dim")
    if delivery.fault is not None:
        text.append(f"\n{brief(verdict(delivery.fault))}", style="dim")
    return text


def _marks(delivery: Delivery) -> Iterator[tuple[str, str | None]]:
    yield "", delivery.reason
    yield "replayed", counted(len(delivery.cycles), "time") if delivery.cycles else None
    yield "resolved by", None if delivery.resolution is None else delivery.resolution.by
    yield "behind", None if delivery.behind is None else str(delivery.behind)
    yield "worker", delivery.worker if delivery.status is Status.IN_FLIGHT else None
    yield "tenant", delivery.tenant
    yield "key", delivery.key
    yield "source", delivery.source
