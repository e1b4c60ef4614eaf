"""The waits between two tries: their curve, their jitter and their bounds."""

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.clock import Rng
from redrive.errors import ConfigurationError
from redrive.policies.retry import PRESETS, Jitter, Proportional, Retry, bounded_retry_after

ZERO = timedelta(0)
ROUNDING = timedelta(microseconds=1)

shares = st.floats(0, 1).map(Proportional)
jitters: st.SearchStrategy[Jitter] = st.one_of(
    st.sampled_from(["full", "equal", "decorrelated", "none"]), shares
)
attempts = st.integers(1, 12) | st.integers(1, 10_000)
rngs = st.integers().map(random.Random)


@st.composite
def retries(draw: st.DrawFn, jitters: st.SearchStrategy[Jitter] = jitters) -> Retry:
    cap = draw(st.timedeltas(ZERO, timedelta(days=365)))
    return Retry(
        max_attempts=draw(st.integers(1, 100)),
        base=draw(st.timedeltas(ZERO, cap)),
        factor=draw(st.floats(1, 1000)),
        cap=cap,
        jitter=draw(jitters),
    )


class Extreme:
    """Chance that always draws the same end."""

    def __init__(self, *, high: bool) -> None:
        self.high = high

    def uniform(self, low: float, high: float) -> float:
        return high if self.high else low


@given(retries(), attempts, rngs)
@example(Retry(factor=1000), 10_000, Extreme(high=True))
@example(Retry(base="0s", factor=1000), 10_000, Extreme(high=True))
def test_no_wait_is_negative_or_exceeds_the_cap(retry: Retry, attempt: int, rng: Rng) -> None:
    assert ZERO <= retry.delay(attempt, rng) <= retry.cap


@given(retries(), attempts, st.booleans())
def test_the_bounds_hold_at_both_ends_of_chance(retry: Retry, attempt: int, high: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    assert ZERO <= retry.delay(attempt, Extreme(high=high)) <= retry.cap


@given(retries(), attempts)
def test_the_curve_never_falls_and_stays_between_base_and_cap(retry: Retry, attempt: int) -> None:
    wait = retry.curve(attempt)

    assert retry.base <= wait <= retry.cap
    assert wait <= retry.curve(attempt + 1)


@given(retries(), st.integers(1, 20))
def test_the_curve_is_base_times_factor_to_the_power_of_the_tries_before(
    retry: Retry, attempt: int
) -> None:
    exact = retry.base.total_seconds() * retry.factor ** (attempt - 1)

    expected = min(retry.cap.total_seconds(), exact)

    assert retry.curve(attempt).total_seconds() == pytest.approx(expected, abs=1e-6)


@given(retries(st.just("full")), attempts, rngs)
def test_full_jitter_draws_up_to_the_whole_wait(retry: Retry, attempt: int, rng: Rng) -> None:
    assert ZERO <= retry.delay(attempt, rng) <= retry.curve(attempt)


@given(retries(st.just("equal")), attempts, rngs)
def test_equal_jitter_keeps_half_of_the_wait(retry: Retry, attempt: int, rng: Rng) -> None:
    wait = retry.curve(attempt)

    assert wait / 2 - ROUNDING <= retry.delay(attempt, rng) <= wait


@given(retries(st.just("none")), attempts, rngs)
def test_without_jitter_the_wait_is_the_curve(retry: Retry, attempt: int, rng: Rng) -> None:
    assert abs(retry.delay(attempt, rng) - retry.curve(attempt)) <= ROUNDING


@given(retries(shares), attempts, rngs)
def test_proportional_jitter_stays_within_its_share(retry: Retry, attempt: int, rng: Rng) -> None:
    assert isinstance(retry.jitter, Proportional)
    wait, share = retry.curve(attempt), retry.jitter.share

    drawn = retry.delay(attempt, rng)

    assert wait * (1 - share) - ROUNDING <= drawn <= min(wait * (1 + share) + ROUNDING, retry.cap)


@given(retries(st.just("decorrelated")), attempts, rngs)
def test_decorrelated_jitter_draws_from_base_to_three_times_the_wait_before(
    retry: Retry, attempt: int, rng: Rng
) -> None:
    before = retry.curve(max(1, attempt - 1))

    drawn = retry.delay(attempt, rng)

    assert retry.base - ROUNDING <= drawn <= min(before * 3 + ROUNDING, retry.cap)


@pytest.mark.parametrize(("attempt", "longest"), [(1, 3), (2, 3), (3, 6), (4, 12), (5, 20)])
def test_decorrelated_jitter_grows_without_memory(attempt: int, longest: int) -> None:
    retry = Retry(base="1s", cap="20s", jitter="decorrelated")

    assert retry.delay(attempt, Extreme(high=False)) == timedelta(seconds=1)
    assert retry.delay(attempt, Extreme(high=True)) == timedelta(seconds=longest)


def test_a_base_of_nothing_stays_nothing_however_large_the_power() -> None:
    retry = Retry(base="0s", factor=1000)

    assert retry.curve(10_000) == ZERO


def test_a_power_too_large_for_a_number_is_the_cap() -> None:
    assert Retry(factor=1000).curve(10_000) == Retry().cap


def test_jitter_is_clamped_after_it_was_drawn() -> None:
    retry = Retry(base="10s", cap="10s", jitter=Proportional(0.5))

    assert retry.delay(1, Extreme(high=True)) == timedelta(seconds=10)
    assert retry.delay(1, Extreme(high=False)) == timedelta(seconds=5)


def test_a_wait_below_a_second_keeps_its_precision() -> None:
    retry = Retry(base="100ms", factor=1.5, jitter="none")

    waits = [retry.curve(attempt) for attempt in (1, 2, 3)]

    assert waits == [timedelta(milliseconds=wait) for wait in (100, 150, 225)]


@pytest.mark.parametrize(
    ("name", "max_attempts", "waits", "cap", "jitter"),
    [
        ("tracking", 4, ["100ms", "200ms", "400ms"], "5s", Proportional(0.1)),
        ("outbox", 5, ["1s", "2s", "4s", "8s"], "300s", "full"),
        ("projection", 3, ["1s", "2s"], "300s", "none"),
        ("mail", 5, ["1s", "2s", "4s", "8s"], "60s", Proportional(0.25)),
        ("gateway", 4, ["1s", "2s", "4s"], "60s", "none"),
    ],
)
def test_a_preset_reproduces_the_known_curve(
    name: str, max_attempts: int, waits: list[str], cap: str, jitter: Jitter
) -> None:
    preset = Retry.preset(name)

    assert preset is PRESETS[name]
    assert preset.max_attempts == max_attempts
    assert preset.cap == Retry(cap=cap).cap
    assert preset.jitter == jitter
    assert [preset.curve(attempt) for attempt in range(1, max_attempts)] == [
        Retry(base=wait).base for wait in waits
    ]


def test_every_preset_is_an_example_above() -> None:
    assert list(PRESETS) == ["tracking", "outbox", "projection", "mail", "gateway"]


def test_an_unknown_preset_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigurationError, match=r"'mial', only tracking.*did you mean 'mail'"):
        Retry.preset("mial")


