"""The gate: what passes, and what it costs."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.claiming.passage import passage
from redrive.claiming.turnstile import Turnstile
from redrive.errors import ConfigurationError
from redrive.model.delivery import Kind
from redrive.model.gate import Closed, Gate, Hold, Open, Pause
from redrive.model.limits import Limits, Rate, read_rate
from redrive.policies.gate import paused, resumed, slowed, with_breaker

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pass_through(
    gate: Gate, limits: Limits, *, kind: Kind, count: int, now: datetime, was_held: bool = False
) -> tuple[Gate, int]:
    """Let as many as possible pass, and return how many did."""
    gate, allowed = passage(gate, limits, in_flight=0, probing=0, now=now)
    turnstile = Turnstile(gate, allowed, total=count)
    passed = sum(turnstile.admit(kind, was_held=was_held) for _ in range(count))
    return turnstile.charged(limits, now=now), passed


@given(
    per_second=st.floats(0.5, 200),
    burst=st.floats(1, 50),
    steps=st.lists(
        st.tuples(st.integers(0, 2_000_000), st.integers(0, 60)), min_size=1, max_size=40
    ),
)
def test_over_any_window_no_more_than_the_rate_and_the_burst_pass(
    per_second: float, burst: float, steps: list[tuple[int, int]]
) -> None:
    limits = Limits(rate=Rate(per_second=per_second, burst=burst))
    gate, now = Gate(), NOW
    passed: list[tuple[datetime, int]] = []
    for microseconds, wanted in steps:
        now += timedelta(microseconds=microseconds)
        gate, count = pass_through(gate, limits, kind=Kind.FIRST, count=wanted, now=now)
        passed.append((now, count))

    for first, (begin, _) in enumerate(passed):
        for end, _ in passed[first:]:
            within = sum(count for when, count in passed if begin <= when <= end)
            window = (end - begin).total_seconds()
            assert within <= per_second * window + burst + 1e-3


def test_the_three_kinds_have_buckets_of_their_own() -> None:
    limits = Limits(
        rate=Rate(per_second=1.0, burst=3.0),
        retry_rate=Rate(per_second=1.0, burst=2.0),
        replay_rate=Rate(per_second=1.0, burst=1.0),
    )
    gate = Gate()
    counts = []
    for kind in Kind:
        gate, count = pass_through(gate, limits, kind=kind, count=10, now=NOW)
        counts.append(count)

    assert counts == [3, 2, 1]


def test_what_was_held_pays_with_retry_tokens() -> None:
    limits = Limits(retry_rate=Rate(per_second=1.0, burst=2.0))
    gate, held = pass_through(Gate(), limits, kind=Kind.FIRST, count=10, now=NOW, was_held=True)
    gate, fresh = pass_through(gate, limits, kind=Kind.FIRST, count=10, now=NOW)
    _, retries = pass_through(gate, limits, kind=Kind.RETRY, count=10, now=NOW)

    assert (held, fresh, retries) == (2, 10, 0)


def test_first_attempts_earn_the_retry_budget() -> None:
    limits = Limits(retry_budget=0.5)
    gate, spent = pass_through(Gate(), limits, kind=Kind.RETRY, count=500, now=NOW)
    gate, _ = pass_through(gate, limits, kind=Kind.FIRST, count=40, now=NOW)
    _, earned = pass_through(gate, limits, kind=Kind.RETRY, count=500, now=NOW)

    assert (spent, earned) == (100, 20)


def test_a_shut_gate_says_why_and_until_when() -> None:
    later = NOW + timedelta(seconds=9)
    opened = with_breaker(Gate(), Open(generation=1, since=NOW, until=later), now=NOW)
    gates = {
        Hold.PAUSED: paused(Gate(), Pause(by="ada", why="", at=NOW)),
        Hold.BREAKER_OPEN: opened,
        Hold.SLOWED: slowed(Gate(), until=later),
    }

    for hold, gate in gates.items():
        _, shut = passage(gate, Limits(), in_flight=0, probing=0, now=NOW)
        assert shut.holds == (hold,)
        assert shut.total == 0
        assert shut.again_at == (None if hold is Hold.PAUSED else later)


def test_a_shorter_wait_does_not_cut_a_longer_one() -> None:
    long = slowed(Gate(), until=NOW + timedelta(seconds=60))

    assert slowed(long, until=NOW + timedelta(seconds=5)) is long


def test_reopening_marks_what_waited() -> None:
    opened = with_breaker(Gate(), Open(generation=1, since=NOW), now=NOW)

    assert opened.reopened_at is None
    assert with_breaker(opened, Closed(generation=2), now=NOW).reopened_at == NOW
    assert resumed(paused(Gate(), Pause(by="a", why="", at=NOW)), now=NOW).reopened_at == NOW


def test_concurrency_counts_what_runs_anywhere() -> None:
    _, allowed = passage(Gate(), Limits(concurrency=5), in_flight=3, probing=0, now=NOW)
    _, full = passage(Gate(), Limits(concurrency=5), in_flight=9, probing=0, now=NOW)

    assert allowed.total == 2
    assert (full.total, full.holds) == (0, (Hold.CONCURRENCY,))


@pytest.mark.parametrize(
    ("text", "per_second", "burst"),
    [("100/s", 100.0, 10.0), ("30/m", 0.5, 1.0), ("3600 / h", 1.0, 1.0)],
)
def test_a_rate_is_read_as_people_write_it(text: str, per_second: float, burst: float) -> None:
    assert read_rate(text, name="rate") == Rate(per_second=per_second, burst=burst)


@pytest.mark.parametrize("value", ["", "100", "fast", "-1/s", "1/y", 100, "0/s", "nan/s", "inf/s"])
def test_a_rate_that_makes_no_sense_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="how many in how long"):
        read_rate(value, name="rate")


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="retry_budget is 2"):
        Limits(retry_budget=2)
    with pytest.raises(ConfigurationError, match="concurrency is 0"):
        Limits(concurrency=0)
    with pytest.raises(ConfigurationError, match="lets nothing through"):
        Rate(per_second=0, burst=1)


def test_who_comes_with_an_earlier_instant_adds_nothing_to_a_bucket() -> None:
    """A claim reads the clock before it gets hold of the gate, and others may be quicker."""
    limits = Limits(rate=Rate(per_second=10.0, burst=10.0))
    gate, passed = Gate(), 0
    for turn in range(20):
        behind = timedelta(milliseconds=500 * (turn % 2))
        gate, count = pass_through(gate, limits, kind=Kind.FIRST, count=1, now=NOW - behind)
        passed += count

    assert passed == 10


def test_a_bucket_fills_again_though_the_clock_was_set_back() -> None:
    limits = Limits(rate=Rate(per_second=1.0, burst=3.0))
    gate, _ = pass_through(Gate(), limits, kind=Kind.FIRST, count=3, now=NOW)
    earlier = NOW - timedelta(hours=1)

    gate, at_once = pass_through(gate, limits, kind=Kind.FIRST, count=3, now=earlier)
    later = earlier + timedelta(seconds=2)
    gate, in_time = pass_through(gate, limits, kind=Kind.FIRST, count=3, now=later)

    assert (at_once, in_time) == (0, 2)


def test_a_claim_that_is_a_moment_behind_wins_no_tokens() -> None:
    """Claims side by side read the clock before they wait for each other."""
    limits = Limits(rate=Rate(per_second=1.0, burst=3.0))
    gate, _ = pass_through(Gate(), limits, kind=Kind.FIRST, count=3, now=NOW)

    gate, _ = passage(gate, limits, in_flight=0, probing=0, now=NOW - timedelta(seconds=2))

    assert gate.first.at == NOW
