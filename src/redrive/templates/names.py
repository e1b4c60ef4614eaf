"""Names: what templates and conditions know of an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from redrive.model.event import Event

__all__ = ["EVENT_NAMES", "event_names", "read_payload"]

_NAMES: Mapping[str, Callable[[Event[Any]], object]] = {
    "headers": lambda event: event.headers,
    "id": lambda event: event.id,
    "key": lambda event: event.key,
    "occurred_at": lambda event: event.occurred_at.isoformat(),
    "payload": lambda event: read_payload(event.payload),
    "published_at": lambda event: event.published_at.isoformat(),
    "severity": lambda event: event.severity.value,
    "source": lambda event: event.source,
    "tenant": lambda event: event.tenant,
    "type": lambda event: event.type,
}
EVENT_NAMES = tuple(_NAMES)


def event_names(event: Event[Any]) -> dict[str, object]:
    """Return what a template is rendered with, for an event whose payload is JSON or decoded."""
    return {name: read(event) for name, read in _NAMES.items()}


def read_payload(payload: object) -> object:
    """Return a payload decoded, whichever way it is kept."""
    return msgspec.json.decode(payload) if isinstance(payload, msgspec.Raw) else payload
