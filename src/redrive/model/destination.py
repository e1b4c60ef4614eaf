"""Destinations: who wants which events, and in what order."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.fairness import Fairness
from redrive.model.limits import Limits
from redrive.model.pattern import check_pattern, matches
from redrive.model.replay import AutoReplay
from redrive.model.retention import Keep

__all__ = ["Destination", "Order", "Routes", "check_destination_name"]

_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_NAME = 100


class Order(StrEnum):
    """Whether the events of one key are delivered one after the other."""

    NONE = "none"
    PARK = "park"
    """In publish order; when one fails for good, the later ones of its key wait behind it."""
    BLOCK = "block"
    """In publish order; when one fails for good, the whole destination waits for a person."""
    SKIP = "skip"
    """In publish order; one that fails for good is passed by."""


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows of a destination: enough to route to it, and to hold back from it."""

    name: str
    patterns: tuple[str, ...]
    order: Order = Order.NONE
    limits: Limits = Limits()
    auto_replay: AutoReplay | None = None
    dead_letters: Keep | None = None
    fairness: Fairness = Fairness()

    def __post_init__(self) -> None:
        check_destination_name(self.name)
        if not isinstance(self.patterns, tuple):
            raise ConfigurationError(
                f"The patterns of {self.name!r} are {self.patterns!r}; "
                'pass a tuple, such as ("order.*",).'
            )
        if not self.patterns:
            raise ConfigurationError(
                f"The destination {self.name!r} has no pattern, so it would get no event; "
                'name what it wants, such as "order.*", or "*" for everything.'
            )
        for pattern in self.patterns:
            check_pattern(pattern)

    def wants(self, event_type: str) -> bool:
        """Tell whether one of the patterns fits the type."""
        return any(matches(pattern, event_type) for pattern in self.patterns)


_MOST_REMEMBERED = 10_000


class Routes:
    """All destinations as of one version; finds those that want an event."""

    def __init__(self, version: int, destinations: Iterable[Destination]) -> None:
        self.version = version
        self.destinations = tuple(sorted(destinations, key=lambda one: one.name))
        # Types are few, unless somebody puts ids into them.
        self.destinations_for = lru_cache(_MOST_REMEMBERED)(self._destinations_for)
        """Returns the names of the destinations that want events of a type, sorted."""

    def _destinations_for(self, event_type: str) -> tuple[str, ...]:
        return tuple(one.name for one in self.destinations if one.wants(event_type))


def check_destination_name(name: object) -> str:
    """Return the name, or say what is wrong with it."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _LONGEST_NAME
        or not _NAME_LETTERS.issuperset(name)
    ):
        raise ConfigurationError(
            f"The destination name is {name!r}; use letters, digits, '.', '_' and '-', "
            'at most 100 characters, such as "billing".'
        )
    return name
