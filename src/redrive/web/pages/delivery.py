"""A delivery: its whole story as a timeline, why it waits, and what may be done with it."""

from __future__ import annotations

from datetime import timedelta
from shlex import quote
from typing import assert_never

import msgspec

from redrive.errors import UsageError
from redrive.model.audit import AuditQuery
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.duration import duration
from redrive.model.outcome import CALL, Exchange
from redrive.operations import Story
from redrive.operations.explain.waiting import Waiting
from redrive.web.pages.page import Moved, Page, Visit
from redrive.web.pages.rendering import counted, reason_of
from redrive.web.pages.timeline import Moment, timeline

__all__ = [
    "DeliveryView",
    "cancel",
    "curl",
    "delete",
    "prioritise",
    "reopen",
    "replay",
    "reschedule",
    "resolve",
    "reveal",
    "show_delivery",
]

_MOST_ACTS = 100
_HIDDEN = msgspec.Raw(b"null")
_SOON = timedelta(days=365)
_LEFT_OUT = ("content-length", "host", "connection", "accept-encoding")
"""Headers that curl says by itself."""


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery with its story; `payload` is there if somebody had it shown.

    `exchange` is what was sent and answered, its bodies only with the payload, and `curl` the
    command that sends the same once more; handlers have none.
    """

    story: Story
    sentence: str
    level: str
    moments: tuple[Moment, ...]
    waiting: tuple[Waiting, ...] = ()
    payload: str | None = None
    exchange: Exchange | None = None
    curl: str = ""
    commands: tuple[str, ...] = ()

    @property
    def delivery(self) -> Delivery:
        """The delivery itself."""
        return self.story.delivery


async def show_delivery(visit: Visit) -> Page:
    """Show the story of a delivery, without what it carries."""
    return await _page(visit, _without_payload(await visit.operations.show(visit.id)))


async def reveal(visit: Visit) -> Page:
    """Show what a delivery carries as well, and write down who has seen it."""
    story = await visit.operations.reveal(visit.id, by=visit.by, why=visit.why)
    pretty = msgspec.json.format(msgspec.json.encode(story.payload), indent=2)
    return await _page(visit, story, payload=pretty.decode())


async def replay(visit: Visit) -> Moved:
    """Send the dead letter again."""
    if visit.form.get("rendered") == "again":
        await visit.operations.render_again([visit.id], by=visit.by, why=visit.why)
    changed = await visit.operations.replay([visit.id], by=visit.by, why=visit.why)
    return _back(visit, changed, "It was sent again.")


async def resolve(visit: Visit) -> Moved:
    """Mark the dead letter as handled elsewhere."""
    changed = await visit.operations.resolve([visit.id], by=visit.by, why=visit.why)
    return _back(visit, changed, "It is resolved.")


async def reopen(visit: Visit) -> Moved:
    """Make a dead letter of a resolved one again."""
    changed = await visit.operations.reopen([visit.id], by=visit.by, why=visit.why)
    return _back(visit, changed, "It is a dead letter again.")


async def delete(visit: Visit) -> Moved:
    """Remove the dead letter for good."""
    changed = await visit.operations.delete([visit.id], by=visit.by, why=visit.why)
    if not changed:
        return _back(visit, changed, "")
    return Moved("/dead-letters", f"Delivery {visit.id} is deleted.")


async def cancel(visit: Visit) -> Moved:
    """Make a dead letter of what waits."""
    changed = await visit.operations.cancel([visit.id], by=visit.by, why=visit.why)
    return _back(visit, changed, "It is a dead letter now.")


async def reschedule(visit: Visit) -> Moved:
    """Have what waits tried at another time; at once, if none is given."""
    wait = duration(visit.form.get("wait", "").strip() or "0s", name="wait", longest=_SOON)
    changed = await visit.operations.reschedule(
        [visit.id], due=visit.now + wait, by=visit.by, why=visit.why
    )
    return _back(visit, changed, "It is due at another time.")


async def prioritise(visit: Visit) -> Moved:
    """Change the priority of what waits."""
    text = visit.form.get("priority", "").strip()
    if not text.removeprefix("-").isdigit() or not text.isascii():
        raise UsageError(f"The priority is {text[:50]!r}; it is a number from -100 to 100.")
    changed = await visit.operations.prioritise(
        [visit.id], priority=int(text), by=visit.by, why=visit.why
    )
    return _back(visit, changed, f"Its priority is {text}.")


def curl(exchange: Exchange, body: str | None) -> str:
    """Return the command that sends a request once more; without a body, from a file.

    What is blanked in it has to be filled in.
    """
    parts = ["curl", "-X", quote(exchange.method), quote(exchange.url)]
    for name, value in exchange.headers.items():
        if name.lower() not in _LEFT_OUT:
            parts += ["\\\n  -H", quote(f"{name}: {value}")]
    parts += (
        ["\\\n  --data-raw", quote(body)]
        if body is not None
        else [
            "\\\n  --data-binary",
            "@payload.json",
        ]
    )
    return " ".join(parts)


def _back(visit: Visit, changed: list[DeliveryId], said: str) -> Moved:
    unchanged = "Nothing was changed: it is no longer what it was when you looked at it."
    return Moved(f"/deliveries/{visit.id}", said if changed else unchanged)


async def _page(visit: Visit, story: Story, *, payload: str | None = None) -> Page:
    delivery = story.delivery
    acts = await visit.operations.audit(
        AuditQuery(deliveries=(int(delivery.id),)), limit=_MOST_ACTS
    )
    level, sentence = _condition(delivery)
    exchange = delivery.exchange
    is_http = exchange is not None and exchange.method != CALL
    body = bytes(story.carried).decode(errors="replace") if payload is not None else None
    model = DeliveryView(
        story=story,
        sentence=sentence,
        level=level,
        moments=timeline(story, acts),
        waiting=story.waiting,
        payload=payload,
        exchange=exchange,
        curl=curl(exchange, body) if exchange is not None and is_http else "",
        commands=tuple(_commands(delivery)),
    )
    title = f"Delivery {delivery.id}: {delivery.event_type} to {delivery.destination}"
    return Page(template="delivery.html", title=title, model=model)


def _without_payload(story: Story) -> Story:
    """Return a story that tells where something was sent and changed, but not what."""
    delivery, exchange = story.delivery, story.delivery.exchange
    if exchange is not None:
        # What a handler returned is a payload of its own.
        exchange = (
            None if exchange.method == CALL else msgspec.structs.replace(exchange, sent="", body="")
        )
    edits = tuple(
        msgspec.structs.replace(
            edit,
            changes=tuple(
                msgspec.structs.replace(one, before="", after="") for one in edit.changes
            ),
        )
        for edit in delivery.edits
    )
    hidden = msgspec.structs.replace(delivery, payload=None, exchange=exchange, edits=edits)
    event = msgspec.structs.replace(story.event, payload=_HIDDEN)
    return msgspec.structs.replace(story, event=event, delivery=hidden)


def _commands(delivery: Delivery) -> list[str]:
    commands = [f"redrive delivery show {delivery.id}"]
    if delivery.is_dead_letter:
        commands += [
            f"redrive dlq replay {delivery.id} --why '…'",
            f"redrive dlq edit {delivery.id} --why '…'",
        ]
    elif delivery.status is Status.PENDING:
        commands.append(f"redrive delivery reschedule {delivery.id} --due 0s")
    return commands


def _condition(delivery: Delivery) -> tuple[str, str]:
    tries = counted(delivery.attempts, "try", "tries")
    if delivery.cycles:
        tries += " since it was replayed"
    match delivery.status:
        case Status.PENDING:
            return "warning", f"Pending after {tries}." if delivery.attempts else "Pending."
        case Status.IN_FLIGHT:
            return "warning", f"In flight with worker {delivery.worker}, try {delivery.attempts}."
        case Status.DELIVERED:
            return "ok", f"Delivered after {tries}."
        case Status.FAILED if delivery.resolution is not None:
            return "ok", f"Resolved by {delivery.resolution.by}: {delivery.resolution.why}"
        case Status.FAILED:
            reason = "" if delivery.reason is None else f": {reason_of(delivery.reason)}"
            return "error", f"A dead letter after {tries}{reason}."
        case never:
            assert_never(never)
