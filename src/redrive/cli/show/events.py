"""Events: many in a list, and one with what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from redrive.cli.show.listing import Listing
from redrive.cli.show.story import chapter, event_facts, payload, section
from redrive.cli.show.words import ago, counted, safe
from redrive.operations import DeliveryState, EventStory
from redrive.operations.tracing import condition_of
from redrive.store import EventDelivery, EventPage, FoundEvent

__all__ = ["event", "events"]

_MOST_NAMED = 3
_MANY = {DeliveryState.DEAD_LETTER: "dead letters"}


def events(page: EventPage, *, now: datetime, is_filtered: bool) -> Iterator[RenderableType]:
    """Show a page of events, and how to see the next."""
    if not page.events:
        yield Text(f"No event{' fits' if is_filtered else ''}.")
    else:
        table = Listing()
        table.add_figures("ID", "Published", is_text=True)
        table.add_words("Event", lines="cut")
        for one in page.events:
            table.add_row(one.id, ago(one.published_at, now), _lines(one))
        yield table
    if page.next_cursor is not None:
        yield ""
        yield Text(f"There are more: add --cursor {page.next_cursor}", style="dim")


def event(told: EventStory, *, now: datetime) -> Iterator[RenderableType]:
    """Show what it is, what became of each delivery, and what it carries."""
    found = told.found
    yield Text(f"Event {found.id}: {safe(found.type)}", style="bold")
    yield Text(_sentence(found), style="" if found.destinations else "yellow")
    yield ""
    yield event_facts(told.event, version=found.version, now=now)
    for one in told.stories:
        yield from chapter(one, now=now)
    more = len(found.deliveries) - len(told.stories)
    if more > 0:
        yield ""
        yield Text(
            f"And {counted(more, 'more delivery', 'more deliveries')}; see them with: "
            f"redrive delivery list --status any --event {found.id}",
            style="dim",
        )
    yield from section("Payload", payload(told.event.payload))


def _lines(found: FoundEvent) -> Text:
    text = Text(safe(found.type))
    about = (("tenant", found.tenant), ("key", found.key), ("source", found.source))
    marks = [f"{name} {safe(value)}" for name, value in about if value]
    if marks:
        text.append(f"  {' · '.join(marks)}", style="dim")
    text.append(f"\n{_fate(found)}", style="dim" if found.destinations else "yellow")
    return text


def _fate(found: FoundEvent) -> str:
    if not found.destinations:
        return "unrouted"
    if not found.deliveries:
        return f"was given to {', '.join(map(safe, found.destinations))}; no longer kept"
    if len(found.deliveries) > _MOST_NAMED:
        return _counts(found.deliveries)
    return " · ".join(
        f"{safe(one.destination)} {condition_of(one).removeprefix('a ')} ({one.id})"
        for one in found.deliveries
    )


def _counts(deliveries: Sequence[EventDelivery]) -> str:
    counts = Counter(condition_of(one) for one in deliveries)
    return " · ".join(
        f"{counts[one]:,} {_MANY.get(one, one) if counts[one] > 1 else one.removeprefix('a ')}"
        for one in DeliveryState
        if counts[one]
    )


def _sentence(found: FoundEvent) -> str:
    if not found.destinations:
        return "Unrouted: no destination wanted it, so it is kept in the log and goes nowhere."
    if not found.deliveries:
        names = ", ".join(map(safe, found.destinations))
        return f"Was given to {names}; its deliveries are no longer kept."
    count = counted(len(found.deliveries), "delivery", "deliveries")
    gone = len(set(found.destinations) - {one.destination for one in found.deliveries})
    missing = f"; {gone:,} more are no longer kept" if gone else ""
    return f"{count}: {_counts(found.deliveries)}{missing}."
