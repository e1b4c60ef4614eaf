"""Retry: how often a delivery is tried, and how long it waits between two tries."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from redrive.clock import Rng
from redrive.errors import ConfigurationError
from redrive.model.duration import Duration, duration, spell_duration

__all__ = ["PRESETS", "Jitter", "Proportional", "Retry", "bounded_retry_after"]

JitterName = Literal["full", "equal", "decorrelated", "none"]

_LARGEST_FACTOR = 1000
_LONGEST_WAIT = timedelta(days=365)
_SHORTEST_RETRY_AFTER = timedelta(seconds=1)
_LONGEST_RETRY_AFTER = timedelta(hours=24)


class Proportional(msgspec.Struct, frozen=True):
    """Jitter of a share of the wait to either side: `Proportional(0.1)` is ±10 %."""

    share: float

    def __post_init__(self) -> None:
        if not _is_number(self.share) or not 0 <= self.share <= 1:
            raise ConfigurationError(
                f"The share of Proportional is {self.share!r}; it is a number from 0 to 1, "
                "where 0.1 means 10 % more or less, and more than 1 could wait less than nothing."
            )


Jitter = JitterName | Proportional


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often to try, and how long to wait in between.

    The wait after the n-th try is `base · factor^(n - 1)`, at most `cap`, then spread by `jitter`:

    - `"full"`: anything from nothing to the whole wait
    - `"equal"`: from half of the wait to the whole
    - `Proportional(0.1)`: the wait ±10 %
    - `"decorrelated"`: from `base` to three times the wait before this one, as the curve without
      jitter has it (nothing is remembered between two tries)
    - `"none"`: the wait as it is

    The result never leaves 0…`cap`. `max_attempts` counts the first try.

    >>> Retry(max_attempts=3, base="100ms", jitter="none").curve(2)
    datetime.timedelta(microseconds=200000)
    """

    max_attempts: int = 5
    base: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(seconds=300)
    jitter: Jitter = "full"

    if TYPE_CHECKING:
        # Durations may be given as text; once here they are a timedelta.
        def __init__(
            self,
            *,
            max_attempts: int = 5,
            base: Duration = "1s",
            factor: float = 2.0,
            cap: Duration = "300s",
            jitter: Jitter = "full",
        ) -> None: ...

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "base", duration(self.base, name="base"))
        msgspec.structs.force_setattr(self, "cap", duration(self.cap, name="cap"))
        msgspec.structs.force_setattr(self, "jitter", _read_jitter(self.jitter))
        self._check()
        msgspec.structs.force_setattr(self, "factor", float(self.factor))

    @classmethod
    def preset(cls, name: str) -> Retry:
        """Return one of `PRESETS`: tracking, outbox, projection, mail or gateway."""
        found = PRESETS.get(name)
        if found is None:
            close = difflib.get_close_matches(str(name), PRESETS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "take one of these."
            raise ConfigurationError(
                f"There is no retry preset {name!r}, only {', '.join(PRESETS)}; {hint}"
            )
        return found

    def curve(self, attempt: int) -> timedelta:
        """Return the wait after this try, the first being 1, without jitter."""
        if not self.base:
            return self.base
        try:
            grown = self.base.total_seconds() * self.factor ** max(0, attempt - 1)
        except OverflowError:
            return self.cap
        return self.cap if grown >= self.cap.total_seconds() else timedelta(seconds=grown)

    def delay(self, attempt: int, rng: Rng) -> timedelta:
        """Return the wait after this try, the first being 1, with jitter."""
        low, high = self._spread(attempt)
        drawn = timedelta(seconds=rng.uniform(low, high)) if low < high else timedelta(seconds=low)
        return min(max(drawn, timedelta(0)), self.cap)

    def _spread(self, attempt: int) -> tuple[float, float]:
        wait = self.curve(attempt).total_seconds()
        match self.jitter:
            case "full":
                return 0.0, wait
            case "equal":
                return wait / 2, wait
            case "decorrelated":
                return self.base.total_seconds(), 3 * self.curve(attempt - 1).total_seconds()
            case "none":
                return wait, wait
            case Proportional(share=share):
                return wait * (1 - share), wait * (1 + share)

    def _check(self) -> None:
        if not _is_whole(self.max_attempts) or self.max_attempts < 1:
            raise ConfigurationError(
                f"max_attempts is {self.max_attempts!r}; it counts the first try, "
                "so the smallest useful value is 1 (deliver once, never retry)."
            )
        if not _is_number(self.factor) or not 1 <= self.factor <= _LARGEST_FACTOR:
            raise ConfigurationError(
                f"factor is {self.factor!r}; each wait is this many times the one before, "
                "so write a number from 1 (equal waits) to 1000; 2 doubles them."
            )
        if self.cap > _LONGEST_WAIT:
            raise ConfigurationError(
                f"cap is {spell_duration(self.cap)}, and nobody waits that long for a retry; "
                f"write at most {spell_duration(_LONGEST_WAIT)}."
            )
        if self.base > self.cap:
            raise ConfigurationError(
                f"base is {spell_duration(self.base)}, longer than the cap of "
                f"{spell_duration(self.cap)} that no wait exceeds; raise cap or lower base."
            )


def bounded_retry_after(wait: timedelta) -> timedelta:
    """Bring the wait a destination asked for into 1 s…24 h, whatever it said."""
    return min(max(wait, _SHORTEST_RETRY_AFTER), _LONGEST_RETRY_AFTER)


def _read_jitter(value: object) -> Jitter:
    match value:
        case Proportional():
            return value
        case "full" | "equal" | "decorrelated" | "none":
            return value
    names = ", ".join(f'"{name}"' for name in get_args(JitterName))
    raise ConfigurationError(
        f"jitter is {value!r}; it is one of {names}, or Proportional(0.1) for 10 % more or less."
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


PRESETS: Mapping[str, Retry] = MappingProxyType(
    {
        "tracking": Retry(max_attempts=4, base="100ms", cap="5s", jitter=Proportional(0.1)),
        "outbox": Retry(max_attempts=5, base="1s", cap="300s", jitter="full"),
        "projection": Retry(max_attempts=3, base="1s", jitter="none"),
        "mail": Retry(max_attempts=5, base="1s", cap="60s", jitter=Proportional(0.25)),
        "gateway": Retry(max_attempts=4, base="1s", cap="60s", jitter="none"),
    }
)
