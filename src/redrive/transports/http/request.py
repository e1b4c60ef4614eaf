"""The request that carries events: its body and its headers, from the declaration and the time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.model.delivery import Leased
from redrive.model.event import Event
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.http.headers import is_header_value
from redrive.transports.signing import sign

__all__ = ["Request", "compose"]


class Request(msgspec.Struct, frozen=True):
    """What goes over the wire; the signature, if there is one, covers exactly these bytes."""

    headers: dict[str, str]
    body: bytes


class _Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    type: str
    occurred_at: datetime
    payload: msgspec.Raw
    key: str | None = None
    tenant: str | None = None
    source: str = ""


def compose(plan: HttpBlueprint, deliveries: Sequence[Leased], *, now: datetime) -> Request:
    """Return the request for these; the same events have the same id and body every time."""
    events = [one.event for one in deliveries]
    if plan.batch is None:
        body = _item(plan, events[0])
    else:
        body = b"[" + b",".join([_item(plan, event) for event in events]) + b"]"
    message_id = _message_id(events)
    headers = plan.headers.copy()
    if len(events) == 1 and events[0].headers:  # a batch has no headers of its own
        headers |= _forwarded(plan, events[0])
    headers["webhook-id"] = message_id
    headers["webhook-timestamp"] = str(int(now.timestamp()))
    headers["redrive-attempt"] = str(max(one.attempt for one in deliveries))
    headers["redrive-replay"] = "true" if any(one.cycles for one in deliveries) else "false"
    if plan.signing_keys:
        headers["webhook-signature"] = sign(
            plan.signing_keys, message_id=message_id, at=now, body=body
        )
    return Request(headers, body)


def _item(plan: HttpBlueprint, event: Event[msgspec.Raw]) -> bytes:
    if plan.body == "payload":
        return bytes(event.payload)
    return msgspec.json.encode(
        _Envelope(
            id=event.id,
            type=event.type,
            occurred_at=event.occurred_at,
            payload=event.payload,
            key=event.key,
            tenant=event.tenant,
            source=event.source,
        )
    )


def _message_id(events: Sequence[Event[msgspec.Raw]]) -> str:
    """Return the event's own id, or one that several events have together."""
    if len(events) == 1:
        return events[0].id
    together = " ".join(sorted(event.id for event in events))
    return f"batch-{hashlib.sha256(together.encode()).hexdigest()[:32]}"


def _forwarded(plan: HttpBlueprint, event: Event[msgspec.Raw]) -> dict[str, str]:
    """Return what of an event's headers travels on."""
    given = {name.lower(): value for name, value in event.headers.items()}
    return {
        name: given[name]
        for name in plan.forward_headers
        if name in given and is_header_value(given[name])
    }
