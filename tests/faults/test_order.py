"""Order over four processes: each key strictly in turn, whatever fails for good in between."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from redrive import NewEvent, Operations
from redrive.model.delivery import Status
from tests.faults.machine import Machine, on_each_store, until
from tests.scale import IS_LONG

MachineOf = Callable[[str], Machine]
KEYS, EVENTS = (200, 50) if IS_LONG else (40, 10)
SECONDS = 240 if IS_LONG else 120


def bad_place(key: int, events: int = EVENTS) -> int | None:
    """Return which event of a key fails for good: one, in every tenth key."""
    return (key * 7) % events if key % 10 == 3 else None


def publish(machine: Machine, keys: int, events: int) -> None:
    """Publish the events of all keys in turn, so that they are mixed."""
    for place in range(events):
        batch = [
            NewEvent(
                type="thing.made",
                key=f"key-{key}",
                payload={"number": key * events + place, "is_bad": bad_place(key, events) == place},
            )
            for key in range(keys)
        ]
        machine.app.sync.publish_many(batch)


def lines_of(machine: Machine, events: int) -> dict[int, list[tuple[str, int]]]:
    """Return what handlers wrote, by key, in the order they wrote it."""
    found: dict[int, list[tuple[str, int]]] = {}
    text = (machine.folder / "journal").read_text("utf-8")
    for line in text.splitlines():
        word, number, _ = line.split()
        key, place = divmod(int(number), events)
        found.setdefault(key, []).append((word, place))
    return found


def done(lines: list[tuple[str, int]]) -> list[int]:
    return [place for word, place in lines if word == "done"]


def never_overlap(lines: list[tuple[str, int]]) -> bool:
    """Tell whether each event that was done had ended before the next of its key began."""
    return all(
        later != "done" or (word, place) == ("begun", ended)
        for (word, place), (later, ended) in pairwise(lines)
    )


def mend(folder: Path) -> None:
    (folder / "mended").touch()


def replay_all(machine: Machine) -> None:
    ids = machine.app.sync.operate(Operations.select)
    machine.app.sync.operate(Operations.replay, ids, by="ada", why="mended")


def start_four(machine: Machine) -> None:
    for _ in range(4):
        machine.start_worker()


@pytest.mark.timeout(2 * SECONDS + 30)
@on_each_store
def test_parked_keys_wait_while_others_finish_and_all_arrive_in_order(
    machine_of: MachineOf,
) -> None:
    machine = machine_of("parking")
    publish(machine, KEYS, EVENTS)
    good = [key for key in range(KEYS) if bad_place(key) is None]
    expected = len(good) * EVENTS + sum(bad_place(key) or 0 for key in range(KEYS))
    start_four(machine)

    def is_all_that_can_be_done() -> bool:
        ordered = machine.of("ordered")
        return (ordered.delivered, ordered.failed) == (expected, KEYS - len(good))

    until(is_all_that_can_be_done, within=SECONDS, what="all others delivered, and one of each bad")
    parked = lines_of(machine, EVENTS)
    figures = machine.of("ordered")
    mend(machine.folder)
    replay_all(machine)
    machine.until_settled(within=SECONDS)
    lines = lines_of(machine, EVENTS)

    in_order = list(range(EVENTS))
    assert all(done(parked[key]) == in_order for key in good)
    assert all(
        done(parked[key]) == in_order[:place]
        for key in range(KEYS)
        if (place := bad_place(key)) is not None and key in parked
    )
    assert figures.pending == figures.behind == KEYS * EVENTS - expected - figures.failed
    assert all(done(lines[key]) == in_order for key in range(KEYS))
    assert all(never_overlap(one) for one in lines.values())
    assert machine.of("ordered").delivered == KEYS * EVENTS


@on_each_store
def test_what_is_skipped_holds_up_nobody_and_arrives_when_it_is_replayed(
    machine_of: MachineOf,
) -> None:
    keys, events = 20, 10
    machine = machine_of("skipping")
    publish(machine, keys, events)
    bad = [key for key in range(keys) if bad_place(key, events) is not None]
    start_four(machine)

    machine.until_settled()
    skipped = lines_of(machine, events)
    mend(machine.folder)
    replay_all(machine)
    machine.until_settled()
    lines = lines_of(machine, events)

    for key in range(keys):
        in_order = [place for place in range(events) if place != bad_place(key, events)]
        assert done(skipped[key]) == in_order
    assert all(done(lines[key])[-1] == bad_place(key, events) for key in bad)
    assert machine.of("ordered").delivered == keys * events


@on_each_store
def test_a_blocked_destination_stands_still_until_it_is_mended_and_keeps_its_order(
    machine_of: MachineOf,
) -> None:
    keys, events = 20, 10
    machine = machine_of("blocking")
    publish(machine, keys, events)
    start_four(machine)

    until(lambda: len(machine.deliveries(Status.FAILED)) > 0, what="a dead letter")
    until(lambda: machine.of("ordered").in_flight == 0, what="nothing under way")
    stopped = machine.of("ordered").delivered
    machine.until_workers(4)
    still = machine.of("ordered").delivered
    mend(machine.folder)
    replay_all(machine)
    machine.until_settled()
    lines = lines_of(machine, events)

    assert stopped == still < keys * events - 2
    assert all(done(lines[key]) == list(range(events)) for key in range(keys))
    assert all(never_overlap(one) for one in lines.values())
