"""A delivery: its whole story as a timeline, why it waits, and what may be done with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import assert_never

import msgspec

from redrive.model.audit import AuditEntry, AuditQuery
from redrive.model.delivery import Attempt, Delivery, Status
from redrive.model.outcome import Exchange
from redrive.operations import Story
from redrive.operations.explain.waiting import Waiting
from redrive.web.answers import without_payload
from redrive.web.pages.page import Moved, Page, Visit
from redrive.web.pages.rendering import counted

__all__ = [
    "DeliveryView",
    "Moment",
    "delete",
    "replay",
    "resolve",
    "reveal",
    "show_delivery",
    "timeline",
]

_MOST_ACTS = 100
_TOLD_ELSEWHERE = ("replay", "resolve", "edit", "edit_and_replay")
"""The acts that the delivery itself remembers."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened: `level` is whether that was good, bad, or a person's doing."""

    at: datetime
    level: str
    what: str
    detail: str = ""


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery with its story; `payload` and `exchange` are there if somebody had them shown."""

    story: Story
    sentence: str
    level: str
    moments: tuple[Moment, ...]
    waiting: tuple[Waiting, ...] = ()
    payload: str | None = None
    exchange: Exchange | None = None

    @property
    def delivery(self) -> Delivery:
        """The delivery itself."""
        return self.story.delivery


async def show_delivery(visit: Visit) -> Page:
    """Show the story of a delivery, without what it carries."""
    return await _page(visit, without_payload(await visit.operations.show(visit.id)))


async def reveal(visit: Visit) -> Page:
    """Show what a delivery carries as well, and write down who has seen it."""
    story = await visit.operations.reveal(visit.id, by=visit.by, why=visit.why)
    pretty = msgspec.json.format(msgspec.json.encode(story.payload), indent=2)
    return await _page(visit, story, payload=pretty.decode(), exchange=story.delivery.exchange)


async def replay(visit: Visit) -> Moved:
    """Send the dead letter again."""
    await visit.operations.replay([visit.id], by=visit.by, why=visit.why)
    return Moved(f"/deliveries/{visit.id}")


async def resolve(visit: Visit) -> Moved:
    """Mark the dead letter as handled elsewhere."""
    await visit.operations.resolve([visit.id], by=visit.by, why=visit.why)
    return Moved(f"/deliveries/{visit.id}")


async def delete(visit: Visit) -> Moved:
    """Remove the dead letter for good."""
    await visit.operations.delete([visit.id], by=visit.by, why=visit.why)
    return Moved("/dead-letters")


def timeline(story: Story, acts: Sequence[AuditEntry] = ()) -> tuple[Moment, ...]:
    """Return all that happened to a delivery, the latest first."""
    moments = [*_own(story), *(_act(one) for one in acts if one.action not in _TOLD_ELSEWHERE)]
    moments.sort(key=lambda one: one.at)
    return tuple(moments[::-1])


async def _page(
    visit: Visit, story: Story, *, payload: str | None = None, exchange: Exchange | None = None
) -> Page:
    delivery = story.delivery
    acts = await visit.operations.audit(
        AuditQuery(deliveries=(int(delivery.id),)), limit=_MOST_ACTS
    )
    level, sentence = _condition(delivery)
    model = DeliveryView(
        story=story,
        sentence=sentence,
        level=level,
        moments=timeline(story, acts),
        waiting=story.waiting,
        payload=payload,
        exchange=exchange,
    )
    title = f"Delivery {delivery.id}: {delivery.event_type} to {delivery.destination}"
    return Page(template="delivery.html", title=title, model=model)


def _condition(delivery: Delivery) -> tuple[str, str]:
    tries = counted(delivery.attempts, "try", "tries")
    match delivery.status:
        case Status.PENDING:
            return "warning", f"Pending after {tries}."
        case Status.IN_FLIGHT:
            return "warning", f"In flight with worker {delivery.worker}, try {delivery.attempts}."
        case Status.DELIVERED:
            return "ok", f"Delivered after {tries}."
        case Status.FAILED if delivery.resolution is not None:
            return "ok", f"Resolved by {delivery.resolution.by}: {delivery.resolution.why}"
        case Status.FAILED:
            reason = (delivery.reason or "failed").replace("_", " ")
            return "error", f"A dead letter after {tries}: {reason}."
        case never:
            assert_never(never)


def _own(story: Story) -> Iterator[Moment]:
    event, delivery = story.event, story.delivery
    yield Moment(at=event.published_at, level="", what="Published", detail=f"as {event.type}")
    for cycle in delivery.cycles:
        yield from _tries(cycle.log)
        yield Moment(
            at=cycle.failed_at,
            level="error",
            what=f"Failed for good after {counted(cycle.attempts, 'try', 'tries')}",
            detail=f"{cycle.reason.replace('_', ' ')}: {cycle.fault.message}",
        )
        yield Moment(at=cycle.replayed_at, level="person", what=f"Replayed by {cycle.replayed_by}")
    yield from _tries(delivery.log)
    for edit in delivery.edits:
        places = ", ".join(one.path for one in edit.changes)
        detail = f"{edit.why} ({places})" if places else edit.why
        yield Moment(at=edit.at, level="person", what=f"Edited by {edit.by}", detail=detail)
    if delivery.resolution is not None:
        done = delivery.resolution
        yield Moment(at=done.at, level="person", what=f"Resolved by {done.by}", detail=done.why)
    if delivery.settled_at is not None and delivery.status is Status.DELIVERED:
        yield Moment(at=delivery.settled_at, level="ok", what="Delivered")
    if delivery.settled_at is not None and delivery.status is Status.FAILED:
        reason = "" if delivery.reason is None else delivery.reason.replace("_", " ")
        tries = counted(delivery.attempts, "try", "tries")
        yield Moment(
            at=delivery.settled_at,
            level="error",
            what=f"Failed for good after {tries}",
            detail=reason,
        )


def _tries(log: Sequence[Attempt]) -> Iterator[Moment]:
    for one in log:
        fault = "" if one.fault is None else f"{one.fault.error_class}: {one.fault.message}"
        level = "warning" if one.fault is None else "error"
        result = "failed, to be tried again" if one.result == "retry" else one.result
        what = f"Try {one.number}: {result.replace('_', ' ')}"
        yield Moment(at=one.ended_at, level=level, what=what, detail=fault)


def _act(entry: AuditEntry) -> Moment:
    name = entry.action.replace("_", " ")
    return Moment(at=entry.at, level="person", what=f"{entry.by}: {name}", detail=entry.why)
