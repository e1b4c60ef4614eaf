"""Payloads of every shape: taken and read back, or refused, at each door of each store."""

from __future__ import annotations

import pytest

from tests.proof.grounds import Ground
from tests.proof.payloads import prove_payloads

COUNTS = {"memory": 150, "sqlite": 150, "postgres": 60}


@pytest.mark.parametrize(("ground", "count"), COUNTS.items(), ids=COUNTS, indirect=["ground"])
def test_whatever_a_door_lets_in_can_be_read_by_everyone(ground: Ground, count: int) -> None:
    assert prove_payloads(ground, seed=1, count=count) > count
