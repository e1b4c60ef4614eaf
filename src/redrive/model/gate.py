"""Gates: what stands between a destination's deliveries and its workers, shared by all of them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from redrive.model.duration import spell_duration
from redrive.model.limits import Limits, spell_rate

__all__ = [
    "OVERRIDABLE",
    "BreakerChange",
    "BreakerState",
    "Bucket",
    "Call",
    "Closed",
    "Failure",
    "Gate",
    "GateFigures",
    "HalfOpen",
    "Hold",
    "Open",
    "Override",
    "Pause",
    "Rotation",
]

OVERRIDABLE = ("rate", "retry_rate", "replay_rate", "concurrency")
"""The limits that a person can set for a while."""


class Hold(StrEnum):
    """Why a gate lets nothing, or not everything, through."""

    PAUSED = "paused"
    BLOCKED = "blocked"
    BREAKER_OPEN = "breaker_open"
    PROBING = "probing"
    SLOWED = "slowed"
    RAMP = "ramp"
    RATE = "rate"
    RETRY_RATE = "retry_rate"
    REPLAY_RATE = "replay_rate"
    RETRY_BUDGET = "retry_budget"
    SHARED_RATE = "shared_rate"
    CONCURRENCY = "concurrency"

    @property
    def label(self) -> str:
        """The hold in words."""
        return "rate limit" if self is Hold.RATE else self.replace("_", " ")


class Closed(msgspec.Struct, frozen=True, kw_only=True, tag="closed", omit_defaults=True):
    """The breaker lets everything through and counts failures.

    `down_since` is the first failure after the last success, if there was none since.
    """

    generation: int = 0
    since: datetime | None = None
    in_a_row: int = 0
    window_began: datetime | None = None
    calls: int = 0
    failed: int = 0
    down_since: datetime | None = None


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open", omit_defaults=True):
    """The breaker lets nothing through before `until`; for ever if a person gave no end.

    `times` counts how often it has opened since it was closed. `probed` are the deliveries that
    were probes meanwhile, the latest last.
    """

    generation: int
    since: datetime
    until: datetime | None = None
    times: int = 1
    down_since: datetime | None = None
    probed: tuple[int, ...] = ()


class HalfOpen(msgspec.Struct, frozen=True, kw_only=True, tag="half_open", omit_defaults=True):
    """The breaker lets a few probes through: enough successes close it, a failure opens it.

    `probed_at` is when the latest of them went out, and `is_answered` says that one has arrived.
    """

    generation: int
    since: datetime
    times: int
    successes: int = 0
    down_since: datetime | None = None
    probed: tuple[int, ...] = ()
    probed_at: datetime | None = None
    is_answered: bool = False


BreakerState = Closed | Open | HalfOpen


class Bucket(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tokens there were at an instant; before its first use a bucket is full."""

    tokens: float = 0.0
    at: datetime | None = None


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A person stopped the destination."""

    by: str
    why: str
    at: datetime


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """Limits that a person has set for a while, above those that are declared.

    Of `limits` only what is said counts: rates and concurrency. It ends by itself at `until`.
    """

    limits: Limits
    until: datetime
    by: str
    why: str
    at: datetime

    @property
    def said(self) -> str:
        """What it sets, in words."""
        one = self.limits
        rates = (("rate", one.rate), ("retries", one.retry_rate), ("replays", one.replay_rate))
        words = [f"{name} {spell_rate(rate)}" for name, rate in rates if rate is not None]
        if one.concurrency is not None:
            words.append(f"{one.concurrency} at once")
        return ", ".join(words)

    def told_of(self, destination: str) -> str:
        """Say what it sets and for how long, for the audit log."""
        return f"{destination}: {self.said} for {spell_duration(self.until - self.at)}"

    def over(self, declared: Limits) -> Limits:
        """Return what is kept to while it lasts."""
        said = {name: getattr(self.limits, name) for name in OVERRIDABLE}
        return msgspec.structs.replace(
            declared, **{name: value for name, value in said.items() if value is not None}
        )


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The last failure that counted against a destination."""

    error: str
    at: datetime


class Rotation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the turns of a destination's tenants have got to.

    `tenant` was served last, `left` is what is left of its turn, and it has had `in_a_row`. The
    `round` grows each time the turns begin again from the front. If there is a `behind`, the next
    turn is that of the one behind it. Events without a tenant are those of the tenant `""`.
    """

    tenant: str | None = None
    left: int = 0
    in_a_row: int = 0
    round: int = 0
    behind: str | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request past the deliveries that is under way, as long as it may take at most.

    `generation` is that of the breaker when it began.
    """

    id: str
    until: datetime
    generation: int = 0


class Gate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one destination that all workers share.

    What came due before `reopened_at` waited behind a closed gate: it is let through at the pace
    of retries, and with a breaker at one that grows. `next_check` is when its health is asked for
    next, and `check_until` the end of the lease of a check under way. `last_failure` stays when the
    destination is back. `calls` are requests under way, where they are counted.
    """

    breaker: BreakerState = Closed()
    first: Bucket = Bucket()
    retry: Bucket = Bucket()
    replay: Bucket = Bucket()
    budget: Bucket = Bucket()
    ramp: Bucket = Bucket()
    pause: Pause | None = None
    slow_until: datetime | None = None
    reopened_at: datetime | None = None
    next_check: datetime | None = None
    check_until: datetime | None = None
    rotation: Rotation = Rotation()
    last_failure: Failure | None = None
    calls: tuple[Call, ...] = ()


class BreakerChange(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker went from one state to another; `failure` is the last one that counted, if any."""

    destination: str
    before: BreakerState
    after: BreakerState
    failure: Failure | None = None


class GateFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A destination's gate as people see it: what holds it now, and until when if that is known.

    `at` is that instant, by the store's clock. `hold` is the first of `holds`, which are all there
    are. `limits` are those that are kept to now; while there is an `override`, those that it is
    above are `declared`.
    """

    destination: str
    at: datetime
    gate: Gate
    limits: Limits
    override: Override | None = None
    declared: Limits | None = None
    hold: Hold | None = None
    holds: tuple[Hold, ...] = ()
    until: datetime | None = None
