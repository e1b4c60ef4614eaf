"""The inbox: under which key the effect of an event is known as applied."""

from __future__ import annotations

import msgspec

from redrive.model.event import Event

__all__ = ["inbox_key"]


def inbox_key(event: Event[msgspec.Raw]) -> tuple[str, str]:
    """Return the source and the key of its record.

    An event without an idempotency key has its id for a source, and for a key what no key can be.
    """
    if event.idempotency_key is None:
        return event.id, ""
    return event.source, event.idempotency_key
