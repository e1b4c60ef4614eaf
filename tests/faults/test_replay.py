"""A replay outlives the workers that drive it: killed in the middle, it ends with exact counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redrive import Operations, Query, Replay
from tests.faults.machine import Machine, on_each_store, until
from tests.scale import IS_LONG

MachineOf = Callable[[str], Machine]
LETTERS, SECONDS = (10_000, 180) if IS_LONG else (400, 120)
CARRIED = 10
"""How many deliveries a victim has under way at most: what it may have sent without a trace."""


@pytest.mark.timeout(4 * SECONDS)
@on_each_store
def test_a_replay_goes_on_when_its_workers_are_killed(machine_of: MachineOf) -> None:
    machine = machine_of("mending")
    machine.publish_numbers(LETTERS)
    first = machine.start_worker()
    until(lambda: machine.of("mending").failed == LETTERS, within=SECONDS, what="dead letters")
    first.kill()
    (machine.folder / "fixed").touch()

    replay = machine.app.sync.operate(
        Operations.start_replay, Query(), by="ada", largest_wave=LETTERS // 10
    )
    kills = 3
    for kill in range(1, kills + 1):
        victim = machine.start_worker("--concurrency", str(CARRIED))
        machine.until_written("done", LETTERS * kill // 5, within=SECONDS)
        victim.kill()
    for _ in range(2):
        machine.start_worker()
    until(lambda: _found(machine, replay).state != "running", within=SECONDS, what="the end")

    after = _found(machine, replay)
    written = machine.journal("done")
    assert after.state == "done"
    assert (after.selected, after.sent, after.delivered) == (LETTERS, LETTERS, LETTERS)
    assert (after.failed, after.skipped, after.left) == (0, 0, 0)
    assert machine.of("mending").delivered == LETTERS
    assert sorted(written) == list(range(LETTERS))
    assert sum(count - 1 for count in written.values()) <= kills * CARRIED


@on_each_store
def test_several_workers_that_drive_one_replay_send_each_letter_once(machine_of: MachineOf) -> None:
    machine = machine_of("mending")
    machine.publish_numbers(300)
    workers = [machine.start_worker() for _ in range(3)]
    until(lambda: machine.of("mending").failed == 300, what="dead letters")
    (machine.folder / "fixed").touch()

    replay = machine.app.sync.operate(Operations.start_replay, Query(), by="ada")
    until(lambda: _found(machine, replay).state != "running", what="the end")

    assert _found(machine, replay).delivered == 300
    assert set(machine.journal("done").values()) == {1}
    assert all(one.process.poll() is None for one in workers)


def _found(machine: Machine, replay: Replay) -> Replay:
    return machine.app.sync.operate(Operations.show_replay, replay.id)
