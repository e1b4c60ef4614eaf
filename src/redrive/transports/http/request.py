"""The request that carries events: its body and its headers, from the declaration and the time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from urllib.parse import urlsplit

import msgspec

from redrive.model.delivery import Leased
from redrive.model.event import Event
from redrive.transport import Shape
from redrive.transports.envelope import encode_event
from redrive.transports.http.declaration import HttpBlueprint
from redrive.transports.http.headers import is_header_value
from redrive.transports.signing import sign

__all__ = ["Request", "compose"]


_AS_IT_IS = Shape()


class Request(msgspec.Struct, frozen=True):
    """What goes over the wire; the signature, if there is one, covers exactly these bytes."""

    headers: dict[str, str]
    body: bytes
    method: str
    url: str
    shown: Callable[[], bytes] | None = None
    """Returns what people see of the body, where they could not read it."""


def compose(
    plan: HttpBlueprint, deliveries: Sequence[Leased], *, now: datetime, shape: Shape = _AS_IT_IS
) -> Request:
    """Return the request for these; the same events have the same id and body every time."""
    events = [one.event for one in deliveries]
    if shape.body is not None:
        body = shape.body
    elif plan.batch is None:
        body = encode_event(events[0], plan.body)
    else:
        body = b"[" + b",".join([encode_event(event, plan.body) for event in events]) + b"]"
    message_id = _message_id(deliveries)
    headers = plan.headers.copy()
    if len(events) == 1 and events[0].headers:  # a batch has no headers of its own
        headers |= _forwarded(plan, events[0])
    headers |= {name.lower(): value for name, value in shape.headers.items()}
    if shape.content_type:
        headers["content-type"] = shape.content_type
    headers["webhook-id"] = message_id
    headers["webhook-timestamp"] = str(int(now.timestamp()))
    headers["redrive-attempt"] = str(max(one.attempt for one in deliveries))
    headers["redrive-replay"] = "true" if any(one.cycles for one in deliveries) else "false"
    if plan.signing_keys:
        headers["webhook-signature"] = sign(
            plan.signing_keys, message_id=message_id, at=now, body=body
        )
    return Request(headers, body, shape.method or plan.method, _extended(plan.url, shape.path))


def _extended(url: str, path: str) -> str:
    """Return the address with a path at its end; what is asked of it stays behind the path."""
    if not path:
        return url
    parts, more = urlsplit(url), urlsplit(path)
    query = "&".join(one for one in (parts.query, more.query) if one)
    whole = parts.path.rstrip("/") + "/" + more.path.lstrip("/")
    return parts._replace(path=whole, query=query, fragment="").geturl()


def _message_id(deliveries: Sequence[Leased]) -> str:
    """Return the event's own id, or one that several events have together.

    What a rule gives is a message of its own, the same by every version of the rule.
    """
    events = [one.event for one in deliveries]
    if len(events) == 1:
        rule = deliveries[0].rule.partition("@")[0]
        return f"{events[0].id}-{rule}" if rule else events[0].id
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
