"""What each status and each form of `Retry-After` means."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.model.outcome import Nature
from redrive.policies.classify import Verdict
from redrive.policies.http import RETRIED_STATUSES, classify_status, read_retry_after

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SHORTEST, LONGEST = timedelta(seconds=1), timedelta(hours=24)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_2xx_means_that_it_was_taken(status: int) -> None:
    assert classify_status(status, now=NOON) is None


@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504])
def test_a_status_that_may_heal_is_transient(status: int) -> None:
    verdict = classify_status(status, now=NOON)

    assert verdict == Verdict(nature=Nature.TRANSIENT, rule=f"status {status}")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 413, 418, 422, 451, 499])
def test_any_other_4xx_is_terminal(status: int) -> None:
    verdict = classify_status(status, now=NOON)

    assert verdict == Verdict(nature=Nature.TERMINAL, rule=f"status {status}")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_a_redirect_is_terminal(status: int) -> None:
    verdict = classify_status(status, now=NOON)

    assert verdict == Verdict(nature=Nature.TERMINAL, rule=f"status {status}")


def test_what_is_gone_is_terminal_and_says_so() -> None:
    verdict = classify_status(410, now=NOON)

    assert verdict == Verdict(nature=Nature.TERMINAL, rule="410 gone", is_gone=True)


@pytest.mark.parametrize("status", [101, 501, 505, 507, 511, 520, 599, 999])
def test_a_status_in_no_list_is_transient_by_default(status: int) -> None:
    verdict = classify_status(status, now=NOON)

    assert verdict == Verdict(nature=Nature.TRANSIENT, rule=f"default: status {status}")


def test_too_many_requests_throttles_with_and_without_a_wait() -> None:
    bare = classify_status(429, now=NOON)
    timed = classify_status(429, now=NOON, retry_after="30")

    assert bare == Verdict(nature=Nature.THROTTLED, rule="status 429")
    assert timed == Verdict(
        nature=Nature.THROTTLED, rule="status 429", retry_after=timedelta(seconds=30)
    )


def test_an_outage_that_asks_for_a_wait_stays_an_outage() -> None:
    verdict = classify_status(503, now=NOON, retry_after="30")

    assert verdict == Verdict(
        nature=Nature.TRANSIENT, rule="status 503", retry_after=timedelta(seconds=30)
    )


def test_what_is_terminal_has_no_wait() -> None:
    verdict = classify_status(404, now=NOON, retry_after="30")

    assert verdict is not None
    assert verdict.retry_after is None


@pytest.mark.parametrize("status", sorted({*RETRIED_STATUSES, 301, 404, 410, 507}))
def test_an_empty_set_never_retries_on_an_answer(status: int) -> None:
    verdict = classify_status(status, now=NOON, retry_on_status=frozenset())

    assert verdict == Verdict(
        nature=Nature.TERMINAL, rule=f"destination says: status {status}", is_gone=status == 410
    )


def test_a_set_of_statuses_takes_the_place_of_the_table() -> None:
    chosen = frozenset({404, 429})

    listed = classify_status(404, now=NOON, retry_on_status=chosen)
    throttling = classify_status(429, now=NOON, retry_on_status=chosen)
    unlisted = classify_status(503, now=NOON, retry_on_status=chosen)

    assert listed is not None
    assert listed.nature is Nature.TRANSIENT
    assert throttling is not None
    assert throttling.nature is Nature.THROTTLED
    assert unlisted is not None
    assert unlisted.nature is Nature.TERMINAL
    assert classify_status(200, now=NOON, retry_on_status=chosen) is None


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("120", timedelta(seconds=120)),
        (" 120 ", timedelta(seconds=120)),
        ("2.5", timedelta(seconds=2.5)),
        ("0", SHORTEST),
        ("-5", SHORTEST),
        ("86401", LONGEST),
        ("31536000000", LONGEST),
        ("9" * 5_000, LONGEST),
        ("Thu, 01 Jan 2026 12:05:00 GMT", timedelta(minutes=5)),
        ("Thursday, 01-Jan-26 12:05:00 GMT", timedelta(minutes=5)),
        ("Thu Jan  1 12:05:00 2026", timedelta(minutes=5)),
        ("Thu, 01 Jan 2026 13:05:00 +0100", timedelta(minutes=5)),
        ("Sun, 06 Nov 1994 08:49:37 GMT", SHORTEST),
        ("Fri, 31 Dec 9999 23:59:59 -2359", LONGEST),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Sun, 06 Nov 1994 08:49:37 +9999", None),
        ("", None),
        ("soon", None),
        ("1e9", None),
        ("nan", None),
        ("inf", None),
        ("1_000", None),
        ("١٢", None),
        ("12 apples", None),
    ],
)
def test_retry_after_is_read_in_every_form_and_held_in_bounds(
    value: str, wait: timedelta | None
) -> None:
    assert read_retry_after(value, now=NOON) == wait


@given(st.text() | st.from_regex(r"[-+]?[0-9:, A-Za-z]{0,40}", fullmatch=True))
@example("Mon, 32 Foo 2026 25:61:61 GMT")
@example("0 0 0 0:0:0")
def test_no_retry_after_breaks_anything_or_leaves_the_bounds(value: str) -> None:
    wait = read_retry_after(value, now=NOON)

    assert wait is None or SHORTEST <= wait <= LONGEST


@given(st.integers(100, 999), st.none() | st.frozensets(st.integers(300, 599)), st.text())
def test_every_answer_gets_a_verdict_with_a_rule(
    status: int, chosen: frozenset[int] | None, retry_after: str
) -> None:
    verdict = classify_status(status, now=NOON, retry_after=retry_after, retry_on_status=chosen)

    assert (verdict is None) is (200 <= status < 300)
    assert verdict is None or str(status) in verdict.rule
