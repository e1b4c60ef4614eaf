"""What each of several destinations may draw from a rate that they share."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from redrive.claiming.sharing import SharedBucket, Sharing, share
from redrive.model.gate import Bucket
from redrive.model.limits import Rate, SharedRate

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RATE = SharedRate("acme", Rate(per_second=1.0, burst=10.0))
EMPTY = SharedBucket(bucket=Bucket(0.0, NOW))


def asked(
    shared: SharedBucket, *names: str, waiting: Collection[str], after: float = 0.0
) -> SharedBucket:
    """Let these ask in vain, of which some have work."""
    now = NOW + timedelta(seconds=after)
    sharing = Sharing(dict.fromkeys(names, RATE), {"acme": shared}, now=now)
    sharing.line_up(waiting)
    return sharing.changed().get("acme", shared)


def shares(shared: SharedBucket, *names: str, after: float) -> list[int]:
    now = NOW + timedelta(seconds=after)
    return [share(shared, RATE.rate, name, now=now) for name in names]


def test_who_is_alone_may_take_all() -> None:
    assert shares(EMPTY, "a", after=7.0) == [7]


def test_too_few_go_to_who_has_waited_longest() -> None:
    line = asked(asked(EMPTY, "b", waiting="b"), "a", "c", waiting="ac")

    assert shares(line, "a", "b", "c", "new", after=1.0) == [0, 1, 0, 0]


def test_enough_is_shared_alike() -> None:
    line = asked(EMPTY, "a", "b", "c", waiting="abc")
    line = asked(line, "a", "b", "c", waiting="abc", after=5.0)

    assert shares(line, "a", "b", "c", after=6.0) == [2, 2, 2]


def test_who_was_served_goes_to_the_end_of_the_line() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")
    later = NOW + timedelta(seconds=1)
    sharing = Sharing({"a": RATE}, {"acme": line}, now=later)
    assert sharing.bound("a", 5) == 1
    sharing.charge("a", 1)
    assert sharing.held() == ["a"]
    sharing.line_up("a")
    line = asked(sharing.changed()["acme"], "b", waiting="b", after=1.0)

    assert shares(line, "a", "b", after=2.0) == [0, 1]


def test_who_was_served_comes_after_who_was_asked_in_vain_beside_it() -> None:
    sharing = Sharing(dict.fromkeys("ab", RATE), {"acme": EMPTY}, now=NOW + timedelta(seconds=1))
    assert sharing.bound("a", 5) == 1
    sharing.charge("a", 1)
    assert sharing.bound("b", 5) == 0

    sharing.line_up("ab")

    assert [one.destination for one in sharing.changed()["acme"].waiting] == ["b", "a"]


def test_who_does_not_use_what_was_offered_is_not_held_by_the_rate() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")
    sharing = Sharing({"a": RATE}, {"acme": line}, now=NOW + timedelta(seconds=1))

    assert sharing.bound("a", 5) == 1

    assert sharing.held() == []


def test_each_in_line_is_told_when_there_will_be_a_token_for_it() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")

    sharing = Sharing(dict.fromkeys("cba", RATE), {"acme": line}, now=NOW)

    turns = {name: NOW + timedelta(seconds=one) for one, name in enumerate("abc", start=1)}
    assert sharing.line_up("abc") == turns


def test_a_turn_takes_account_of_tokens_that_are_kept_for_others() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")
    later = NOW + timedelta(seconds=1)
    sharing = Sharing({"b": RATE}, {"acme": line}, now=later)

    assert sharing.bound("b", 5) == 0

    assert sharing.held() == ["b"]
    assert sharing.line_up("b") == {"b": later + timedelta(seconds=1)}


def test_who_is_far_back_asks_now_and_then_whether_the_line_is_shorter() -> None:
    rare = SharedRate("acme", Rate(per_second=1 / (360 * 86_400)))
    names = [f"d{number}" for number in range(9_000)]
    sharing = Sharing(dict.fromkeys(names, rare), {"acme": EMPTY}, now=NOW)

    assert set(sharing.line_up(names).values()) == {NOW + timedelta(seconds=10)}


def test_who_has_no_more_work_leaves_the_line() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")

    assert [one.destination for one in asked(line, "a", waiting="").waiting] == ["b"]


def test_who_does_not_ask_when_it_is_its_turn_leaves_the_line() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")  # in 1 s, and in 2 s

    def left(after: float) -> list[str]:
        return [one.destination for one in asked(line, "c", waiting="c", after=after).waiting]

    assert left(2.9) == ["a", "b", "c"]
    assert left(3.0) == ["b", "c"]
    assert left(4.0) == ["c"]


def test_nobody_waits_for_a_turn_from_before_the_clock_was_set_back() -> None:
    line = asked(EMPTY, "a", waiting="a", after=3_600.0)

    assert [one.destination for one in asked(line, "c", waiting="c").waiting] == ["c"]


def test_a_request_takes_the_turn_of_what_waits_and_leaves_it_in_line() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")
    sharing = Sharing({"a": RATE}, {"acme": line}, now=NOW + timedelta(seconds=1))
    sharing.charge("a", 1)

    sharing.step_back()

    assert [one.destination for one in sharing.changed()["acme"].waiting] == ["b", "a"]


def test_a_request_of_who_does_not_wait_leaves_nobody_in_line() -> None:
    sharing = Sharing({"a": RATE}, {"acme": EMPTY}, now=NOW + timedelta(seconds=1))
    sharing.charge("a", 1)

    sharing.step_back()

    assert sharing.changed()["acme"].waiting == ()


def test_asking_again_changes_nothing_while_the_turns_are_the_same() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")

    assert asked(line, "a", "b", waiting="ab", after=1.4) is line
    assert asked(line, "a", "b", waiting="ab", after=1.6) is not line


def test_who_shares_nothing_is_not_bounded() -> None:
    sharing = Sharing({"a": RATE}, {"acme": EMPTY}, now=NOW)

    assert (sharing.bound("a", 5), sharing.bound("other", 5)) == (0, 5)
