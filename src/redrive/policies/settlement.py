"""Settlement: what an outcome means for the delivery it belongs to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_never

import msgspec

from redrive.clock import Rng
from redrive.model.delivery import Delivery, Kind, Leased, Status
from redrive.model.duration import spell_duration
from redrive.model.outcome import (
    Applied,
    Cancel,
    Fault,
    Faulted,
    Interrupted,
    Nature,
    Outcome,
    Snooze,
    Succeeded,
)
from redrive.model.settlement import (
    Delivered,
    Failed,
    FailureReason,
    RetryAt,
    Settlement,
    Snoozed,
)
from redrive.policies.capture import bounded_message
from redrive.policies.retry import bounded_retry_after
from redrive.policies.terms import Terms
from redrive.store import Settled

__all__ = ["excused", "settle", "was_carried_out"]

_DELIVERED = Delivered()
_AFTER_A_PROBE = timedelta(seconds=1)
"""The breaker makes it wait; this is for a destination whose breaker nobody reports to."""
_MOST_INTERRUPTIONS = 100
"""It may be something about this delivery that loses the store again and again."""


def settle(  # noqa: PLR0911 - one for each outcome
    outcome: Outcome, leased: Leased, terms: Terms, *, now: datetime, rng: Rng
) -> Settlement:
    """Decide about a delivery after one attempt; `now` is the store's clock.

    Nothing waits past its deadline: what could only go on afterwards fails as expired at once.
    """
    match outcome:
        case Succeeded() | Applied():
            return _DELIVERED
        case Interrupted(fault=fault):
            return _put_back(_growing(leased, terms, rng), fault, leased, terms, now)
        case Cancel(why=why):
            fault = Fault(
                error_class="Cancel", message=bounded_message(why), rule="handler returned Cancel"
            )
            return Failed(reason=FailureReason.CANCELLED, fault=fault)
        case Snooze():
            return _snooze(outcome.span, None, leased, terms, now)
        case Faulted(fault=fault):
            match outcome.nature:
                case Nature.TERMINAL:
                    return Failed(reason=FailureReason.TERMINAL, fault=fault)
                case Nature.TRANSIENT:
                    return _retry(outcome, leased, terms, now, rng)
                case Nature.THROTTLED:
                    wait = _throttle(outcome, leased, terms, rng)
                    return _snooze(wait, fault, leased, terms, now)
                case other:
                    assert_never(other)
        case never:
            assert_never(never)


def was_carried_out(settled: Settled, delivery: Delivery) -> bool:
    """Tell whether a settlement whose answer was lost is there, by the try that it has added.

    One without a try says that it was delivered. Had the lease been lost, somebody else may have
    delivered it since: then it is told of twice, which is better than not at all.
    """
    if settled.attempt is None:
        return delivery.status is Status.DELIVERED
    stories = (delivery.log, *(cycle.log for cycle in delivery.cycles))
    return any(settled.attempt in story for story in stories)


def excused(
    outcome: Faulted, leased: Leased, terms: Terms, *, now: datetime, rng: Rng
) -> RetryAt | Failed:
    """Decide about a delivery after a transient failure that tells of its destination, not of it.

    It spends no attempt, and the breaker decides when it is tried again.
    """
    wait = min(terms.retry_for(leased.event.type).delay(1, rng), _AFTER_A_PROBE)
    if outcome.retry_after is not None:
        wait = bounded_retry_after(outcome.retry_after)
    when = _when(now, wait, leased)
    if _is_late(when, leased):
        return Failed(reason=FailureReason.EXPIRED, fault=outcome.fault)
    return RetryAt(when=when, fault=outcome.fault, spends=False)


def _retry(
    outcome: Faulted, leased: Leased, terms: Terms, now: datetime, rng: Rng
) -> RetryAt | Failed:
    if leased.is_probe and not leased.is_known:
        return excused(outcome, leased, terms, now=now, rng=rng)
    retry = terms.retry_for(leased.event.type)
    if leased.attempt >= retry.max_attempts:
        return Failed(reason=FailureReason.EXHAUSTED, fault=outcome.fault)
    wait = retry.delay(leased.attempt, rng)
    if outcome.retry_after is not None:
        wait = max(wait, bounded_retry_after(outcome.retry_after))
    when = _when(now, wait, leased)
    if _is_late(when, leased):
        return Failed(reason=FailureReason.EXPIRED, fault=outcome.fault)
    return RetryAt(when=when, fault=outcome.fault, max_attempts=retry.max_attempts)


def _throttle(outcome: Faulted, leased: Leased, terms: Terms, rng: Rng) -> timedelta:
    if outcome.retry_after is not None:
        return bounded_retry_after(outcome.retry_after)
    return bounded_retry_after(_growing(leased, terms, rng))


def _growing(leased: Leased, terms: Terms, rng: Rng) -> timedelta:
    # What spends no attempt is counted by its snoozes, so they are what makes the wait grow.
    step = leased.attempt + leased.snoozes
    return terms.retry_for(leased.event.type).delay(step, rng)


def _snooze(
    wait: timedelta, fault: Fault | None, leased: Leased, terms: Terms, now: datetime
) -> Snoozed | Failed:
    excess = _excess(leased, terms, now)
    if excess:
        return Failed(reason=FailureReason.EXHAUSTED, fault=_given_up(excess, fault))
    until = _when(now, wait, leased)
    if _is_late(until, leased):
        why = f"It was to wait until {until}, which is not before its deadline."
        late = fault or Fault(error_class="Snooze", message=why, rule="deadline")
        return Failed(reason=FailureReason.EXPIRED, fault=late)
    return Snoozed(until=until, fault=fault)


def _put_back(
    wait: timedelta, fault: Fault, leased: Leased, terms: Terms, now: datetime
) -> Snoozed | Failed:
    """Snooze what nobody asked to be put off, so that its age says nothing against it."""
    if leased.snoozes >= max(terms.snooze_limit, _MOST_INTERRUPTIONS):
        why = f"It was put off {leased.snoozes} times."
        return Failed(reason=FailureReason.EXHAUSTED, fault=_given_up(why, fault))
    until = _when(now, wait, leased)
    if _is_late(until, leased):
        return Failed(reason=FailureReason.EXPIRED, fault=fault)
    return Snoozed(until=until, fault=fault)


def _excess(leased: Leased, terms: Terms, now: datetime) -> str:
    if leased.snoozes >= terms.snooze_limit:
        return f"It was put off {leased.snoozes} times, and snooze_limit allows no more."
    since = max(leased.enqueued_at, leased.event.due or leased.enqueued_at)
    # A replay begins anew, however old the delivery is.
    if leased.kind is not Kind.REPLAY and now - since >= terms.snooze_age:
        return f"It is older than {spell_duration(terms.snooze_age)}, the snooze_age."
    return ""


def _given_up(why: str, fault: Fault | None) -> Fault:
    if fault is None:
        return Fault(error_class="Snooze", message=why, rule="snooze limit")
    message = bounded_message(f"{why} {fault.message}")
    return msgspec.structs.replace(fault, message=message, rule="snooze limit")


def _is_late(when: datetime, leased: Leased) -> bool:
    return leased.deadline is not None and leased.deadline <= when


def _when(now: datetime, wait: timedelta, leased: Leased) -> datetime:
    # The worker's `now` may be ahead of the store's: without a wait it is due as of its claim.
    if not wait:
        return leased.claimed_at
    try:
        return now + wait
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
