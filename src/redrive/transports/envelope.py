"""What an event looks like on its way: its payload as it was published, or all of it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from redrive.model.event import Event

__all__ = ["Body", "encode_event", "encode_line"]

Body = Literal["payload", "event"]


class _Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    type: str
    occurred_at: datetime
    payload: msgspec.Raw
    key: str | None = None
    tenant: str | None = None
    source: str = ""


def encode_event(event: Event[msgspec.Raw], body: Body) -> bytes:
    """Return the payload byte for byte, or an object with the event's id and the like around it."""
    if body == "payload":
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


def encode_line(event: Event[msgspec.Raw], body: Body) -> bytes:
    """Return the same as one line: a payload may have been published with breaks in it."""
    encoded = encode_event(event, body)
    return (msgspec.json.format(encoded, indent=-1) if b"\n" in encoded else encoded) + b"\n"
