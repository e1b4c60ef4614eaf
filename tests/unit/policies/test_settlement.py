"""What each outcome means for its delivery."""

import random
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.clock import Rng
from redrive.model.delivery import Kind, Leased, Status, is_legal
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
from redrive.policies.retry import Retry
from redrive.policies.settlement import settle
from redrive.policies.terms import Terms
from tests.unit.policies.leases import NOON, leased

FAULT = Fault(error_class="OSError", message="unreachable", rule="default")
STEADY = Terms(retry=Retry(max_attempts=3, base="10s", factor=2, jitter="none"))

natures = st.sampled_from(Nature)
waits = st.none() | st.timedeltas()
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Succeeded()),
    st.booleans().map(lambda is_repeat: Applied(is_repeat=is_repeat)),
    st.just(Interrupted(fault=FAULT)),
    st.builds(Faulted, fault=st.just(FAULT), nature=natures, retry_after=waits),
    st.builds(Snooze, st.timedeltas(min_value=timedelta(0))),
    st.just(Cancel("no longer wanted")),
)
instants = st.none() | st.timedeltas(timedelta(days=-30), timedelta(days=30)).map(
    lambda span: NOON + span
)
leases = st.builds(
    leased,
    attempt=st.integers(1, 200),
    snoozes=st.integers(0, 200),
    age=st.timedeltas(timedelta(0), timedelta(days=30)),
    kind=st.sampled_from(Kind),
    deadline=instants,
    due=instants,
)
all_terms = st.builds(
    Terms,
    retry=st.builds(Retry, max_attempts=st.integers(1, 50)),
    snooze_limit=st.integers(0, 150),
    snooze_age=st.timedeltas(timedelta(0), timedelta(days=30)),
)
rngs = st.integers().map(random.Random)


def faulted(nature: Nature, *, retry_after: timedelta | None = None) -> Faulted:
    return Faulted(fault=FAULT, nature=nature, retry_after=retry_after)


def decide(
    outcome: Outcome, delivery: Leased, terms: Terms = STEADY, rng: Rng | None = None
) -> Settlement:
    return settle(outcome, delivery, terms, now=NOON, rng=rng or random.Random(1))  # noqa: S311 - jitter


def status_after(settlement: Settlement) -> Status:
    match settlement:
        case Delivered():
            return Status.DELIVERED
        case Failed():
            return Status.FAILED
        case RetryAt() | Snoozed():
            return Status.PENDING


def test_a_retry_without_a_wait_is_due_by_whatever_clock_the_store_has() -> None:
    at_once = Terms(retry=Retry(max_attempts=3, base="0s"))
    delivery = leased(attempt=1)
    ahead = NOON + timedelta(milliseconds=5)

    settlement = settle(
        faulted(Nature.TRANSIENT),
        delivery,
        at_once,
        now=ahead,
        rng=random.Random(1),  # noqa: S311 - jitter
    )

    assert isinstance(settlement, RetryAt)
    assert settlement.when == delivery.claimed_at


