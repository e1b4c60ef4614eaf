"""An outage at the gate: reports, health checks, and deliveries that fail instead of waiting.

Pure functions of the shared state, called by stores within their own transaction.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from redrive.claiming.passage import charged
from redrive.model.audit import REDRIVE
from redrive.model.delivery import Kind
from redrive.model.duration import spell_duration
from redrive.model.gate import Gate, Open, Pause
from redrive.model.limits import Limits
from redrive.model.settlement import FailureReason
from redrive.policies import breaker as breakers
from redrive.policies.buckets import whole
from redrive.policies.gate import called, paused, reported, slowed, with_breaker
from redrive.store import Report

__all__ = ["Shedding", "after_report", "is_check_due", "lease_check", "what_to_drop"]


class Shedding(msgspec.Struct, frozen=True, kw_only=True):
    """Which due deliveries of a destination fail instead of waiting; any kind if there is none."""

    reason: FailureReason
    kind: Kind | None = None


def after_report(
    gate: Gate, limits: Limits, report: Report, *, now: datetime, chance: float
) -> Gate:
    """Return the gate after a report."""
    if report.is_check:
        return _checked(gate, limits, report, now=now)
    if report.is_success is not None:
        gate = reported(
            gate,
            limits,
            is_success=report.is_success,
            times=report.times,
            generation=report.generation,
            now=now,
            chance=chance,
            error=report.error,
            exhausts=report.exhausts,
        )
    if report.call:
        gate = called(gate, report.call)
    if report.retries:
        passed, paced = {Kind.RETRY: report.retries}, report.retries
        gate = charged(gate, limits, passed, held_first=0, paced=paced, now=now)
    if report.slow_for is not None:
        gate = slowed(gate, until=now + report.slow_for)
    why = report.pause or (report.is_success is False and _given_up(gate, limits, now=now))
    if why and gate.pause is None:
        gate = paused(gate, Pause(by=REDRIVE, why=why, at=now))
    return gate


def _given_up(gate: Gate, limits: Limits, *, now: datetime) -> str:
    """Return why a destination is left alone until somebody has looked, if it has failed so long.

    It counts from the first failure after the last success, or from when it was resumed.
    """
    state, longest = gate.breaker, limits.disable_after
    if longest is None or not isinstance(state, Open) or state.down_since is None:
        return ""
    since = max(state.down_since, gate.reopened_at or state.down_since)
    if now - since < longest:
        return ""
    return (
        f"It has failed since {since:%Y-%m-%d %H:%M} UTC, for {spell_duration(longest)} and more."
    )


def is_check_due(gate: Gate, *, now: datetime) -> bool:
    """Tell whether it is time to look after the health of a destination."""
    return (
        isinstance(gate.breaker, Open)
        and gate.breaker.until is not None
        and now < gate.breaker.until
        and gate.pause is None
        and (gate.next_check is None or gate.next_check <= now)
        and (gate.check_until is None or gate.check_until <= now)
    )


def lease_check(
    gate: Gate, *, every: timedelta, lease: timedelta, now: datetime
) -> tuple[Gate, bool]:
    """Return the gate after somebody asked to check, and whether they may.

    The first check comes `every` after the breaker has opened: what has just failed is not back.
    """
    if not is_check_due(gate, now=now):
        return gate, False
    if gate.next_check is None and isinstance(gate.breaker, Open):
        first = gate.breaker.since + every
        if first > now:
            return msgspec.structs.replace(gate, next_check=first), False
    begun = msgspec.structs.replace(gate, next_check=now + every, check_until=now + lease)
    return begun, True


def what_to_drop(
    gate: Gate, limits: Limits, *, now: datetime, is_blocked: bool = False
) -> Shedding | None:
    """Return which due deliveries fail now instead of waiting at this gate, if any."""
    if is_blocked or gate.pause is not None:
        return None
    state, calls = breakers.permitted(gate.breaker, limits.breaker, now=now)
    if isinstance(state, Open):
        gives_up = limits.breaker is not None and limits.breaker.on_open == "dead_letter"
        return Shedding(reason=FailureReason.CIRCUIT_OPEN) if gives_up else None
    if calls is not None or (gate.slow_until is not None and now < gate.slow_until):
        return None
    rate = limits.retry_rate
    if rate is None or limits.over_retry_rate != "dead_letter":
        return None
    if whole(gate.retry, rate, now=now):
        return None
    return Shedding(reason=FailureReason.RETRY_RATE_LIMITED, kind=Kind.RETRY)


def _checked(gate: Gate, limits: Limits, report: Report, *, now: datetime) -> Gate:
    state = breakers.checked(
        gate.breaker,
        limits.breaker,
        is_healthy=bool(report.is_success),
        generation=report.generation,
        now=now,
    )
    if state is not gate.breaker:
        gate = with_breaker(gate, state, now=now)
    return msgspec.structs.replace(gate, check_until=None)
