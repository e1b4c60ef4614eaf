"""Recovery: what becomes of a delivery whose lease, or whose time, ran out, or must not wait."""

from __future__ import annotations

from datetime import datetime, timedelta

from redrive.model.outcome import Fault
from redrive.model.settlement import Failed, FailureReason, Recovery, Requeued
from redrive.policies.fingerprint import grouped
from redrive.store import Overdue

__all__ = ["deadline_passed", "is_in_doubt", "not_to_wait", "recover"]

_MEMORY = timedelta(hours=72)
_WAITS = tuple(timedelta(seconds=seconds) for seconds in (1, 5, 25, 125, 300))


def is_in_doubt(overdue: Overdue, *, lease: timedelta) -> bool:
    """Tell whether nobody knows yet if the owner of a lease that ran out lives.

    A worker that never heard the answer to its claim extends nothing, and its next heartbeat may
    still be on its way. A live worker sends several heartbeats within a `lease`.
    """
    if overdue.owner_is_alive or overdue.seen_at is None:
        return False
    return overdue.now - overdue.seen_at < lease


def recover(overdue: Overdue, *, now: datetime) -> Recovery:
    """Decide about a delivery whose lease ran out; `now` is the store's clock, as `overdue.now`.

    An owner that lives only lost touch, which counts for nothing. Otherwise it crashed: the
    delivery goes back with a growing delay, and is condemned only if it ran alone. Crashes are
    forgotten 72 hours after the last one.
    """
    if overdue.owner_is_alive:
        return Requeued(when=now, crashes=overdue.crashes, last_crash_at=overdue.last_crash_at)
    crashes = _remembered(overdue, now) + 1
    if overdue.was_alone:
        return Failed(reason=FailureReason.CRASH_LOOP, fault=_crash_loop(overdue, crashes))
    wait = _WAITS[min(crashes, len(_WAITS)) - 1]
    return Requeued(when=now + wait, crashes=crashes, last_crash_at=now)


def deadline_passed(destination: str) -> Fault:
    """Return the fault of a delivery that was still pending at its deadline."""
    fault = Fault(
        error_class="DeadlinePassed",
        message="Its deadline passed before it could be delivered.",
        rule="deadline",
    )
    return grouped(fault, destination)


def not_to_wait(destination: str, reason: FailureReason) -> Fault:
    """Return the fault of a delivery that failed instead of waiting for its gate."""
    if reason is FailureReason.CIRCUIT_OPEN:
        fault = Fault(
            error_class="CircuitOpen",
            message=(
                f"The breaker of {destination} was open when it came due, and its on_open says "
                "that nothing waits. Replay it when the destination is back."
            ),
            rule="on_open is dead_letter",
        )
    else:
        fault = Fault(
            error_class="RetryRateLimited",
            message=(
                f"Its retry came due when the retry_rate of {destination} was used up, and its "
                "over_retry_rate says that no retry waits for it."
            ),
            rule="over_retry_rate is dead_letter",
        )
    return grouped(fault, destination)


def _remembered(overdue: Overdue, now: datetime) -> int:
    last = overdue.last_crash_at
    return 0 if last is not None and now - last > _MEMORY else overdue.crashes


def _crash_loop(overdue: Overdue, crashes: int) -> Fault:
    times = "once" if crashes == 1 else f"{crashes} times"
    fault = Fault(
        error_class="WorkerCrash",
        message=(
            f"Its worker crashed {times} while running it, the last time ('{overdue.worker}') with "
            "nothing else beside it, so this delivery is what brings workers down. "
            "Look for a memory or native fault in the handler, then replay it."
        ),
        rule="crashed alone",
    )
    return grouped(fault, overdue.destination)
