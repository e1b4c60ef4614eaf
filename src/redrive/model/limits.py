"""Limits: how hard a destination may be pressed, and when it counts as down."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from redrive.errors import ConfigurationError
from redrive.model.checks import check_text
from redrive.model.duration import Duration, duration, spell_duration

__all__ = [
    "Breaker",
    "Limits",
    "OnOpen",
    "OverRetryRate",
    "Rate",
    "SharedRate",
    "read_rate",
    "spell_rate",
]

OnOpen = Literal["hold", "dead_letter"]
"""What becomes of deliveries that come due while a breaker is open."""

OverRetryRate = Literal["delay", "dead_letter"]
"""What becomes of retries that come due when their rate is used up."""

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BURST_SHARE = 10
_SLOWEST = 1 / (366 * _SECONDS["d"])
_DROP: object = "drop"
_UNSAID = timedelta(microseconds=-1)
_LONGEST_OPEN = timedelta(seconds=45)


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """So many per second, and as many at once as `burst` allows.

    Over any stretch of `w` seconds at most `per_second * w + burst` get through.
    """

    per_second: float
    burst: float = 1.0

    def __post_init__(self) -> None:
        if not self.per_second > 0 or not self.burst >= 1:
            raise ConfigurationError(
                f"A rate of {self.per_second!r} a second with a burst of {self.burst!r} lets "
                'nothing through; write a rate above 0, such as "100/s", and a burst from 1.'
            )
        if self.per_second < _SLOWEST:
            raise ConfigurationError(
                f"A rate of {self.per_second!r} a second is less than one in a year; write a "
                "higher one, or pause the destination."
            )


class SharedRate(msgspec.Struct, frozen=True):
    """A rate that several destinations share, by its name: such as that of one account.

    It counts all attempts of all of them: first ones, retries and replays.
    """

    name: str
    rate: Rate

    if TYPE_CHECKING:
        # A rate may be given as text; once here it is a Rate.
        def __init__(self, name: str, rate: Rate | str) -> None: ...

    def __post_init__(self) -> None:
        check_text("The name of a shared rate", self.name)
        rate = read_rate(self.rate, name="rate")
        if not self.name.strip() or rate is None:
            raise ConfigurationError(
                f"SharedRate({self.name!r}, {self.rate!r}) shares nothing; write a name and how "
                'many in how long, such as SharedRate("acme", "100/s").'
            )
        msgspec.structs.force_setattr(self, "rate", rate)


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """When a destination counts as down, and how to find out that it is not.

    It opens after `failures` transient failures in a row or, with `rate`, when that share of the
    calls within `window` failed (of at least `least_calls`); and when a delivery has failed for the
    last time and nothing was answered since it first did. It stays open for half of the time that
    the destination has been down, from `open_for` to `longest_open`, which is 45 s or, if that is
    longer, `open_for`. `successes` of probes, at most `probes` at once over all workers, close it.
    What comes due meanwhile waits, or with `on_open` becomes a dead letter at once; what has waited
    goes out at a pace that grows over `ramp`.
    """

    failures: int = 5
    rate: float | None = None
    window: timedelta = timedelta(seconds=60)
    least_calls: int = 20
    open_for: timedelta = timedelta(seconds=2)
    longest_open: timedelta = _UNSAID
    successes: int = 3
    probes: int = 1
    on_open: OnOpen = "hold"
    ramp: timedelta = timedelta(seconds=30)

    if TYPE_CHECKING:
        # Durations may be given as text; once here they are a timedelta.
        def __init__(
            self,
            *,
            failures: int = 5,
            rate: float | None = None,
            window: Duration = "60s",
            least_calls: int = 20,
            open_for: Duration = "2s",
            longest_open: Duration = "45s",
            successes: int = 3,
            probes: int = 1,
            on_open: OnOpen = "hold",
            ramp: Duration = "30s",
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("window", "open_for"):
            read = duration(getattr(self, name), name=name)
            msgspec.structs.force_setattr(self, name, read)
            if not read:
                raise ConfigurationError(f'{name} is 0s; write how long, such as "60s".')
        msgspec.structs.force_setattr(self, "ramp", duration(self.ramp, name="ramp"))
        self._read_longest_open()
        _check_word("on_open", self.on_open, get_args(OnOpen))
        for name in ("failures", "least_calls", "successes", "probes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"{name} is {value!r}; it is a whole number from 1.")
        if self.rate is not None and not 0 < self.rate <= 1:
            raise ConfigurationError(
                f"rate is {self.rate!r}; it is the share of failed calls that opens the breaker, "
                "such as 0.5 for half of them."
            )

    def _read_longest_open(self) -> None:
        if self.longest_open == _UNSAID:  # so it is, too, where an older release declared it
            longest = max(_LONGEST_OPEN, self.open_for)
            msgspec.structs.force_setattr(self, "longest_open", longest)
            return
        longest = duration(self.longest_open, name="longest_open")
        msgspec.structs.force_setattr(self, "longest_open", longest)
        if longest < self.open_for:
            raise ConfigurationError(
                f"longest_open is {spell_duration(longest)}, shorter than open_for, the first wait "
                f"of {spell_duration(self.open_for)}; raise longest_open or lower open_for. A "
                "destination that is back waits for longest_open at most."
            )


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all workers together keep to; `None` is no limit.

    First attempts, retries and replays are counted apart. `retry_budget` is the share of recent
    first attempts that retries may add, beyond a few each second. `over_retry_rate` says whether
    retries wait for their rate, or become dead letters. `shared_rate` bounds all attempts, together
    with those of other destinations. After having failed for as long as `disable_after`, a
    destination is paused until a person resumes it.
    """

    breaker: Breaker | None = None
    rate: Rate | None = None
    retry_rate: Rate | None = None
    over_retry_rate: OverRetryRate = "delay"
    replay_rate: Rate | None = None
    retry_budget: float | None = None
    concurrency: int | None = None
    shared_rate: SharedRate | None = None
    disable_after: timedelta | None = None

    def __post_init__(self) -> None:
        if self.disable_after is not None:
            self._read_disable_after()
        if self.over_retry_rate == _DROP:
            raise ConfigurationError(
                "over_retry_rate is 'drop', and nothing that was published is ever dropped; "
                "write 'delay' to let retries wait, or 'dead_letter' to give them up where a "
                "person sees them. Of what is tracked, Tracking(over_retry_rate='drop') says it."
            )
        _check_word("over_retry_rate", self.over_retry_rate, get_args(OverRetryRate))
        if self.shared_rate is not None and not isinstance(self.shared_rate, SharedRate):
            raise ConfigurationError(
                f"shared_rate is {self.shared_rate!r}; write its name and how many in how long, "
                'such as SharedRate("acme", "100/s").'
            )
        if self.retry_budget is not None and not _is_share(self.retry_budget):
            raise ConfigurationError(
                f"retry_budget is {self.retry_budget!r}; it is a share of the first attempts, "
                "such as 0.1 for one retry to ten of them."
            )
        if self.concurrency is not None and (
            not isinstance(self.concurrency, int)
            or isinstance(self.concurrency, bool)
            or self.concurrency < 1
        ):
            raise ConfigurationError(
                f"concurrency is {self.concurrency!r}; it is how many attempts may run at one "
                "time, so write 1 or more, or leave it out for no limit of its own."
            )

    def _read_disable_after(self) -> None:
        read = duration(self.disable_after, name="disable_after")
        msgspec.structs.force_setattr(self, "disable_after", read)
        if not read:
            raise ConfigurationError(
                "disable_after is 0s, so one failure would be enough; write how long it may have "
                'failed, such as "5d", or leave it out.'
            )
        if self.breaker is None:
            raise ConfigurationError(
                "disable_after needs a breaker, which knows how long a destination has failed, and "
                "this one has none; pass breaker=Breaker() beside it."
            )


