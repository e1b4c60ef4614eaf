"""A delivery moves between its four states by known steps only."""

from itertools import product

from redrive.model.delivery import LEGAL_TRANSITIONS, SUSPECT_AFTER, Status, is_legal


def test_only_the_known_steps_are_legal() -> None:
    legal = {pair for pair in product(Status, Status) if is_legal(*pair)}

    assert legal == LEGAL_TRANSITIONS


def test_nothing_leaves_delivered() -> None:
    assert not any(is_legal(Status.DELIVERED, after) for after in Status)


def test_a_dead_letter_only_comes_back_by_replay() -> None:
    assert [after for after in Status if is_legal(Status.FAILED, after)] == [Status.PENDING]


def test_only_a_claimed_delivery_can_be_delivered() -> None:
    before = [status for status in Status if is_legal(status, Status.DELIVERED)]

    assert before == [Status.IN_FLIGHT]


def test_one_crash_alone_makes_no_suspect() -> None:
    """Whatever shared the worker has one, too."""
    assert SUSPECT_AFTER == 2
