"""The simulation finds planted bugs; without that, finding nothing would mean nothing.

`python -m tests.simulation --bugs` looks for all of them, within 500 seeds each.
"""

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.command import hunt

QUICKLY_FOUND = (
    "lane head by due time",
    "early due",
    "token bucket full at start",
    "replay without status guard",
    "publish not atomic over destinations",
    "idempotency ignored",
    "waiting spends an attempt",
    "retry without counting",
    "pause ignored",
    "settle before send",
    "acknowledge before commit",
    "gap-blind reader",
    "a rolled back transaction stays open",
    "backfill cut short",
    "a due time starts many replays",
    "rate of a tenant ignored",
    "blamed while in doubt",
    "exhausted counts as delivered",
    "old declaration back beside workers",
    "publisher declares as a whole",
    "worker declares only patterns",
    "change of routes not told",
)
MOST_SEEDS = 150


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_planted_bug_is_found(name: str) -> None:
    (bug,) = [one for one in BUGS if one.name == name]

    found = hunt(bug, most=MOST_SEEDS)

    assert found is not None
    assert found.violations[0].check.startswith("I"), "an invariant tells, not a run that breaks"


def test_there_are_many_planted_bugs() -> None:
    assert len({one.name for one in BUGS}) == len(BUGS) >= 50
