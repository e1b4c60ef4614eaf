"""Terms: how an app tracks, as its code says it, checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from redrive.errors import ConfigurationError, refuse_unknown
from redrive.model.checks import check_text
from redrive.model.duration import Duration, duration
from redrive.model.event import Severity
from redrive.model.limits import Rate, read_rate
from redrive.model.pattern import check_pattern
from redrive.policies.filter import Filter, TypePatterns

__all__ = ["Bypass", "Candidate", "OnFull", "OverRetryRate", "Tracking"]

OnFull = Literal["spill", "drop_oldest", "raise"]
"""What becomes of an event that finds the buffer full."""
OverRetryRate = Literal["delay", "drop"]
"""What becomes of a failed event above the rate of retries."""

_RATE = Rate(per_second=1_000.0, burst=1_000.0)
_DEFAULTS = ("source", "tenant", "headers", "severity")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What a function of `Bypass` is asked about: all of an event but what its payload says."""

    type: str
    severity: Severity
    key: str | None = None
    tenant: str | None = None


class Bypass(msgspec.Struct, frozen=True, kw_only=True):
    """Which events no rate and no sampling keeps out, whatever their payload says."""

    severity: Severity | None = None
    """From this one on, such as `"critical"`."""
    patterns: tuple[str, ...] = ()
    """Types, as in a `Filter`."""
    when: Callable[[Candidate], bool] | None = None

    def __post_init__(self) -> None:
        TypePatterns(self.patterns, name="patterns")
        msgspec.structs.force_setattr(self, "patterns", tuple(self.patterns))
        if self.severity is not None:
            severity = _severity("severity", self.severity)
            msgspec.structs.force_setattr(self, "severity", severity)
        if self.when is not None and not callable(self.when):
            raise ConfigurationError(
                f"when is {self.when!r}; pass a function that takes a Candidate and says whether "
                "it passes."
            )