def in_seconds(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@given(outcomes, leases, all_terms, rngs)
def test_every_outcome_is_settled_by_a_legal_step(
    outcome: Outcome, delivery: Leased, terms: Terms, rng: Rng
) -> None:
    settlement = decide(outcome, delivery, terms, rng)

    assert is_legal(Status.IN_FLIGHT, status_after(settlement))


@given(outcomes, leases, all_terms, rngs)
def test_attempts_never_exceed_the_maximum(
    outcome: Outcome, delivery: Leased, terms: Terms, rng: Rng
) -> None:
    settlement = decide(outcome, delivery, terms, rng)

    if isinstance(settlement, RetryAt):
        assert delivery.attempt < terms.retry.max_attempts


@given(outcomes, leases, all_terms, rngs)
def test_nothing_is_put_off_beyond_count_and_age(
    outcome: Outcome, delivery: Leased, terms: Terms, rng: Rng
) -> None:
    settlement = decide(outcome, delivery, terms, rng)

    if isinstance(settlement, Snoozed) and isinstance(outcome, Interrupted):
        assert delivery.snoozes < max(100, terms.snooze_limit)
    elif isinstance(settlement, Snoozed):
        since = max(delivery.enqueued_at, delivery.event.due or delivery.enqueued_at)
        assert delivery.snoozes < terms.snooze_limit
        assert delivery.kind is Kind.REPLAY or NOON - since < terms.snooze_age


@given(outcomes, leases, all_terms, rngs)
def test_nothing_goes_on_in_the_past_or_after_its_deadline(
    outcome: Outcome, delivery: Leased, terms: Terms, rng: Rng
) -> None:
    settlement = decide(outcome, delivery, terms, rng)

    match settlement:
        case RetryAt(when=when) | Snoozed(until=when):
            assert when >= NOON or when == delivery.claimed_at  # what need not wait
            assert delivery.deadline is None or when < delivery.deadline


@given(outcomes, leases, all_terms, rngs)
def test_only_a_handler_or_a_throttle_puts_off(
    outcome: Outcome, delivery: Leased, terms: Terms, rng: Rng
) -> None:
    """A snooze gives the try back, so a failure that could snooze would be tried for ever."""
    settlement = decide(outcome, delivery, terms, rng)

    if isinstance(settlement, Snoozed):
        assert isinstance(outcome, Snooze | Interrupted) or outcome == faulted(
            Nature.THROTTLED, retry_after=getattr(outcome, "retry_after", None)
        )


@given(leases, all_terms, rngs, waits)
def test_a_terminal_failure_is_never_retried(
    delivery: Leased, terms: Terms, rng: Rng, retry_after: timedelta | None
) -> None:
    outcome = faulted(Nature.TERMINAL, retry_after=retry_after)

    settlement = decide(outcome, delivery, terms, rng)

    assert settlement == Failed(reason=FailureReason.TERMINAL, fault=FAULT)


def test_a_success_is_delivered() -> None:
    assert decide(Succeeded(), leased()) == Delivered()


def test_a_success_counts_even_after_the_deadline() -> None:
    assert decide(Succeeded(), leased(deadline=NOON)) == Delivered()


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 10), (2, 20)])
def test_a_transient_failure_is_retried_along_the_curve(attempt: int, seconds: int) -> None:
    settlement = decide(faulted(Nature.TRANSIENT), leased(attempt=attempt))

    assert settlement == RetryAt(when=in_seconds(seconds), fault=FAULT, max_attempts=3)


@pytest.mark.parametrize("attempt", [3, 4])
def test_the_last_attempt_exhausts_a_delivery(attempt: int) -> None:
    """More than the maximum happens when the terms became stricter meanwhile."""
    settlement = decide(faulted(Nature.TRANSIENT), leased(attempt=attempt))

    assert settlement == Failed(reason=FailureReason.EXHAUSTED, fault=FAULT)


def test_a_single_attempt_is_never_retried() -> None:
    settlement = decide(faulted(Nature.TRANSIENT), leased(), Terms(retry=Retry(max_attempts=1)))

    assert settlement == Failed(reason=FailureReason.EXHAUSTED, fault=FAULT)


def test_an_event_type_may_have_its_own_retry() -> None:
    once = Retry(max_attempts=1)
    terms = Terms(retry_overrides=(("order.*", once),))

    settlement = decide(faulted(Nature.TRANSIENT), leased(event_type="order.paid"), terms)

    assert isinstance(settlement, Failed)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        (timedelta(seconds=45), 45),
        (timedelta(seconds=3), 10),
        (timedelta(seconds=-3), 10),
        (timedelta(days=900), 86_400),
    ],
)
def test_a_retry_waits_at_least_as_long_as_was_asked(asked: timedelta, seconds: int) -> None:
    settlement = decide(faulted(Nature.TRANSIENT, retry_after=asked), leased())

    assert settlement == RetryAt(when=in_seconds(seconds), fault=FAULT, max_attempts=3)


def test_a_retry_that_could_not_start_before_the_deadline_expires_at_once() -> None:
    in_time, too_late = leased(deadline=in_seconds(11)), leased(deadline=in_seconds(10))

    assert isinstance(decide(faulted(Nature.TRANSIENT), in_time), RetryAt)
    assert decide(faulted(Nature.TRANSIENT), too_late) == Failed(
        reason=FailureReason.EXPIRED, fault=FAULT
    )


def test_a_deadline_that_a_replay_has_lifted_is_no_deadline() -> None:
    late = leased(kind=Kind.REPLAY, deadline=NOON - timedelta(days=1))
    replayed = msgspec.structs.replace(late, deadline=None)

    assert isinstance(decide(faulted(Nature.TRANSIENT), replayed), RetryAt)


def test_a_throttled_delivery_waits_as_long_as_was_asked_and_says_who_asked() -> None:
    outcome = faulted(Nature.THROTTLED, retry_after=timedelta(seconds=45))

    settlement = decide(outcome, leased(attempt=3))

    assert settlement == Snoozed(until=in_seconds(45), fault=FAULT)


@pytest.mark.parametrize(
    ("asked", "seconds"), [(timedelta(seconds=-9), 1), (timedelta(days=900), 86_400)]
)
def test_the_wait_of_a_throttle_is_clamped(asked: timedelta, seconds: int) -> None:
    settlement = decide(faulted(Nature.THROTTLED, retry_after=asked), leased())

    assert settlement == Snoozed(until=in_seconds(seconds), fault=FAULT)


