"""Globs over event types: `order.*` wants every event whose type begins with `order.`."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Generic, TypeVar

from redrive.errors import ConfigurationError

__all__ = ["PatternIndex", "check_pattern", "matches"]

T = TypeVar("T")

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


class PatternIndex(Generic[T]):
    """Keeps things by patterns, and finds those that fit a text without trying all of them.

    A pattern is looked up by what stands before its first `*`, so only those that begin as the
    text does are tried.
    """

    def __init__(self) -> None:
        self._by_text: dict[str, list[T]] = {}
        self._by_beginning: dict[str, list[tuple[str, T]]] = {}
        self._lengths: list[int] = []

    def add(self, pattern: str, thing: T) -> None:
        """Keep something by a pattern."""
        beginning, star, _ = pattern.partition("*")
        if not star:
            self._by_text.setdefault(pattern, []).append(thing)
            return
        self._by_beginning.setdefault(beginning, []).append((pattern, thing))
        if len(beginning) not in self._lengths:
            insort(self._lengths, len(beginning))

    def find(self, text: str) -> Iterator[T]:
        """Return what was kept by patterns that fit."""
        yield from self._by_text.get(text, ())
        for length in self._lengths:
            if length > len(text):
                return
            for pattern, thing in self._by_beginning.get(text[:length], ()):
                if matches(pattern, text):
                    yield thing
