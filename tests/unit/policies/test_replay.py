"""Replay: each step follows from how it stands, and no wave outruns what became of the last."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.errors import ConfigurationError
from redrive.model.limits import Limits, Rate
from redrive.model.replay import Pace, ReplayState, Wave
from redrive.policies.replay import Done, Send, Stop, Wait, decide, estimate, moved, steered
from redrive.store import Replay
from redrive.testing import FakeClock

NOW = FakeClock().now()
SECOND = timedelta(seconds=1)


def a_replay(selected: int = 100, pace: Pace | None = None, **fields: object) -> Replay:
    return Replay(
        id=1,
        state=ReplayState.RUNNING,
        by="ada",
        why="",
        started_at=NOW,
        changed_at=NOW,
        selected=selected,
        pace=pace or Pace(),
        **fields,  # type: ignore[arg-type]
    )


def sent(replay: Replay, *, skipped: int = 0, now: datetime = NOW) -> Replay:
    """Carry out the step that is due."""
    decision = decide(replay, held=0, now=now)
    assert isinstance(decision, Send), decision
    return moved(
        replay, decision.wave, sent=decision.count - skipped, skipped=skipped, behind=0, now=now
    )


def settled(replay: Replay, *, delivered: int = 0, failed: int = 0) -> Replay:
    return msgspec.structs.replace(
        replay, delivered=replay.delivered + delivered, failed=replay.failed + failed
    )


def test_the_first_wave_is_the_canary() -> None:
    decision = decide(a_replay(pace=Pace(canary=3)), held=0, now=NOW)

    assert decision == Send(count=3, wave=Wave(number=1, size=3, is_canary=True))


def test_a_wave_under_way_is_waited_for() -> None:
    assert decide(sent(a_replay()), held=0, now=NOW) == Wait()


def test_a_wave_that_went_well_is_followed_by_one_twice_as_large() -> None:
    replay, sizes = a_replay(selected=50, pace=Pace(largest_wave=12)), []

    while isinstance(decide(replay, held=0, now=NOW), Send):
        before = replay.sent
        replay = sent(replay)
        sizes.append(replay.sent - before)
        replay = settled(replay, delivered=replay.under_way)

    assert sizes == [1, 2, 4, 8, 12, 12, 11]
    assert decide(replay, held=0, now=NOW) == Done()


def test_a_large_wave_goes_in_several_steps() -> None:
    """A thousand at once would hold a store's write lock for too long."""
    replay = a_replay(selected=600, pace=Pace(canary=600))

    steps = []
    while isinstance(decision := decide(replay, held=0, now=NOW), Send):
        steps.append((decision.count, decision.wave.number))
        replay = sent(replay)

    assert steps == [(250, 1), (250, 1), (100, 1)]


def test_one_failure_of_the_canary_stops_it() -> None:
    replay = settled(sent(a_replay(pace=Pace(canary=10, failure_limit=1.0))), failed=1)

    assert decide(replay, held=0, now=NOW) == Stop(why="1 of 10 in the canary failed again")


@pytest.mark.parametrize(("failed", "stops"), [(0, False), (2, False), (3, True)])
def test_later_the_share_of_a_wave_decides(failed: int, *, stops: bool) -> None:
    replay = sent(a_replay(pace=Pace(canary=10, failure_limit=0.1)))
    replay = sent(settled(replay, delivered=10))

    decision = decide(settled(replay, failed=failed), held=0, now=NOW)

    assert isinstance(decision, Stop) is stops


def test_failures_of_earlier_waves_do_not_count_against_a_later_one() -> None:
    replay = sent(a_replay(pace=Pace(canary=20, failure_limit=0.1)))
    replay = sent(settled(replay, delivered=20))
    replay = settled(replay, delivered=36, failed=4)

    assert isinstance(decide(replay, held=0, now=NOW), Send)


def test_with_nothing_left_there_is_nothing_to_stop() -> None:
    replay = settled(sent(a_replay(selected=1)), failed=1)

    assert decide(replay, held=0, now=NOW) == Done()


def test_letters_that_nobody_can_settle_are_not_waited_for() -> None:
    replay = settled(sent(a_replay(selected=3, pace=Pace(canary=3, failure_limit=1.0))), failed=1)

    assert decide(replay, held=1, now=NOW) == Wait()
    assert decide(replay, held=2, now=NOW) == Done(
        why="2 of the letters sent wait behind a dead letter of their key"
    )


def test_a_rate_gathers_tokens_for_a_step_worth_taking() -> None:
    replay = sent(a_replay(pace=Pace(canary=50, rate=Rate(per_second=100.0, burst=10.0))))

    assert replay.sent == 10
    assert decide(replay, held=0, now=NOW) == Wait(until=NOW + SECOND / 10)
    later = NOW + SECOND / 10
    assert sent(replay, now=later).sent == 20


def test_a_rate_waits_for_no_more_tokens_than_there_are_letters() -> None:
    replay = sent(a_replay(selected=12, pace=Pace(canary=50, rate=Rate(per_second=10, burst=10))))

    assert decide(replay, held=0, now=NOW) == Wait(until=NOW + SECOND / 5)


