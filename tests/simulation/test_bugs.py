"""The simulation finds planted bugs; without that, finding nothing would mean nothing.

`python -m tests.simulation --bugs` looks for all of them, within 500 seeds each.
"""

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.command import hunt

QUICKLY_FOUND = {
    "lane head by due time": 0,
    "early due": 0,
    "token bucket full at start": 5,
    "replay without status guard": 5,
    "publish not atomic over destinations": 0,
    "idempotency ignored": 3,
    "waiting spends an attempt": 0,
    "retry without counting": 1,
    "pause ignored": 4,
    "shared rate not shared": 1,
    "settle before send": 0,
    "acknowledge before commit": 0,
    "gap-blind reader": 0,
    "a rolled back transaction stays open": 2,
    "backfill cut short": 18,
    "a due time starts many replays": 0,
    "rate of a tenant ignored": 0,
    "blamed while in doubt": 7,
    "exhausted counts as delivered": 0,
    "old declaration back beside workers": 2,
    "publisher declares as a whole": 2,
    "worker declares only patterns": 2,
    "change of routes not told": 13,
    "a lap skips somebody": 8,
    "a lap passes what was scheduled": 8,
    "a shut gate is never asked again": 43,
    "a destination is never visited again": 3,
    "a shut gate is passed in a crowd": 0,
    "who was not reached leaves the ring": 1,
    "what is delivered is not counted": 0,
    "what is new is counted twice": 0,
    "a projection reads past gaps": 0,
    "checkpoint before apply": 0,
    "a key is parked without followers": 5,
    "swap before caught up": 6,
    "a key in two partitions": 0,
    "two owners of a projection": 4,
    "what failed stays in the read model": 4,
    "settled before spilled": 10,
    "drained twice": 2,
    "dropped but not counted": 1,
    "filtered but not counted": 0,
    "an ordered destination overtaken": 5,
    "spilled beside what is older": 7,
    "drained beside what is older": 11,
    "rendered by the newest version": 1,
    "what waits for a disabled service is dropped": 1,
    "a publisher goes by old rules": 0,
    "a delivery per service": 1,
    "applied in two transactions": 0,
    "two apply at once": 2,
    "a version is given again": 0,
    "an old address for ever": 10,
    "a disabled service is served": 60,
    "a disabled rule gives events": 0,
    "a rule stays where it led": 0,
    "a rule is moved by two at once": 52,
    "deleted under what waits": 4,
}
"""Each with a seed that finds it, which is tried first."""
MOST_SEEDS = 150


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "first"), QUICKLY_FOUND.items(), ids=QUICKLY_FOUND)
def test_a_planted_bug_is_found(name: str, first: int) -> None:
    (bug,) = [one for one in BUGS if one.name == name]

    found = hunt(bug, most=MOST_SEEDS, first=first)

    assert found is not None
    assert found.violations[0].check.startswith("I"), "an invariant tells, not a run that breaks"


def test_there_are_many_planted_bugs() -> None:
    assert len({one.name for one in BUGS}) == len(BUGS) >= 50
