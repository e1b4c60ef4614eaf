"""Schedules while workers are killed: each tick is published, and none twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from redrive import Operations
from tests.faults.machine import Machine, on_each_store, until
from tests.scale import scaled

MachineOf = Callable[[str], Machine]
KILLS = min(scaled("KILLS", usually=1), 20)
BETWEEN = 2
"""How many ticks there are from one kill to the next."""


def ticks_of(machine: Machine) -> list[datetime]:
    events = machine.app.sync.operate(Operations.events, limit=1000)
    return [one.event.occurred_at for one in events]


def until_more_ticks(machine: Machine) -> None:
    seen = len(ticks_of(machine))
    until(lambda: len(ticks_of(machine)) >= seen + BETWEEN, what="more ticks")


@pytest.mark.timeout(240 + 10 * KILLS)
@on_each_store
def test_each_tick_is_published_once_while_workers_are_killed(machine_of: MachineOf) -> None:
    machine = machine_of("ticking")
    workers = [machine.start_worker() for _ in range(3)]
    machine.until_workers(3)

    for kill in range(KILLS):
        until_more_ticks(machine)
        workers[kill % 3].kill()
        if kill + 1 < KILLS:
            workers[kill % 3] = machine.start_worker()
    until_more_ticks(machine)

    ticks = ticks_of(machine)
    assert {later - one for one, later in pairwise(ticks)} == {timedelta(seconds=1)}