def _check_word(name: str, value: object, words: tuple[str, ...]) -> None:
    if value not in words:
        raise ConfigurationError(f"{name} is {value!r}; it is one of {', '.join(words)}.")


def read_rate(value: object, *, name: str) -> Rate | None:
    """Read a rate such as `"100/s"` or `"30/m"`; the burst is a tenth of a second's worth.

    >>> read_rate("30/m", name="rate")
    Rate(per_second=0.5, burst=1.0)
    """
    if value is None or isinstance(value, Rate):
        return value
    per_second = 0.0
    if isinstance(value, str):
        number, slash, unit = value.replace(" ", "").partition("/")
        try:
            per_second = float(number) / _SECONDS[unit] if slash else 0.0
        except (ValueError, KeyError):
            per_second = 0.0
    if not 0 < per_second < float("inf"):
        raise ConfigurationError(
            f'{name} is {value!r}; write how many in how long, such as "100/s" or "30/m", '
            "a Rate, or None for no limit."
        )
    return Rate(per_second=per_second, burst=max(1.0, per_second / _BURST_SHARE))


def spell_rate(rate: Rate) -> str:
    """Write a rate the way it is read.

    >>> spell_rate(Rate(per_second=100.0)), spell_rate(Rate(per_second=0.5))
    ('100/s', '30/m')
    """
    per, unit = next(
        (per, unit)
        for unit, seconds in _SECONDS.items()
        if (per := rate.per_second * seconds) >= 1 or unit == "d"
    )
    return f"{per:.12g}/{unit}"


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