def test_a_preset_like_no_other_is_refused_with_all_of_them() -> None:
    with pytest.raises(ConfigurationError, match="tracking, outbox, projection, mail, gateway"):
        Retry.preset("xyz")


def test_durations_may_be_text_or_timedelta() -> None:
    assert Retry(base="2s", cap="1m") == Retry(base=timedelta(seconds=2), cap=timedelta(minutes=1))


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"max_attempts": 0}, "max_attempts is 0; it counts the first try"),
        ({"max_attempts": -3}, "smallest useful value is 1"),
        ({"max_attempts": 2.0}, "max_attempts is 2.0"),
        ({"max_attempts": True}, "max_attempts is True"),
        ({"base": "soon"}, "base is 'soon', which is not a duration"),
        ({"base": 1}, "base is 1, which is not a duration"),
        ({"cap": timedelta(seconds=-1)}, "cannot be negative"),
        ({"cap": "366d"}, "cap is 366d.*at most 365d"),
        ({"base": "10m"}, "base is 10m, longer than the cap of 5m.*raise cap"),
        ({"factor": 0.5}, "factor is 0.5.*from 1"),
        ({"factor": float("nan")}, "factor is nan"),
        ({"factor": float("inf")}, "factor is inf"),
        ({"factor": 1001}, "to 1000"),
        ({"factor": "2"}, "factor is '2'"),
        ({"jitter": "ful"}, "jitter is 'ful'; it is one of \"full\""),
        ({"jitter": 0.1}, r"or Proportional\(0.1\)"),
        ({"jitter": None}, "jitter is None"),
        ({"jitter": "proportional(0.1)"}, r"or Proportional\(0.1\)"),
    ],
)
def test_a_wrong_option_is_refused_with_advice(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        Retry(**options)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), float("inf"), "0.1", None, True])
def test_a_share_outside_nothing_and_all_is_refused(share: object) -> None:
    with pytest.raises(ConfigurationError, match="from 0 to 1"):
        Proportional(share)  # type: ignore[arg-type]


@given(st.timedeltas())
def test_a_retry_after_is_never_absurd(wait: timedelta) -> None:
    assert timedelta(seconds=1) <= bounded_retry_after(wait) <= timedelta(hours=24)


def test_a_sensible_retry_after_is_kept() -> None:
    assert bounded_retry_after(timedelta(minutes=2)) == timedelta(minutes=2)
