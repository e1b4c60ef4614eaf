"""Destinations: who wants which events, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import NamedTuple

import msgspec

from redrive.errors import ConfigurationError, UsageError, not_found
from redrive.model.checks import check_text
from redrive.model.duration import duration
from redrive.model.event import Event
from redrive.model.fairness import Fairness
from redrive.model.limits import Limits
from redrive.model.pattern import PatternIndex, check_pattern, matches
from redrive.model.recipient import destination_of, recipient
from redrive.model.replay import AutoReplay
from redrive.model.retention import Keep
from redrive.model.rule import RuleRoute

__all__ = ["BY_RULES", "NOTHING", "Destination", "Order", "Routes", "check_destination_name"]

NOTHING = (".",)
"""The patterns of a projection: no type of events fits, so that nothing is ever routed to it."""

BY_RULES = ("..",)
"""The patterns of a stored service, which its rules give events to: no type of events fits."""

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
    passing: tuple[tuple[str, bool], ...] = ()
    """Whether dead letters of some types are passed by, whatever its order: the first that fits."""
    reads: tuple[str, ...] = ()
    """Patterns of the events that a projection reads; of anything else there are none."""
    service: int = 0
    """Which version of a stored service it is; 0 is what code declares."""
    rules: tuple[RuleRoute, ...] = ()
    """The rules by which a stored service gets events."""
    is_disabled: bool = False
    """Whether a stored service is served by nobody, so that what it gets waits."""

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

    def passes_by(self, event_type: str) -> bool:
        """Tell whether a dead letter of a type holds up nobody of its key."""
        for pattern, is_passed_by in self.passing:
            if matches(pattern, event_type):
                return is_passed_by
        return self.order is Order.SKIP

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

    def recipients(self, event_type: str, tenant: str | None) -> tuple[Recipient, ...]:
        """Return by which names an event would come here, conditions aside."""
        if not self.serves(tenant):
            return ()
        if not self.service:
            return (Recipient(self.name),) if self.wants_type(event_type) else ()
        return tuple(
            Recipient(recipient(self.name, one.pin), one)
            for one in self.rules
            if any(matches(pattern, event_type) for pattern in one.patterns)
        )

    def wants_event(self, event: Event[msgspec.Raw]) -> bool:
        """Tell whether it wants an event; one published to somebody by name is theirs alone.

        Nobody wants one whose payload was erased.
        """
        return event.erased is None and not event.to and self.wants(event.type, event.tenant)

    def wants_type(self, event_type: str) -> bool:
        """Tell whether one of the patterns fits the type, whosever the event is."""
        return any(matches(pattern, event_type) for pattern in self.patterns)

    def serves(self, tenant: str | None) -> bool:
        """Tell whether the events of a tenant, or of nobody, may go there."""
        return self.tenant is None or (tenant is not None and matches(self.tenant, tenant))


class Recipient(NamedTuple):
    """Who gets an event, by name, and the rule that leads there, if one does."""

    name: str
    route: RuleRoute | None = None

    @property
    def is_certain(self) -> bool:
        """Whether it gets every event that fits, without a condition."""
        return self.route is None or not self.route.condition


Fulfils = Callable[[RuleRoute, Event[msgspec.Raw]], bool]
"""Tells whether an event fulfils the condition of a rule."""

_MOST_REMEMBERED = 10_000
_FEW = 4


class Routes:
    """All destinations as of one version; finds those that want an event."""

    def __init__(self, version: int, destinations: Iterable[Destination]) -> None:
        self.version = version
        self.destinations = tuple(sorted(destinations, key=lambda one: one.name))
        # Types are few, unless somebody puts ids into them.
        self.found_for = lru_cache(_MOST_REMEMBERED)(self._found_for)
        """Returns who gets an event, by type and tenant, sorted, and who may by a condition."""
        self.readers_of = lru_cache(_MOST_REMEMBERED)(self._readers_of)
        """Returns the names of the projections that read events of a type, sorted."""

    def recipients(self, event: Event[msgspec.Raw], fulfils: Fulfils) -> tuple[str, ...]:
        """Return who gets an event: those it names, or those that want it; sorted."""
        if event.to:
            return event.to
        names, conditional = self.found_for(event.type, event.tenant)
        if not conditional:
            return names
        fitting = [one.name for one in conditional if one.route and fulfils(one.route, event)]
        return tuple(sorted([*names, *fitting]))

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

    def destinations_for(self, event_type: str, tenant: str | None) -> tuple[str, ...]:
        """Return the names of the destinations that may want such an event, sorted."""
        names, conditional = self.found_for(event_type, tenant)
        found = {destination_of(one) for one in (*names, *(one.name for one in conditional))}
        return tuple(sorted(found))

    def _found_for(
        self, event_type: str, tenant: str | None
    ) -> tuple[tuple[str, ...], tuple[Recipient, ...]]:
        found = set(self._of_everybody.find(event_type))
        if tenant is not None:
            for of_tenant in self._by_tenant.find(tenant):
                found.update(of_tenant.find(event_type))
        names = sorted(one.name for one in found if one.is_certain)
        return tuple(names), tuple(one for one in found if not one.is_certain)

    def _readers_of(self, event_type: str) -> tuple[str, ...]:
        return tuple(
            one.name
            for one in self.destinations
            if any(matches(pattern, event_type) for pattern in one.reads)
        )

    @cached_property
    def _by_name(self) -> dict[str, Destination]:
        return {one.name: one for one in self.destinations}

    @cached_property
    def _of_everybody(self) -> PatternIndex[Recipient]:
        return _by_type(one for one in self.destinations if one.tenant is None)

    @cached_property
    def _by_tenant(self) -> PatternIndex[_OfTenant]:
        owned: dict[str, _OfTenant] = {}
        for one in self.destinations:
            if one.tenant is not None:
                if (theirs := owned.get(one.tenant)) is None:
                    theirs = owned[one.tenant] = _OfTenant()
                theirs.destinations.append(one)
        index: PatternIndex[_OfTenant] = PatternIndex()
        for tenant, theirs in owned.items():
            index.add(tenant, theirs)
        return index


class _OfTenant:
    """The destinations of a tenant; most have few, which need no index."""

    def __init__(self) -> None:
        self.destinations: list[Destination] = []

    def find(self, event_type: str) -> Iterable[Recipient]:
        """Return who may get an event of a type."""
        if len(self.destinations) > _FEW:
            return self._by_type.find(event_type)
        found = _recipients(self.destinations)
        return [one for pattern, one in found if matches(pattern, event_type)]

    @cached_property
    def _by_type(self) -> PatternIndex[Recipient]:
        return _by_type(self.destinations)


def _by_type(destinations: Iterable[Destination]) -> PatternIndex[Recipient]:
    index: PatternIndex[Recipient] = PatternIndex()
    for pattern, one in _recipients(destinations):
        index.add(pattern, one)
    return index


def _recipients(destinations: Iterable[Destination]) -> Iterator[tuple[str, Recipient]]:
    """Return by which patterns events get where."""
    for one in destinations:
        for pattern in one.patterns if not one.service else ():
            yield pattern, Recipient(one.name)
        for route in one.rules:
            for pattern in route.patterns:
                yield pattern, Recipient(recipient(one.name, route.pin), route)


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
