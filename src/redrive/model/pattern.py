"""Globs over event types: `order.*` wants every event whose type begins with `order.`."""

from __future__ import annotations

from redrive.errors import ConfigurationError

__all__ = ["check_pattern", "matches"]

_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*")


def check_pattern(pattern: object) -> str:
    """Return the pattern, or say what is wrong with it."""
    if not isinstance(pattern, str) or not pattern or not _ALLOWED.issuperset(pattern):
        raise ConfigurationError(
            f"The pattern {pattern!r} is not one of event types; write a type such as "
            '"order.paid", or use * for any run of characters, as in "order.*".'
        )
    return pattern


def matches(pattern: str, event_type: str) -> bool:
    """Tell whether the type fits; `*` stands for any run of characters, dots included.

    >>> matches("order.*", "order.paid")
    True
    >>> matches("order.*", "invoice.paid")
    False

    It takes one pass over the type, so no pattern can hang a publisher.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == event_type
    last = rest.pop()
    if len(event_type) < len(first) + len(last):
        return False
    if not (event_type.startswith(first) and event_type.endswith(last)):
        return False
    position, end = len(first), len(event_type) - len(last)
    for piece in rest:
        position = event_type.find(piece, position, end)
        if position < 0:
            return False
        position += len(piece)
    return True
