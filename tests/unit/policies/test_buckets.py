"""Tokens come back when it was said they would, whatever the rate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from redrive.model.gate import Bucket
from redrive.model.limits import Rate
from redrive.policies.buckets import awaited, taken, whole

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

rates = st.one_of(st.integers(1, 1_000).map(float), st.floats(1 / 86_400, 100_000))


@given(rates, st.floats(1, 50), st.lists(st.integers(0, 2_000_000), max_size=20))
def test_at_the_instant_that_is_waited_for_there_is_a_token(
    per_second: float, burst: float, pauses: list[int]
) -> None:
    rate, bucket, now = Rate(per_second=per_second, burst=burst), Bucket(), NOW
    for pause in pauses:
        now += timedelta(microseconds=pause)
        bucket = taken(bucket, rate, whole(bucket, rate, now=now), now=now)

        again_at = awaited(bucket, rate, now=now)

        assert whole(bucket, rate, now=again_at) >= 1
        if not whole(bucket, rate, now=now):
            assert again_at > now


@given(st.floats(0.01, 10_000), st.integers(1, 40))
def test_the_wait_for_several_tokens_is_no_longer_than_it_must_be(
    per_second: float, wanted: int
) -> None:
    rate = Rate(per_second=per_second, burst=40.0)
    empty = Bucket(0.0, NOW)

    again_at = awaited(empty, rate, wanted=wanted, now=NOW)

    exact = timedelta(seconds=wanted / per_second)
    assert exact - MICROSECOND <= again_at - NOW <= exact + 2 * MICROSECOND


def test_who_is_a_moment_behind_waits_until_the_bucket_fills() -> None:
    rate, bucket = Rate(per_second=1.0), Bucket(0.0, NOW)

    again_at = awaited(bucket, rate, now=NOW - timedelta(seconds=5))

    assert again_at == NOW + timedelta(seconds=1)
