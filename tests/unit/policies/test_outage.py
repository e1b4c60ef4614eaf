"""Outages at the gate: the ramp, health checks, and what is not to wait."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from redrive.claiming.passage import passage
from redrive.claiming.turnstile import Turnstile
from redrive.model.delivery import Kind
from redrive.model.gate import Bucket, Closed, Gate, HalfOpen, Hold, Open, Pause
from redrive.model.limits import Breaker, Limits, Rate
from redrive.model.settlement import FailureReason
from redrive.policies.breaker import checked, ramp
from redrive.policies.gate import paused, resumed, with_breaker
from redrive.policies.outage import (
    Shedding,
    after_report,
    is_check_due,
    lease_check,
    what_to_drop,
)
from redrive.store import Report

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
BREAKER = Breaker(failures=1, open_for="60s", successes=2)
OPEN = Open(generation=3, since=NOW, until=NOW + 60 * SECOND, times=2)
PAUSE = Pause(by="ada", why="", at=NOW)


def reopened(limits: Limits) -> Gate:
    """Return a gate whose breaker has just closed."""
    assert limits.breaker is not None
    return with_breaker(Gate(breaker=OPEN), Closed(generation=4, since=NOW), now=NOW)


@given(steps=st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 400)), max_size=40))
def test_what_has_waited_never_exceeds_the_pace_of_the_ramp(steps: list[tuple[int, int]]) -> None:
    limits = Limits(breaker=Breaker(ramp="30s"))
    gate, now, passed = reopened(limits), NOW, list[tuple[datetime, int]]()
    for microseconds, wanted in steps:
        now += timedelta(microseconds=microseconds)
        if now >= NOW + 30 * SECOND:
            break
        gate, allowed = passage(gate, limits, in_flight=0, probing=0, now=now)
        turnstile = Turnstile(gate, allowed, total=wanted)
        count = sum(turnstile.admit(Kind.FIRST, was_held=True) for _ in range(wanted))
        gate = turnstile.charged(limits, now=now)
        passed.append((now, count))

    for first, (begin, _) in enumerate(passed):
        for end, _ in passed[first:]:
            fastest = ramp(limits.breaker, reopened_at=NOW, now=end)
            assert fastest is not None
            within = sum(count for when, count in passed if begin <= when <= end)
            window = (end - begin).total_seconds()
            assert within <= fastest.per_second * window + fastest.burst + 1e-3


def test_the_ramp_doubles_ten_times_and_ends() -> None:
    def pace(seconds: float) -> float | None:
        now = NOW + timedelta(seconds=seconds)
        rate = ramp(Breaker(ramp="10s"), reopened_at=NOW, now=now)
        return None if rate is None else rate.per_second

    assert [pace(second) for second in range(4)] == [10, 20, 40, 80]
    assert (pace(9), pace(10), pace(1000)) == (5120, None, None)
    assert pace(-5) == 10


def test_a_ramp_of_no_time_is_over_though_the_clock_was_set_back() -> None:
    breaker = Breaker(ramp="0s")

    assert ramp(breaker, reopened_at=NOW, now=NOW - timedelta(hours=1)) is None


def test_there_is_no_ramp_without_a_breaker_or_before_an_outage() -> None:
    assert ramp(None, reopened_at=NOW, now=NOW) is None
    assert ramp(BREAKER, reopened_at=None, now=NOW) is None
    assert ramp(Breaker(ramp="0s"), reopened_at=NOW, now=NOW) is None


def test_each_outage_begins_the_ramp_anew() -> None:
    used = Gate(breaker=OPEN, ramp=Bucket(0.0, NOW))
    later = NOW + 300 * SECOND
    closed = with_breaker(used, Closed(generation=4, since=later), now=later)

    assert closed.ramp == Bucket()
    assert resumed(paused(used, PAUSE), now=later).ramp == Bucket()


def test_replays_and_retries_share_the_ramp_with_what_was_held() -> None:
    limits = Limits(breaker=BREAKER)
    gate, allowed = passage(reopened(limits), limits, in_flight=0, probing=0, now=NOW)
    turnstile = Turnstile(gate, allowed, total=100)

    passed = {
        "held": sum(turnstile.admit(Kind.FIRST, was_held=True) for _ in range(4)),
        "replays": sum(turnstile.admit(Kind.REPLAY, was_held=True) for _ in range(4)),
        "retries": sum(turnstile.admit(Kind.RETRY, was_held=False) for _ in range(4)),
        "new replays": sum(turnstile.admit(Kind.REPLAY, was_held=False) for _ in range(4)),
        "new": sum(turnstile.admit(Kind.FIRST, was_held=False) for _ in range(4)),
    }

    assert passed == {"held": 4, "replays": 4, "retries": 2, "new replays": 4, "new": 4}


def test_a_healthy_answer_is_a_probe_that_succeeded() -> None:
    well = checked(OPEN, BREAKER, is_healthy=True, generation=3, now=NOW)

    assert well == HalfOpen(generation=4, since=NOW, times=2, successes=1)


def test_every_other_answer_changes_nothing() -> None:
    forced = msgspec.structs.replace(OPEN, until=None)
    half_open = HalfOpen(generation=3, since=NOW, times=1)

    assert checked(OPEN, BREAKER, is_healthy=False, generation=3, now=NOW) is OPEN
    assert checked(OPEN, BREAKER, is_healthy=True, generation=2, now=NOW) is OPEN
    assert checked(OPEN, None, is_healthy=True, generation=3, now=NOW) is OPEN
    assert checked(forced, BREAKER, is_healthy=True, generation=3, now=NOW) is forced
    assert checked(half_open, BREAKER, is_healthy=True, generation=3, now=NOW) is half_open
    assert checked(Closed(), BREAKER, is_healthy=True, generation=0, now=NOW) == Closed()


def test_a_check_is_due_only_at_a_breaker_that_is_open_for_a_while() -> None:
    gates = {
        "open": Gate(breaker=OPEN),
        "closed": Gate(),
        "forced": Gate(breaker=msgspec.structs.replace(OPEN, until=None)),
        "over": Gate(breaker=msgspec.structs.replace(OPEN, until=NOW)),
        "paused": Gate(breaker=OPEN, pause=PAUSE),
        "later": Gate(breaker=OPEN, next_check=NOW + SECOND),
        "leased": Gate(breaker=OPEN, check_until=NOW + SECOND),
        "lease over": Gate(breaker=OPEN, check_until=NOW),
    }

    due = [name for name, gate in gates.items() if is_check_due(gate, now=NOW)]

    assert due == ["open", "lease over"]


def test_the_first_check_waits_until_the_breaker_was_open_for_a_while() -> None:
    early, may_check = lease_check(Gate(breaker=OPEN), every=5 * SECOND, lease=SECOND, now=NOW)
    later = NOW + 5 * SECOND
    begun, may_now = lease_check(early, every=5 * SECOND, lease=SECOND, now=later)

    assert (may_check, early.next_check) == (False, later)
    assert may_now
    assert (begun.next_check, begun.check_until) == (later + 5 * SECOND, later + SECOND)


def test_a_change_of_state_forgets_when_to_check_next() -> None:
    gate = Gate(breaker=OPEN, next_check=NOW + SECOND)

    assert with_breaker(gate, Closed(generation=4), now=NOW).next_check is None


def test_a_report_that_pauses_leaves_the_pause_there_is() -> None:
    gone = Report(destination="crm", generation=0, pause="410 Gone")
    first = after_report(Gate(), Limits(), gone, now=NOW, chance=0.5)
    again = after_report(first, Limits(), gone, now=NOW + SECOND, chance=0.5)

    assert first.pause == Pause(by="redrive", why="410 Gone", at=NOW)
    assert again.pause is first.pause


def test_what_is_not_to_wait_and_why() -> None:
    gives_up = Limits(breaker=Breaker(on_open="dead_letter"))
    rate = Rate(per_second=1.0, burst=1.0)
    limited = Limits(retry_rate=rate, over_retry_rate="dead_letter")
    empty = Gate(retry=Bucket(0.0, NOW))
    shed = {
        "open": what_to_drop(Gate(breaker=OPEN), gives_up, now=NOW),
        "used up": what_to_drop(empty, limited, now=NOW),
        "closed": what_to_drop(Gate(), gives_up, now=NOW),
        "over": what_to_drop(Gate(breaker=OPEN), gives_up, now=NOW + 60 * SECOND),
        "holding": what_to_drop(Gate(breaker=OPEN), Limits(breaker=BREAKER), now=NOW),
        "paused": what_to_drop(Gate(breaker=OPEN, pause=PAUSE), gives_up, now=NOW),
        "blocked": what_to_drop(Gate(breaker=OPEN), gives_up, now=NOW, is_blocked=True),
        "refilled": what_to_drop(empty, limited, now=NOW + SECOND),
        "slowed": what_to_drop(
            msgspec.structs.replace(empty, slow_until=NOW + SECOND), limited, now=NOW
        ),
        "waiting": what_to_drop(empty, Limits(retry_rate=rate), now=NOW),
    }

    assert {name: why for name, why in shed.items() if why is not None} == {
        "open": Shedding(reason=FailureReason.CIRCUIT_OPEN),
        "used up": Shedding(reason=FailureReason.RETRY_RATE_LIMITED, kind=Kind.RETRY),
    }


def test_a_check_under_way_counts_as_a_probe() -> None:
    half_open = HalfOpen(generation=4, since=NOW, times=1)
    limits = Limits(breaker=Breaker(probes=2))
    checking = Gate(breaker=half_open, check_until=NOW + SECOND)

    _, during = passage(checking, limits, in_flight=0, probing=0, now=NOW)
    _, after = passage(checking, limits, in_flight=0, probing=0, now=NOW + SECOND)

    assert (during.total, during.again_at) == (1, NOW + SECOND)
    assert after.total == 2
    assert Hold.PROBING in during.holds