def test_skipped_letters_fill_no_wave_and_take_no_token() -> None:
    rate = Rate(per_second=1.0, burst=5.0)
    replay = sent(a_replay(pace=Pace(canary=5, rate=rate)), skipped=3)

    assert (replay.sent, replay.skipped, replay.wave.sent) == (2, 3, 2)
    assert decide(replay, held=0, now=NOW) == Send(count=3, wave=replay.wave)


def test_a_stopped_replay_begins_with_a_canary_again() -> None:
    replay = settled(sent(a_replay(pace=Pace(canary=4))), failed=1)
    stopped = msgspec.structs.replace(replay, state=ReplayState.STOPPED)

    again = steered(stopped, ReplayState.RUNNING)

    assert again is not None
    assert decide(again, held=0, now=NOW) == Wait()
    decision = decide(settled(again, delivered=3), held=0, now=NOW)
    assert decision == Send(count=4, wave=Wave(number=2, size=4, failed_before=1, is_canary=True))


def test_a_paused_replay_goes_on_where_it_was() -> None:
    replay = msgspec.structs.replace(sent(a_replay()), state=ReplayState.PAUSED)

    assert steered(replay, ReplayState.RUNNING) == replay


@pytest.mark.parametrize("state", list(ReplayState))
def test_a_person_steers_only_where_it_means_something(state: ReplayState) -> None:
    replay = msgspec.structs.replace(a_replay(), state=state)
    wanted = (ReplayState.PAUSED, ReplayState.RUNNING, ReplayState.CANCELLED)

    reached = {one for one in wanted if steered(replay, one) is not None}

    assert (
        reached
        == {
            ReplayState.RUNNING: {ReplayState.PAUSED, ReplayState.CANCELLED},
            ReplayState.PAUSED: {ReplayState.RUNNING, ReplayState.CANCELLED},
            ReplayState.STOPPED: {ReplayState.RUNNING, ReplayState.CANCELLED},
            ReplayState.CANCELLED: set(),
            ReplayState.DONE: set(),
        }[state]
    )


@settings(max_examples=60)
@given(
    selected=st.integers(1, 120),
    canary=st.integers(1, 20),
    largest=st.integers(1, 60),
    per_second=st.floats(0.5, 500),
    outcomes=st.lists(st.integers(0, 3), max_size=60),
)
def test_whatever_becomes_of_the_letters_every_promise_holds(
    selected: int, canary: int, largest: int, per_second: float, outcomes: list[int]
) -> None:
    """No more than a wave under way, counts that add up, and an end."""
    rate = Rate(per_second=per_second, burst=max(1.0, per_second / 10))
    pace = Pace(canary=canary, largest_wave=largest, failure_limit=0.2, rate=rate)
    replay, now, turns = a_replay(selected, pace), NOW, iter(outcomes)
    times: list[tuple[datetime, int]] = []

    for _ in range(10_000):
        match decide(replay, held=0, now=now):
            case Send(count=count, wave=wave):
                assert 1 <= count <= min(replay.left, wave.size - wave.sent)
                skipped = min(count, next(turns, 0))
                replay = moved(
                    replay, wave, sent=count - skipped, skipped=skipped, behind=0, now=now
                )
                times.append((now, count - skipped))
                assert replay.under_way <= max(canary, largest)
            case Wait(until=None):
                assert replay.under_way
                failed = min(replay.under_way, next(turns, 0))
                replay = settled(replay, delivered=replay.under_way - failed, failed=failed)
            case Wait(until=until):
                assert until is not None
                assert until > now
                now = until
            case Stop():
                assert replay.failed
                break
            case Done():
                assert replay.left == replay.under_way == 0
                assert replay.delivered + replay.failed + replay.skipped == selected
                break
    else:
        pytest.fail("it never ended")
    for begin, (start, _) in enumerate(times):
        for end, (instant, _) in enumerate(times[begin:], start=begin + 1):
            passed = sum(count for _, count in times[begin:end])
            allowed = rate.per_second * (instant - start).total_seconds() + rate.burst
            assert passed <= allowed + 1e-3


def test_an_estimate_is_what_the_slowest_rate_makes_of_it() -> None:
    limits = {
        "a": Limits(replay_rate=Rate(per_second=100.0, burst=10.0)),
        "b": Limits(replay_rate=Rate(per_second=1.0)),
        "c": Limits(),
    }
    letters = [("a", 1010), ("b", 4), ("c", 5000)]

    assert estimate(letters, limits, Pace()) == timedelta(seconds=10)
    assert estimate(letters[2:], limits, Pace()) is None
    paced = Pace(rate=Rate(per_second=10.0, burst=14.0))
    assert estimate(letters, limits, paced) == timedelta(seconds=600)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"canary": 0}, "canary is 0; it is how many letters go first"),
        ({"canary": True}, "canary is True"),
        ({"largest_wave": 1.5}, "largest_wave is 1.5"),
        ({"failure_limit": 2}, "failure_limit is 2; it is the share of a wave"),
        ({"failure_limit": "much"}, "failure_limit is 'much'"),
    ],
)
def test_a_pace_that_makes_no_sense_is_refused(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Pace(**given)  # type: ignore[arg-type]
