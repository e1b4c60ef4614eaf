"""Upcasts: functions that bring payloads of an old shape up to date before they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from redrive.errors import ConfigurationError, PayloadError
from redrive.model.event import UNREADABLE, Event
from redrive.model.pattern import PatternIndex, check_pattern
from redrive.policies.payload import encode_payload

__all__ = ["NO_UPCASTS", "Upcast", "Upcasts"]

_MOST_REMEMBERED = 10_000
"""Types are few, unless somebody puts ids into them."""

Upcast = Callable[[Any], object]
"""Takes a payload, decoded, and returns it in its present shape."""


class Upcasts:
    """The upcasts of an app; those that fit an event are called in the order of their declaration.

    What is in the log stays as it was published.
    """

    def __init__(self) -> None:
        self._index = PatternIndex[tuple[int, Upcast]]()
        self._count = 0
        self._known: dict[str, list[Upcast]] = {}

    def add(self, pattern: str, upcast: Upcast) -> None:
        """Have events whose type fits the pattern brought up to date."""
        check_pattern(pattern)
        if not callable(upcast):
            raise ConfigurationError(
                f"{upcast!r} is not a function, so it can't bring a payload up to date."
            )
        self._index.add(pattern, (self._count, upcast))
        self._count += 1
        self._known.clear()

    def applied(self, event: Event[msgspec.Raw]) -> Event[msgspec.Raw]:
        """Return the event with its payload up to date."""
        if not self._count:
            return event
        upcasts = self._known.get(event.type)
        if upcasts is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            upcasts = self._known[event.type] = [
                upcast for _, upcast in sorted(self._index.find(event.type), key=lambda one: one[0])
            ]
        if not upcasts or UNREADABLE in event.headers:
            return event
        payload = msgspec.json.decode(event.payload)
        for upcast in upcasts:
            before, payload = payload, upcast(payload)
            if payload is None and before is not None:
                raise PayloadError(
                    f"The upcast {getattr(upcast, '__qualname__', upcast)!s} of {event.type} "
                    "returned None; let it return the payload, changed or not."
                )
        return msgspec.structs.replace(event, payload=msgspec.Raw(encode_payload(payload)))


NO_UPCASTS = Upcasts()
"""For who has none."""
