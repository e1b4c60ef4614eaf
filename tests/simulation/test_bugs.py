"""The simulation finds planted bugs; without that, finding nothing would mean nothing.

`python -m tests.simulation --bugs` looks for all of them, within 500 seeds each.
"""

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.command import hunt

QUICKLY_FOUND = (
    ("lane head by due time", "I5 order"),
    ("early due", "I12 due time"),
    ("token bucket full at start", "I8 limits"),
    ("replay without status guard", "I10 one winner"),
    ("publish not atomic over destinations", "I2 no phantom"),
    ("idempotency ignored", "I2 no phantom"),
    ("waiting spends an attempt", "I1 lost nothing"),
    ("retry without counting", "I6 attempts bounded"),
    ("pause ignored", "I7 breaker"),
    ("settle before send", "I6 settled as answered"),
    ("acknowledge before commit", "I1 lost nothing"),
    ("exhausted counts as delivered", "I6 settled as answered"),
)
MOST_SEEDS = 60


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "check"), QUICKLY_FOUND, ids=[one for one, _ in QUICKLY_FOUND])
def test_a_planted_bug_is_found(name: str, check: str) -> None:
    (bug,) = [one for one in BUGS if one.name == name]

    found = hunt(bug, most=MOST_SEEDS)

    assert found is not None
    assert found.violations[0].check == check


def test_there_are_many_planted_bugs() -> None:
    assert len({one.name for one in BUGS}) == len(BUGS) >= 20
