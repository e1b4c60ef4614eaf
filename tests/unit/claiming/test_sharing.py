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
    return sharing.changed(waiting).get("acme", shared)


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
    assert sharing.held() == {"a": later + timedelta(seconds=1)}
    line = asked(sharing.changed("a")["acme"], "b", waiting="b", after=1.0)

    assert shares(line, "a", "b", after=2.0) == [0, 1]


def test_who_does_not_use_what_was_offered_is_not_held_by_the_rate() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")
    sharing = Sharing({"a": RATE}, {"acme": line}, now=NOW + timedelta(seconds=1))

    assert sharing.bound("a", 5) == 1

    assert sharing.held() == {}


def test_what_is_kept_for_another_is_asked_for_again_soon() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")
    later = NOW + timedelta(seconds=1)
    sharing = Sharing({"b": RATE}, {"acme": line}, now=later)

    assert sharing.bound("b", 5) == 0

    assert sharing.held() == {"b": later + timedelta(milliseconds=100)}


def test_who_has_no_more_work_or_is_not_asked_leaves_the_line() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")

    assert [one.destination for one in asked(line, "a", waiting="").waiting] == ["b"]
    assert [one.destination for one in asked(line, "c", waiting="c", after=2.0).waiting] == ["c"]


def test_asking_again_at_once_changes_nothing() -> None:
    line = asked(EMPTY, "a", "b", waiting="ab")

    assert asked(line, "a", "b", waiting="ab", after=0.4) is line
    assert asked(line, "a", "b", waiting="ab", after=0.6) is not line


def test_who_shares_nothing_is_not_bounded() -> None:
    sharing = Sharing({"a": RATE}, {"acme": EMPTY}, now=NOW)

    assert (sharing.bound("a", 5), sharing.bound("other", 5)) == (0, 5)
