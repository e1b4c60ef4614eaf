"""The circuit breaker, state by state."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.model.gate import BreakerState, Closed, Gate, HalfOpen, Open
from redrive.model.limits import Breaker
from redrive.policies.breaker import (
    checked,
    forced_open,
    is_known,
    last_probed,
    permitted,
    probing,
    reported,
    reset,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def after(
    state: BreakerState, breaker: Breaker, *results: bool, now: datetime = NOW, chance: float = 0.5
) -> BreakerState:
    for is_success in results:
        state = reported(
            state,
            breaker,
            is_success=is_success,
            generation=state.generation,
            now=now,
            chance=chance,
        )
    return state


UP, DOWN = True, False


def test_a_success_in_between_starts_the_count_again() -> None:
    breaker = Breaker(failures=3)

    assert isinstance(after(Closed(), breaker, DOWN, DOWN, UP, DOWN, DOWN), Closed)
    assert isinstance(after(Closed(), breaker, DOWN, DOWN, UP, DOWN, DOWN, DOWN), Open)


def test_the_first_open_time_is_the_one_that_was_set() -> None:
    state = after(Closed(), Breaker(failures=1, open_for="30s"), DOWN)

    assert isinstance(state, Open)
    assert state.until == NOW + timedelta(seconds=30)


def test_nothing_passes_before_its_end_and_probes_after_it() -> None:
    breaker = Breaker(failures=1, open_for="30s", probes=2)
    opened = after(Closed(), breaker, DOWN)

    still, none = permitted(opened, breaker, now=NOW + timedelta(seconds=29.999))
    half_open, two = permitted(opened, breaker, now=NOW + timedelta(seconds=30))

    assert (still, none) == (opened, 0)
    assert isinstance(half_open, HalfOpen)
    assert two == 2
    assert half_open.generation == opened.generation + 1


def failing(breaker: Breaker, *, times: int, chance: float = 0.0) -> list[float]:
    """Return how long it is open each time, while every probe fails at once."""
    state: BreakerState = Closed()
    waits = []
    now = NOW
    for _ in range(times):
        state = after(state, breaker, DOWN, now=now, chance=chance)
        assert isinstance(state, Open)
        assert state.until is not None
        waits.append((state.until - now).total_seconds())
        now = state.until
        state, _ = permitted(state, breaker, now=now)
    return waits


def test_a_wait_is_half_of_the_time_it_has_been_down_within_its_bounds() -> None:
    waits = failing(Breaker(failures=1), times=16)

    assert waits[:6] == [2, 2, 2, 3, 4.5, 6.75]
    assert waits[-2:] == [45, 45]


@given(st.floats(0, 1), st.integers(1, 20), st.integers(0, 100))
def test_jitter_only_shortens_a_wait(chance: float, first: int, more: int) -> None:
    breaker = Breaker(failures=1, open_for=f"{first}s", longest_open=f"{first + more}s")
    down = 0.0
    for wait in failing(breaker, times=12, chance=chance):
        assert first <= wait <= min(max(first, down / 2), first + more) + 1e-5
        down += wait


def test_the_time_down_begins_with_the_first_failure_in_a_row() -> None:
    breaker = Breaker(failures=2)
    state = after(Closed(), breaker, UP, DOWN, now=NOW)

    state = after(state, breaker, DOWN, now=NOW + timedelta(seconds=20), chance=0.0)

    assert isinstance(state, Open)
    assert state.until == NOW + timedelta(seconds=30)


def test_a_probe_that_hung_is_a_part_of_the_wait_for_the_next_one() -> None:
    breaker = Breaker(failures=1)
    long_ago, later = NOW - timedelta(hours=1), NOW + timedelta(seconds=30)
    half_open = HalfOpen(generation=0, since=NOW, times=9, down_since=long_ago)
    probed = probing(half_open, [7], now=NOW)

    state = after(probed, breaker, DOWN, now=later, chance=0.0)

    assert isinstance(state, Open)
    assert state.until == NOW + timedelta(seconds=45)


def test_a_destination_that_has_answered_was_not_down_before_that() -> None:
    breaker = Breaker(failures=1)
    long_ago = NOW - timedelta(hours=1)
    half_open = HalfOpen(generation=0, since=NOW, times=9, down_since=long_ago)

    state = after(half_open, breaker, UP, DOWN, now=NOW, chance=0.0)

    assert isinstance(state, Open)
    assert state.until == NOW + timedelta(seconds=2)


def test_a_delivery_out_of_attempts_opens_it_if_nothing_was_answered_since_its_first() -> None:
    breaker = Breaker(failures=5)
    states = [
        reported(
            Closed(in_a_row=failed),
            breaker,
            is_success=False,
            generation=0,
            now=NOW,
            chance=0.0,
            exhausts=tries,
        )
        for failed, tries in ((2, 3), (1, 3), (0, 1))
    ]

    assert [type(one) for one in states] == [Open, Closed, Closed]


def test_only_the_last_probes_are_remembered_and_each_once() -> None:
    state: BreakerState = HalfOpen(generation=0, since=NOW, times=1)
    for number in (1, 2, 1, *range(3, 60)):
        state = probing(state, [number], now=NOW)

    assert list(last_probed(state)) == list(range(10, 60))
    assert last_probed(probing(Closed(), [1], now=NOW)) == ()


def test_a_probe_is_known_once_another_has_arrived_and_not_by_a_health_check() -> None:
    breaker = Breaker(failures=1, successes=3)
    opened = Open(generation=1, since=NOW, until=NOW, probed=(7,))
    half_open, _ = permitted(opened, breaker, now=NOW)
    healthy = checked(opened, breaker, is_healthy=True, generation=1, now=NOW)

    answered = after(half_open, breaker, UP)

    assert not is_known(half_open, 7)
    assert not is_known(healthy, 7)
    assert is_known(answered, 7)
    assert not is_known(answered, 8)


def test_states_of_an_older_release_are_read() -> None:
    gate = msgspec.json.decode(
        b'{"breaker":{"type":"half_open","generation":4,"since":"2026-03-01T00:00:00Z","times":3}}',
        type=Gate,
    )

    state = after(gate.breaker, Breaker(), DOWN, now=NOW, chance=0.0)

    assert isinstance(state, Open)
    assert state.until == NOW + timedelta(seconds=2)


def test_a_declaration_of_an_older_release_is_read() -> None:
    old = msgspec.json.decode(b'{"open_for":"PT60S"}', type=Breaker)

    assert old.longest_open == timedelta(seconds=60)
    assert Breaker().longest_open == timedelta(seconds=45)


def test_a_longest_wait_below_the_first_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"longest_open is 5s.*10s; raise longest_open"):
        Breaker(open_for="10s", longest_open="5s")


def test_a_result_of_another_generation_is_ignored() -> None:
    breaker = Breaker(failures=1)
    state = Closed(generation=7)

    for generation in (6, 8):
        same = reported(
            state, breaker, is_success=False, generation=generation, now=NOW, chance=0.5
        )
        assert same is state


def test_without_a_breaker_nothing_is_counted() -> None:
    state = Closed()

    assert reported(state, None, is_success=False, generation=0, now=NOW, chance=0.5) is state


def test_a_person_may_open_it_for_good_and_reset_it() -> None:
    opened = forced_open(Closed(), until=None, now=NOW)

    assert permitted(opened, None, now=NOW + timedelta(days=999)) == (opened, 0)
    assert reset(opened, now=NOW) == Closed(generation=opened.generation + 1, since=NOW)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"failures": 0}, "failures is 0"),
        ({"probes": True}, "probes is True"),
        ({"rate": 1.5}, "share of failed calls"),
        ({"open_for": "0s"}, "open_for is 0s"),
        ({"window": "soon"}, "not a duration"),
    ],
)
def test_a_breaker_that_makes_no_sense_is_refused(options: dict[str, object], advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        Breaker(**options)  # type: ignore[arg-type]


@given(
    st.lists(
        st.one_of(st.booleans(), st.timedeltas(timedelta(0), timedelta(minutes=5))), max_size=60
    ),
    st.floats(0, 1),
)
def test_the_generation_grows_with_every_change_and_never_else(
    story: list[bool | timedelta], chance: float
) -> None:
    breaker = Breaker(failures=2, open_for="30s", successes=2)
    state: BreakerState = Closed()
    now = NOW
    for step in story:
        before = state
        if isinstance(step, timedelta):
            now += step
            state, calls = permitted(state, breaker, now=now)
            assert (calls == 0) is isinstance(state, Open)
        else:
            state = after(state, breaker, step, now=now, chance=chance)
        assert state.generation - before.generation == (type(state) is not type(before))
        assert not (isinstance(before, Closed) and isinstance(state, HalfOpen))
        assert not (isinstance(before, Open) and isinstance(state, Closed))
