"""Tests begin in an order that lets all processes end together."""

from pathlib import Path

import pytest

from tests.schedule import WAITING, WORKING, longest_first

ROOT = Path(__file__).parents[2]


def test_long_tests_begin_first_and_take_turns() -> None:
    paths = [
        "tests/app/test_working.py",
        "tests/faults/test_kill.py",
        "tests/faults/test_stop.py",
        "tests/proof/test_linear.py",
        "tests/proof/test_contract.py",
        "tests/simulation/test_seeds.py",
        "tests/unit/test_clock.py",
    ]

    assert longest_first(paths, str) == [
        "tests/proof/test_contract.py",
        "tests/faults/test_kill.py",
        "tests/simulation/test_seeds.py",
        "tests/faults/test_stop.py",
        "tests/proof/test_linear.py",
        "tests/app/test_working.py",
        "tests/unit/test_clock.py",
    ]


@pytest.mark.parametrize("place", [*WAITING, *WORKING])
def test_a_place_where_tests_take_long_is_there(place: str) -> None:
    assert list(ROOT.glob(f"{place}*"))