@pytest.mark.parametrize(("snoozes", "seconds"), [(0, 10), (1, 20), (2, 40), (99, 300)])
def test_a_throttle_that_names_no_wait_follows_the_curve_with_every_snooze(
    snoozes: int, seconds: int
) -> None:
    settlement = decide(faulted(Nature.THROTTLED), leased(snoozes=snoozes))

    assert settlement == Snoozed(until=in_seconds(seconds), fault=FAULT)


def test_a_snooze_waits_as_long_as_the_handler_said() -> None:
    assert decide(Snooze("5m"), leased()) == Snoozed(until=in_seconds(300))


def test_a_snooze_spends_no_attempt() -> None:
    settlement = decide(Snooze("5m"), leased(attempt=3))

    assert settlement == Snoozed(until=in_seconds(300))


def test_a_snooze_for_ever_ends_at_the_end_of_time() -> None:
    settlement = decide(Snooze(timedelta.max), leased())

    assert isinstance(settlement, Snoozed)
    assert settlement.until.year == 9999


def test_a_delivery_that_was_snoozed_too_often_is_exhausted() -> None:
    settlement = decide(Snooze("5m"), leased(snoozes=100))

    assert isinstance(settlement, Failed)
    assert settlement.reason is FailureReason.EXHAUSTED
    assert settlement.fault.error_class == "Snooze"
    assert settlement.fault.rule == "snooze limit"
    assert "put off 100 times" in settlement.fault.message


def test_a_delivery_that_was_snoozed_too_long_is_exhausted() -> None:
    settlement = decide(Snooze("5m"), leased(age=timedelta(days=7)))

    assert isinstance(settlement, Failed)
    assert settlement.reason is FailureReason.EXHAUSTED
    assert "older than 7d" in settlement.fault.message


def test_a_throttle_that_never_ends_says_so_and_keeps_its_fault() -> None:
    settlement = decide(faulted(Nature.THROTTLED), leased(snoozes=100))

    assert isinstance(settlement, Failed)
    assert settlement.reason is FailureReason.EXHAUSTED
    assert settlement.fault.error_class == "OSError"
    assert "put off 100 times" in settlement.fault.message
    assert settlement.fault.message.endswith("unreachable")


def test_a_delayed_delivery_ages_from_its_due_time() -> None:
    delayed = leased(age=timedelta(days=30), due=NOON - timedelta(minutes=1))

    assert isinstance(decide(Snooze("5m"), delayed), Snoozed)


def test_a_replay_of_an_old_dead_letter_may_be_snoozed() -> None:
    replayed = leased(age=timedelta(days=30), kind=Kind.REPLAY)

    assert isinstance(decide(Snooze("5m"), replayed), Snoozed)


def test_a_snooze_to_the_deadline_expires_at_once() -> None:
    settlement = decide(Snooze("5m"), leased(deadline=in_seconds(300)))

    assert isinstance(settlement, Failed)
    assert settlement.reason is FailureReason.EXPIRED
    assert settlement.fault.rule == "deadline"


def test_a_throttle_to_the_deadline_expires_with_its_own_fault() -> None:
    settlement = decide(faulted(Nature.THROTTLED), leased(deadline=in_seconds(10)))

    assert settlement == Failed(reason=FailureReason.EXPIRED, fault=FAULT)


def test_a_cancelled_delivery_keeps_the_reason() -> None:
    settlement = decide(Cancel("customer left"), leased())

    assert settlement == Failed(
        reason=FailureReason.CANCELLED,
        fault=Fault(error_class="Cancel", message="customer left", rule="handler returned Cancel"),
    )


def test_what_was_interrupted_goes_on_along_the_curve_and_spends_no_attempt() -> None:
    settlement = decide(Interrupted(fault=FAULT), leased(attempt=1, snoozes=1))

    assert settlement == Snoozed(until=in_seconds(20), fault=FAULT)


def test_what_was_interrupted_is_not_too_old_to_go_on() -> None:
    settlement = decide(Interrupted(fault=FAULT), leased(attempt=1, age=timedelta(days=400)))

    assert isinstance(settlement, Snoozed)


def test_what_is_interrupted_again_and_again_is_exhausted() -> None:
    settlement = decide(Interrupted(fault=FAULT), leased(attempt=1, snoozes=100))

    assert isinstance(settlement, Failed)
    assert settlement.reason is FailureReason.EXHAUSTED
    assert "put off 100 times" in settlement.fault.message
