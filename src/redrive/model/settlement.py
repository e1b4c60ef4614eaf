"""Settlements: what we decide about a delivery after an attempt."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from redrive.model.outcome import Fault

__all__ = [
    "Delivered",
    "Failed",
    "FailureReason",
    "Recovery",
    "Requeued",
    "RetryAt",
    "Settlement",
    "Snoozed",
]


class FailureReason(StrEnum):
    """Why a delivery is a dead letter."""

    EXHAUSTED = "exhausted"
    TERMINAL = "terminal"
    EXPIRED = "expired"
    CRASH_LOOP = "crash_loop"
    RATE_LIMITED = "rate_limited"
    RETRY_RATE_LIMITED = "retry_rate_limited"
    CIRCUIT_OPEN = "circuit_open"
    CANCELLED = "cancelled"
    TRACKING_FAILED = "tracking_failed"


class Delivered(msgspec.Struct, frozen=True):
    """Done."""


class RetryAt(msgspec.Struct, frozen=True, kw_only=True):
    """Tried and failed; try again at `when`, an instant of the store's clock.

    Unless it `spends`, no attempt is spent: the failure tells of the destination, which is down,
    and not of the delivery. `max_attempts` is how many there are, for whoever reads the log; 0 if
    that does not matter.
    """

    when: datetime
    fault: Fault
    spends: bool = True
    max_attempts: int = 0


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter: kept until a person replays, deletes or resolves it."""

    reason: FailureReason
    fault: Fault


class Snoozed(msgspec.Struct, frozen=True, kw_only=True):
    """Not now: again at `until`, with no attempt spent. A `fault` says who asked for the wait."""

    until: datetime
    fault: Fault | None = None


Settlement = Delivered | RetryAt | Failed | Snoozed


class Requeued(msgspec.Struct, frozen=True, kw_only=True):
    """Its worker is gone: again at `when`. The try is taken back, as it proved nothing.

    `crashes` is the crash counter from now on, and `last_crash_at` the instant stored with it;
    both are unchanged when the worker lives and only lost touch with the store.
    """

    when: datetime
    crashes: int
    last_crash_at: datetime | None = None


Recovery = Requeued | Failed
