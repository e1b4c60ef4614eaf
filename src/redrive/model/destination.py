"""Destinations: who wants which events, and in what order."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache

import msgspec

from redrive.errors import ConfigurationError, UsageError, not_found
from redrive.model.checks import check_text
from redrive.model.duration import duration
from redrive.model.event import Event
from redrive.model.fairness import Fairness
from redrive.model.limits import Limits
from redrive.model.pattern import PatternIndex, check_pattern, matches
from redrive.model.replay import AutoReplay
from redrive.model.retention import Keep

__all__ = ["NOTHING", "Destination", "Order", "Routes", "check_destination_name"]

NOTHING = (".",)
"""The patterns of a projection: no type of events fits, so that nothing is ever routed to it."""

_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_NAME = 100
_LAST = datetime(9998, 12, 31, tzinfo=UTC)
"""The last instant that every store can keep."""


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
    tenant: str | None = None
    """Whose events it gets, by name or by a glob such as `gold-*`; everybody's, if nobody's."""
    order: Order = Order.NONE
    limits: Limits = Limits()
    auto_replay: AutoReplay | None = None
    dead_letters: Keep | None = None
    fairness: Fairness = Fairness()
    expire_after: timedelta | None = None
    """How long its deliveries may take, from when they are due; `None` is as long as it takes."""

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
        if self.tenant is not None and not check_text("tenant", self.tenant):
            raise ConfigurationError(
                f"The destination {self.name!r} belongs to a tenant ''; write a name, or a glob "
                "such as gold-*."
            )
        self._read_life_time()

    def _read_life_time(self) -> None:
        if self.expire_after is not None:
            read = duration(self.expire_after, name="expire_after")
            msgspec.structs.force_setattr(self, "expire_after", read)
            if not read:
                raise ConfigurationError(
                    "expire_after is 0s, so every delivery would have expired at once; write how "
                    'long one may take, such as "24h", or leave it out.'
                )

    @property
    def is_projection(self) -> bool:
        """Whether it reads the log by itself, and gets only what has failed there."""
        return self.patterns == NOTHING

    def deadline_of(self, event: Event[msgspec.Raw], *, now: datetime) -> datetime | None:
        """Return when a delivery made `now` expires: its event's deadline, or here if earlier."""
        if self.expire_after is None:
            return event.deadline
        begin = now if event.due is None else max(now, event.due)
        end = _LAST if begin >= _LAST - self.expire_after else begin + self.expire_after
        return end if event.deadline is None else min(end, event.deadline)

    def wants(self, event_type: str, tenant: str | None) -> bool:
        """Tell whether one of the patterns fits the type, and the tenant is the right one."""
        return self.wants_type(event_type) and self.serves(tenant)

    def wants_event(self, event: Event[msgspec.Raw]) -> bool:
        """Tell whether it wants an event; one published to somebody by name is theirs alone."""
        return not event.to and self.wants(event.type, event.tenant)

    def wants_type(self, event_type: str) -> bool:
        """Tell whether one of the patterns fits the type, whosever the event is."""
        return any(matches(pattern, event_type) for pattern in self.patterns)

    def serves(self, tenant: str | None) -> bool:
        """Tell whether the events of a tenant, or of nobody, may go there."""
        return self.tenant is None or (tenant is not None and matches(self.tenant, tenant))


_MOST_REMEMBERED = 10_000


class Routes:
    """All destinations as of one version; finds those that want an event."""

    def __init__(self, version: int, destinations: Iterable[Destination]) -> None:
        self.version = version
        self.destinations = tuple(sorted(destinations, key=lambda one: one.name))
        # Types are few, unless somebody puts ids into them.
        self.destinations_for = lru_cache(_MOST_REMEMBERED)(self._destinations_for)
        """Returns the names of the destinations that want an event, by type and tenant, sorted."""

    def recipients(self, event: Event[msgspec.Raw]) -> tuple[str, ...]:
        """Return who gets an event: those it names, or those that want it; sorted."""
        return event.to or self.destinations_for(event.type, event.tenant)

    def misaddressed(self, event: Event[msgspec.Raw]) -> UsageError | None:
        """Return what is wrong with the destinations that an event names, if anything is."""
        for name in event.to:
            destination = self._by_name.get(name)
            if destination is None:
                return not_found(name, self._by_name, what="destination")
            if destination.is_projection:
                return UsageError(
                    f"The destination {name!r} is a projection, which reads the log by itself; "
                    "nothing was stored. Publish it without to=."
                )
            if not destination.serves(event.tenant):
                whose = "nobody's" if event.tenant is None else f"one of {event.tenant!r}"
                return UsageError(
                    f"The destination {name!r} belongs to the tenant {destination.tenant!r}, and "
                    f"the event is {whose}; nothing was stored. Publish it with that tenant, or to "
                    "somebody else."
                )
        return None

    def _destinations_for(self, event_type: str, tenant: str | None) -> tuple[str, ...]:
        found = set(self._of_everybody.find(event_type))
        if tenant is not None:
            for of_tenant in self._by_tenant.find(tenant):
                found.update(of_tenant.find(event_type))
        return tuple(sorted(found))

    @cached_property
    def _by_name(self) -> dict[str, Destination]:
        return {one.name: one for one in self.destinations}

    @cached_property
    def _of_everybody(self) -> PatternIndex[str]:
        return _by_type(one for one in self.destinations if one.tenant is None)

    @cached_property
    def _by_tenant(self) -> PatternIndex[PatternIndex[str]]:
        owned: dict[str, list[Destination]] = {}
        for one in self.destinations:
            if one.tenant is not None:
                owned.setdefault(one.tenant, []).append(one)
        index: PatternIndex[PatternIndex[str]] = PatternIndex()
        for tenant, theirs in owned.items():
            index.add(tenant, _by_type(theirs))
        return index


def _by_type(destinations: Iterable[Destination]) -> PatternIndex[str]:
    index: PatternIndex[str] = PatternIndex()
    for one in destinations:
        for pattern in one.patterns:
            index.add(pattern, one.name)
    return index


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