class Tracking(msgspec.Struct, frozen=True, kw_only=True):
    """How an app tracks.

    >>> Tracking(rate="200/s", sampling={"debug.*": 0.01}, on_full="drop_oldest").capacity
    10000
    """

    capacity: int = 10_000
    """How many events may wait to be sent; what sits there dies with the process."""
    on_full: OnFull = "spill"
    """What becomes of an event that finds no room: it goes to the journal, the oldest makes room
    for it, or `track` raises `BufferFullError`."""
    rate: Rate | None = _RATE
    """How many events in which time; above it the filter decides which are kept."""
    rates: tuple[tuple[str, Rate | None], ...] = ()
    """The same for some types, instead: `{"debug.*": "10/s"}`; the first that fits."""
    sampling: tuple[tuple[str, float], ...] = ()
    """Which share of some types is tracked at all: `{"debug.*": 0.01}`; the first that fits."""
    bypass: Bypass = Bypass()
    """What neither a rate nor sampling keeps out."""
    filter: Filter = Filter()
    """What is worth keeping, when it cannot simply be sent."""
    over_retry_rate: OverRetryRate = "delay"
    """What becomes of an event that failed at a destination whose `retry_rate` this process has
    used up by itself: it is stored and waits, or is dropped where the filter allows it."""
    enrich: Callable[[str, Any], Any] | None = None
    """Takes the type and the payload, and returns the payload that leaves; it may add to it, or
    remove fields. It runs where `track` is called."""
    defaults: Mapping[str, Any] = MappingProxyType({})
    """Attributes of all tracked events: `source`, `tenant`, `severity`, and `headers`."""
    fan_out: timedelta = timedelta(seconds=5)
    """How long the destinations of an event may take; the rest of them goes to the store."""
    flush_limit: timedelta = timedelta(seconds=5)
    """How long the end of the process waits for what is still to be sent."""

    if TYPE_CHECKING:
        # Rates and durations may be given as text, and pairs as a mapping.
        def __init__(
            self,
            *,
            capacity: int = 10_000,
            on_full: OnFull = "spill",
            rate: Rate | str | None = ...,
            rates: Mapping[str, Rate | str | None] | tuple[tuple[str, Rate | None], ...] = (),
            sampling: Mapping[str, float] | tuple[tuple[str, float], ...] = (),
            bypass: Bypass = ...,
            filter: Filter = ...,  # noqa: A002 - the glossary's word
            over_retry_rate: OverRetryRate = "delay",
            enrich: Callable[[str, Any], Any] | None = None,
            defaults: Mapping[str, Any] = ...,
            fan_out: Duration = "5s",
            flush_limit: Duration = "5s",
        ) -> None: ...

    def __post_init__(self) -> None:
        if type(self.capacity) is not int or self.capacity < 1:
            raise ConfigurationError(
                f"capacity is {self.capacity!r}; it is how many events may wait, from 1."
            )
        if self.on_full not in get_args(OnFull):
            raise ConfigurationError(
                f"on_full is {self.on_full!r}; it is one of {', '.join(get_args(OnFull))}."
            )
        if self.over_retry_rate not in get_args(OverRetryRate):
            raise ConfigurationError(
                f"over_retry_rate is {self.over_retry_rate!r}; it is one of "
                f"{', '.join(get_args(OverRetryRate))}."
            )
        self._set("rate", _rate(self.rate, name="rate"))
        self._set(
            "rates",
            tuple(
                (pattern, _rate(rate, name=f"The rate of {pattern!r}"))
                for pattern, rate in _pairs("rates", self.rates, '{"debug.*": "10/s"}')
            ),
        )
        sampling = _pairs("sampling", self.sampling, '{"debug.*": 0.01}')
        for pattern, share in sampling:
            if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
                raise ConfigurationError(
                    f"The sampling of {pattern!r} is {share!r}; it is a share from 0 to 1, such "
                    "as 0.01 for one in a hundred."
                )
        self._set("sampling", sampling)
        if self.enrich is not None and not callable(self.enrich):
            raise ConfigurationError(
                f"enrich is {self.enrich!r}; pass a function that takes the type and the payload, "
                "and returns the payload."
            )
        self._read_defaults()
        for name in ("fan_out", "flush_limit"):
            span = duration(getattr(self, name), name=name)
            if not span:
                raise ConfigurationError(f'{name} is 0s; write how long, such as "5s".')
            self._set(name, span)

    @classmethod
    def preset(cls, environment: str) -> Tracking:
        """Return what suits an environment; any other than these is taken for production.

        `development` has no limit, `test` none either, and raises when the buffer is full;
        `staging` is limited to 200 events a second.
        """
        match environment:
            case "development":
                return cls(rate=None, on_full="drop_oldest")
            case "test":
                return cls(rate=None, on_full="raise")
            case "staging":
                return cls(rate=Rate(per_second=200.0, burst=200.0))
            case _:
                return cls()

    def _read_defaults(self) -> None:
        refuse_unknown(self.defaults, _DEFAULTS, what="default of tracked events")
        given = dict(self.defaults)
        for name in ("source", "tenant"):
            if given.get(name) is not None:
                check_text(name, given[name])
        if "severity" in given:
            given["severity"] = _severity("severity", given["severity"])
        headers = given.get("headers", {})
        if not isinstance(headers, Mapping) or not all(
            isinstance(one, str) for pair in headers.items() for one in pair
        ):
            raise ConfigurationError(f"headers is {headers!r}; it is a dict of text to text.")
        self._set("defaults", MappingProxyType(given))

    def _set(self, name: str, value: object) -> None:
        msgspec.structs.force_setattr(self, name, value)


def _rate(value: object, *, name: str) -> Rate | None:
    """Read a rate; one that is written as text lets a second's worth through at once."""
    rate = read_rate(value, name=name)
    if rate is None or rate is value:
        return rate
    return Rate(per_second=rate.per_second, burst=max(1.0, rate.per_second))


def _pairs(name: str, value: object, example: str) -> tuple[tuple[str, Any], ...]:
    given = tuple(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(given, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == len(("pattern", "value")) for pair in given
    ):
        raise ConfigurationError(f"{name} is {value!r}; map patterns of types, such as {example}.")
    for pattern, _ in given:
        check_pattern(pattern)
    return given


def _severity(name: str, value: object) -> Severity:
    try:
        return Severity(value)  # type: ignore[arg-type]  # what it is not, it refuses
    except ValueError:
        raise ConfigurationError(
            f"{name} is {value!r}; it is one of {', '.join(Severity)}."
        ) from None
