"""A half-open breaker over four processes: never more probes than allowed, whoever is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive import Operations
from redrive.model.gate import BreakerState, Closed, Open
from tests.faults.machine import Machine, on_each_store, until
from tests.faults.service import serving

MachineOf = Callable[[str], Machine]
EVENTS = 200
PROBES = 2
REQUEST_SECONDS = 25
"""Less than a request may take: until then only the kill can have freed a place."""
SUCCESSES_COUNTED = 15
"""Fewer than close the breaker, so that it is half-open while probes are counted."""


@pytest.mark.timeout(300)
@on_each_store
def test_probes_keep_to_their_number_and_a_killed_one_frees_its_place(
    machine_of: MachineOf, tmp_path: Path
) -> None:
    with serving(counted=SUCCESSES_COUNTED) as service:
        (tmp_path / "url").write_text(service.url, "utf-8")
        machine = machine_of("probed")
        machine.publish_numbers(EVENTS)
        workers = [machine.start_worker() for _ in range(4)]
        until(lambda: isinstance(_breaker(machine), Open), what="open")
        # What was claimed before it opened is still on its way.
        until(lambda: machine.of("service").in_flight == 0, what="nothing under way")
        machine.until_workers(4)
        service.begin_to_count()

        service.mood = "hanging"
        until(lambda: len(service.hanging) == PROBES, what="two probes")
        victim = service.hanging[0]
        os.kill(victim, signal.SIGKILL)
        freed = until(lambda: len(service.hanging) > PROBES, what="a third probe")
        service.mood = "up"
        machine.until_settled()

        assert victim in [one.process.pid for one in workers]
        assert victim not in service.hanging[PROBES:]
        assert freed < REQUEST_SECONDS
        assert 0 < service.most_at_once <= PROBES
        assert isinstance(_breaker(machine), Closed)
        assert machine.of("service").delivered == EVENTS


def _breaker(machine: Machine) -> BreakerState:
    [gate] = machine.app.sync.operate(Operations.gates)
    return gate.gate.breaker
