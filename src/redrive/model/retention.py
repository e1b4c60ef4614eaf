"""Retention: how long what is settled is kept, and how many dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.duration import Duration, duration, spell_duration
from redrive.model.pattern import check_pattern, matches

__all__ = ["Keep", "Retention", "read_spans"]


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long things are kept once they are settled.

    Deliveries that arrived are kept for `delivered`. Events are kept for `events` after the last
    of their deliveries was settled, and so are resolved dead letters. What an idempotency key was
    used for is remembered for `idempotency`, counted from the same moment, and which effects were
    applied for `inbox`, but never shorter than that. What still waits, runs or is an unresolved
    dead letter keeps its event and all its records, however old they are. What people did, replays
    that are over among it, is remembered for `audit`. `events_of` says it of events of some types;
    the first pattern that fits counts, and `None` is for ever.
    """

    delivered: timedelta = timedelta(hours=24)
    events: timedelta = timedelta(days=30)
    idempotency: timedelta = timedelta(days=30)
    inbox: timedelta = timedelta(days=30)
    audit: timedelta = timedelta(days=400)
    events_of: tuple[tuple[str, timedelta | None], ...] = ()

    def keeps(self, event_type: str) -> timedelta | None:
        """Return how long events of a type are kept; `None` is for ever."""
        for pattern, span in self.events_of:
            if matches(pattern, event_type):
                return span
        return self.events

    @property
    def shortest(self) -> timedelta:
        """The shortest time for which any events are kept."""
        return min([self.events, *(span for _, span in self.events_of if span is not None)])

    def __post_init__(self) -> None:
        if self.events < self.delivered:
            raise ConfigurationError(
                f"keep_events is {spell_duration(self.events)}, less than keep_delivered "
                f"({spell_duration(self.delivered)}): a delivery would outlive its event. "
                "Keep events at least as long."
            )
        if self.idempotency < self.events:
            raise ConfigurationError(
                f"keep_idempotency is {spell_duration(self.idempotency)}, less than keep_events "
                f"({spell_duration(self.events)}): dedupe records expire before the dead letters "
                "and events they guard, and a repeated publish would be stored twice. "
                "Keep idempotency records at least as long."
            )
        for pattern, span in self.events_of:
            if span is not None and span < self.delivered:
                raise ConfigurationError(
                    f"keep_events_of keeps {pattern} for {spell_duration(span)}, less than "
                    f"keep_delivered ({spell_duration(self.delivered)}): a delivery would outlive "
                    "its event. Keep events at least as long."
                )
        # What may still be sent again must not be applied twice.
        msgspec.structs.force_setattr(self, "inbox", max(self.inbox, self.idempotency))


class Keep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long, and how many, dead letters of a destination are kept; `None` is no limit.

    What is over a limit is exported to a file before it goes, the oldest first.

    >>> Keep(age="90d", count=100_000).age
    datetime.timedelta(days=90)
    """

    age: timedelta | None = None
    count: int | None = None

    if TYPE_CHECKING:
        # Durations may be given as text; once here they are a timedelta.
        def __init__(self, *, age: Duration | None = None, count: int | None = None) -> None: ...

    def __post_init__(self) -> None:
        if self.age is not None:
            msgspec.structs.force_setattr(self, "age", duration(self.age, name="age"))
        if self.age is None and self.count is None:
            raise ConfigurationError(
                'Keep() limits nothing; give an age, such as Keep(age="90d"), or a count, '
                "such as Keep(count=100_000), or leave dead_letters out to keep them all."
            )
        if self.age is not None and not self.age:
            raise ConfigurationError(
                "The age of Keep is 0s, which leaves no time to look at a dead letter; "
                'write how long to keep them, such as "90d".'
            )
        if self.count is not None and (type(self.count) is not int or self.count < 1):
            raise ConfigurationError(
                f"The count of Keep is {self.count!r}; it is how many dead letters to keep, from 1."
            )


def read_spans(given: object, *, name: str) -> tuple[tuple[str, timedelta | None], ...]:
    """Read for how long events of some types are kept, from text, a list or a mapping.

    >>> read_spans("order.*=forever, mail.*=90d", name="keep_events_of")
    (('order.*', None), ('mail.*', datetime.timedelta(days=90)))
    """
    pairs: list[tuple[object, object]] = []
    if isinstance(given, str):
        given = [one for one in given.split(",") if one.strip()]
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, list | tuple):
        for one in given:
            pattern, is_pair, span = one.partition("=") if isinstance(one, str) else ("", "", "")
            pairs.append((pattern.strip(), span.strip()) if is_pair else _pair(one, given, name))
    else:
        raise _odd(given, name)
    return tuple(
        (
            check_pattern(pattern),
            None if span in (None, "forever") else duration(span, name=f"{name} of {pattern}"),
        )
        for pattern, span in pairs
    )


def _pair(one: object, given: object, name: str) -> tuple[object, object]:
    if isinstance(one, tuple) and len(one) == 2:  # noqa: PLR2004 - as it was read before
        return one
    raise _odd(given, name)


def _odd(given: object, name: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name} is {given!r}; name types and how long their events are kept, such as "
        '{"order.*": "forever", "mail.*": "90d"}.'
    )
