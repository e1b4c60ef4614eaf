"""Admittance: whether an event may be tracked at all: sampling, rates, and what passes them."""

from __future__ import annotations

from collections.abc import Callable

from redrive.clock import Clock, Rng
from redrive.model.event import Severity
from redrive.model.limits import Rate
from redrive.model.pattern import matches
from redrive.policies.filter import TypePatterns
from redrive.tracking.terms import Bypass, Candidate, Tracking

__all__ = ["Admittance", "Tokens"]

_MOST_REMEMBERED = 10_000
_SEVERITIES = {one: place for place, one in enumerate(Severity)}


class Tokens:
    """Tokens of one rate; whoever takes some holds the tracker's lock."""

    __slots__ = ("at", "burst", "per_second", "tokens")

    def __init__(self, rate: Rate, now: float) -> None:
        self.per_second = rate.per_second
        self.burst = self.tokens = rate.burst
        self.at = now

    def take(self, now: float) -> bool:
        """Take a token, if there is one."""
        if now > self.at:
            self.tokens = min(self.burst, self.tokens + (now - self.at) * self.per_second)
            self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Admittance:
    """Decides for each event; what it finds out about a type it remembers."""

    def __init__(self, terms: Tracking, *, clock: Clock, rng: Rng) -> None:
        self._now = clock.monotonic
        self._rng = rng
        self._sampling = terms.sampling
        begin = clock.monotonic()
        self._rates = [
            (pattern, None if rate is None else Tokens(rate, begin))
            for pattern, rate in terms.rates
        ]
        self._usual = None if terms.rate is None else Tokens(terms.rate, begin)
        self._of_type: dict[str, tuple[float | None, Tokens | None]] = {}
        self._passes = _bypass(terms.bypass)

    def refusal(
        self, event_type: str, severity: Severity, key: str | None, tenant: str | None
    ) -> str:
        """Return why an event is kept out, nothing if it is not: `sampled` or `rate_limited`."""
        known = self._of_type.get(event_type)
        if known is None:
            known = self._look_up(event_type)
        share, bucket = known
        if share is None and (bucket is None or bucket.take(self._now())):
            return ""
        if self._passes is not None and self._passes(event_type, severity, key, tenant):
            return ""
        if share is not None:
            if self._rng.uniform(0.0, 1.0) >= share:
                return "sampled"
            if bucket is None or bucket.take(self._now()):
                return ""
        return "rate_limited"

    def _look_up(self, event_type: str) -> tuple[float | None, Tokens | None]:
        share = next((one for pattern, one in self._sampling if matches(pattern, event_type)), None)
        bucket = self._usual
        for pattern, one in self._rates:
            if matches(pattern, event_type):
                bucket = one
                break
        if len(self._of_type) < _MOST_REMEMBERED:
            self._of_type[event_type] = share, bucket
        return share, bucket


_Passes = Callable[[str, Severity, str | None, str | None], bool]


def _bypass(terms: Bypass) -> _Passes | None:
    """Return what tells who passes, or `None` if nobody does."""
    patterns = TypePatterns(terms.patterns, name="patterns")
    least = None if terms.severity is None else _SEVERITIES[terms.severity]
    when = terms.when
    if not patterns and least is None and when is None:
        return None

    def passes(event_type: str, severity: Severity, key: str | None, tenant: str | None) -> bool:
        if least is not None and _SEVERITIES[severity] >= least:
            return True
        if patterns and patterns.fits(event_type):
            return True
        return when is not None and bool(
            when(Candidate(type=event_type, severity=severity, key=key, tenant=tenant))
        )

    return passes
