"""The circuit breaker, state by state."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.model.gate import BreakerState, Closed, HalfOpen, Open
from redrive.model.limits import Breaker
from redrive.policies.breaker import forced_open, permitted, reported, reset

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
    probing, two = permitted(opened, breaker, now=NOW + timedelta(seconds=30))

    assert (still, none) == (opened, 0)
    assert isinstance(probing, HalfOpen)
    assert two == 2
    assert probing.generation == opened.generation + 1


def test_each_failed_probe_keeps_it_open_for_longer_up_to_a_limit() -> None:
    breaker = Breaker(failures=1, open_for="1s")
    state: BreakerState = Closed()
    waits = []
    now = NOW
    for _ in range(12):
        state = after(state, breaker, DOWN, now=now, chance=0.0)
        assert isinstance(state, Open)
        assert state.until is not None
        waits.append((state.until - now).total_seconds())
        now = state.until
        state, _ = permitted(state, breaker, now=now)

    assert waits[:8] == [1, 2, 4, 8, 16, 32, 64, 64]


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
