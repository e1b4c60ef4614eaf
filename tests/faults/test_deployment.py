"""Deployments under load: a website first, workers one by one, some killed, and all of it back."""

from __future__ import annotations

import math
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from redrive import NewEvent, Operations, Receipt, Redrive
from redrive.model.audit import AuditEntry
from redrive.store import Figures
from tests.faults import apps
from tests.faults.machine import Child, Machine, on_each_store, until
from tests.scale import IS_LONG
from tests.waiting import spend_at_once

MachineOf = Callable[[str], Machine]
WORKERS, ROUNDS = (4, 5) if IS_LONG else (1, 1)
"""A process takes a second to start, so the short form has no more of them than it must."""
KEYS = 5
SECONDS = 900 if IS_LONG else 240
MOST_IN_A_SECOND = 150 + 15 + 100 + 10
"""The looser of the rates with its burst, and retries of what was killed, which have their own."""


class Published(NamedTuple):
    """An event with a number, when its publish began and had returned, and who was to get it."""

    number: int
    key: str | None
    kind: str
    begun: float
    returned: float
    destinations: tuple[str, ...]


class Website:
    """Publishes without a pause, on a thread of its own, as the new release does it."""

    def __init__(self, machine: Machine) -> None:
        self.published: list[Published] = []
        self._app = machine.app
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @contextmanager
    def open(self) -> Iterator[Website]:
        self._thread.start()
        try:
            yield self
        finally:
            self._is_closing.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._is_closing.is_set():
            self._publish()
            spend_at_once(0.05)

    def _publish(self) -> None:
        """Publish one event for each of some keys, and one of a type that is new."""
        first = len(self.published)
        kinds = ["thing.made"] * KEYS + ["extra.made"]
        keys = [*(f"key-{place}" for place in range(KEYS)), None]
        begun = apps.clock.now().timestamp()
        events = [
            NewEvent(type=kind, key=key, payload={"number": first + place})
            for place, (kind, key) in enumerate(zip(kinds, keys, strict=True))
        ]
        receipts: Sequence[Receipt] = self._app.sync.publish_many(events)
        returned = apps.clock.now().timestamp()
        self.published += [
            Published(first + place, keys[place], kinds[place], begun, returned, one.destinations)
            for place, one in enumerate(receipts)
        ]


class Fleet:
    """The workers, each of some release, and somebody who looks at them and declares nothing."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.looker = Redrive(machine.store)
        self._workers: list[tuple[str, Child]] = []

    def start(self, release: str) -> None:
        """Start a worker, and wait until it has declared what it does."""
        known = self._alive()
        child = self._machine.start_worker(REDRIVE_TEST_RELEASE=release)
        self._workers.append((release, child))
        until(lambda: bool(self._alive() - known), what="a worker is heard of")

    def stop(self, release: str) -> None:
        child = self._take(release)
        child.send(signal.SIGTERM)
        child.wait()

    def kill(self, release: str) -> None:
        self._take(release).kill()

    def crash(self, release: str) -> None:
        """Start a worker that ends as soon as it has declared what it does."""
        assert self._machine.start_worker(REDRIVE_TEST_RELEASE=release).wait() == 1

    def keeps(self, order: str) -> bool:
        """Tell whether what the latest worker has brought into force keeps this order."""
        return any(f'→ "{order}"' in one.detail for one in self.changes()[-1:])

    def changes(self) -> list[AuditEntry]:
        """Return the changes of whole declarations, the first in front."""
        return [one for one in self.audit() if one.action == "declare" and "worker" in one.why]

    def audit(self) -> list[AuditEntry]:
        return list(reversed(self.looker.sync.operate(Operations.audit, limit=500)))

    def figures(self) -> Figures:
        return self.looker.sync.operate(Operations.status)

    def is_drained(self) -> bool:
        return all(one.pending + one.in_flight == 0 for one in self.figures().destinations)

    def _take(self, release: str) -> Child:
        place = next(at for at, (one, _) in enumerate(self._workers) if one == release)
        return self._workers.pop(place)[1]

    def _alive(self) -> set[str]:
        return {one.id for one in self.figures().workers}


@pytest.mark.timeout(SECONDS + 60)
@on_each_store
def test_releases_roll_out_and_back_under_load(machine_of: MachineOf) -> None:
    machine = machine_of("released")
    fleet, website = Fleet(machine), Website(machine)
    for _ in range(WORKERS):
        fleet.start("1")
    with website.open():
        for number in range(ROUNDS - 1):
            deploy(machine, fleet, number)
            fleet.start("1")
            roll_back(fleet)
            crash_in_a_loop(fleet)
        deploy(machine, fleet, ROUNDS)
        restored_at = remove_and_restore(fleet)
        roll_back(fleet)
        published = len(website.published)
        until(lambda: len(website.published) > published, what="something more was published")
    until(fleet.is_drained, what="all was delivered", within=SECONDS)

    story = Story(machine.folder, website.published, fleet.audit(), restored_at=restored_at)
    assert story.missing() == []
    assert story.unrouted() == []
    assert story.was_ordered()
    assert story.out_of_order() == []
    assert story.most_in_a_second() <= MOST_IN_A_SECOND
    assert len(fleet.changes()) <= 4 * ROUNDS
    [shop] = fleet.figures().destinations
    assert (shop.delivered, shop.failed, shop.pending) == (story.delivered(), 0, 0)
    fleet.looker.sync.close()


def deploy(machine: Machine, fleet: Fleet, number: int) -> None:
    """Workers of the new release come one by one, one of them is killed, the old ones go."""
    fleet.start("2")
    for _ in range(WORKERS - 1):
        fleet.start("2")
        fleet.kill("2")
        fleet.start("2")
        fleet.stop("1")
    fleet.stop("1")
    until(lambda: fleet.keeps("park"), what="the new release is in force")
    old = apps.released(machine.folder, release="1")
    old.sync.publish("thing.made", {"number": -2 - number})
    old.sync.close()
    assert fleet.keeps("park")


def roll_back(fleet: Fleet) -> None:
    """The others of the old release come back; it is in force when the new one is killed."""
    assert fleet.keeps("park")
    for _ in range(WORKERS - 1):
        fleet.start("1")
        assert fleet.keeps("park")
    for _ in range(WORKERS - 1):
        fleet.stop("2")
    fleet.kill("2")
    until(lambda: fleet.keeps("none"), what="the old release is in force")


def crash_in_a_loop(fleet: Fleet) -> None:
    """A release that cannot stay up is in force once, until the workers there are take over."""
    fleet.crash("3")
    until(lambda: fleet.keeps("none"), what="the release that works is in force")
    fleet.crash("3")
    assert fleet.keeps("none")


def remove_and_restore(fleet: Fleet) -> float:
    """A person removes the destination; a worker that starts does not bring it back, they do."""
    operate = fleet.looker.sync.operate
    operate(Operations.remove_destination, "shop", by="ada", why="a mistake")
    fleet.start("1")
    assert fleet.looker.sync.publish("thing.made", {"number": -1}).destinations == ()
    operate(Operations.restore_destination, "shop", by="ada", why="it was one")
    return apps.clock.now().timestamp()


class Attempt:
    """A try of an event: when it was claimed, and its handler began and ended, if it did."""

    def __init__(self, claimed: float) -> None:
        self.claimed = claimed
        self.begun = self.ended = math.inf


class Story:
    """What the workers have written down, held against what was published and declared."""

    def __init__(
        self,
        folder: Path,
        published: Sequence[Published],
        audit: Sequence[AuditEntry],
        *,
        restored_at: float,
    ) -> None:
        self._published = published
        self._audit = audit
        self._restored_at = restored_at
        self._declared: list[tuple[float, str]] = []
        self._attempts: dict[int, list[Attempt]] = defaultdict(list)
        current: dict[tuple[int, str], Attempt] = {}
        for line in (folder / "deployments").read_text("utf-8").splitlines():
            what, number, at, who, process = line.split()
            place = int(number), process
            match what:
                case "declared":
                    self._declared.append((float(at), who))
                case "claimed":
                    current[place] = Attempt(float(at))
                    self._attempts[int(number)].append(current[place])
                case "begun":
                    current[place].begun = float(at)
                case "ended":
                    current[place].ended = float(at)

    def missing(self) -> list[int]:
        """Return what was to be delivered, and whose handler has never ended."""
        return [
            one.number
            for one in self._published
            if one.destinations and math.isinf(self._ended(one.number))
        ]

    def delivered(self) -> int:
        """Return how many events a handler has dealt with, however often."""
        return sum(not math.isinf(self._ended(number)) for number in list(self._attempts))

    def unrouted(self) -> list[Published]:
        """Return what was wanted all the while it was published, and nobody was given."""
        [removed_at] = [one.at.timestamp() for one in self._audit if one.action == "remove"]
        is_wanted = list(self._stretches('→ "extra.*"', '"extra.*" → nothing'))
        return [
            one
            for one in self._published
            if not one.destinations
            and not (one.returned >= removed_at and one.begun <= self._restored_at)
            and (
                one.kind == "thing.made"
                or any(begin <= one.begun and one.returned <= end for begin, end in is_wanted)
            )
        ]

    def was_ordered(self) -> bool:
        """Tell whether there was a stretch in which order was surely in force."""
        return any(
            begin < end
            for ordered in ("park", "skip")
            for begin, end in self._stretches(f'→ "{ordered}"', f'order: "{ordered}" →')
        )

    def out_of_order(self) -> list[tuple[int, int]]:
        """Return pairs of a key of which the one began before the other had ended, or too early."""
        found: list[tuple[int, int]] = []
        for ordered in ("park", "skip"):
            for begin, end in self._stretches(f'→ "{ordered}"', f'order: "{ordered}" →'):
                for key in {one.key for one in self._published if one.key is not None}:
                    found += self._out_of_order(key, begin, end)
        return found

    def _out_of_order(self, key: str, begin: float, end: float) -> Iterator[tuple[int, int]]:
        numbers = [one.number for one in self._published if one.key == key and one.destinations]
        for number in numbers:
            for attempt in self._attempts[number]:
                if not begin <= attempt.claimed <= attempt.begun < end:
                    continue
                for other in numbers:
                    is_late = other < number and self._ended(other) > attempt.begun
                    overlaps = other != number and any(
                        one.begun < attempt.begun < one.ended < math.inf
                        for one in self._attempts[other]
                    )
                    if is_late or overlaps:
                        yield number, other

    def most_in_a_second(self) -> int:
        """Return how many were claimed within a second, at most."""
        times = sorted(one.claimed for some in self._attempts.values() for one in some)
        first = most = 0
        for place, at in enumerate(times):
            while times[first] < at - 1:
                first += 1
            most = max(most, place - first + 1)
        return most

    def _ended(self, number: int) -> float:
        return min((one.ended for one in self._attempts[number]), default=math.inf)

    def _stretches(self, begins: str, ends: str) -> Iterator[tuple[float, float]]:
        """Return the times for which something was surely in force.

        From when the one who brought it had heard so, until somebody set about another.
        """
        begun: float | None = None
        for one in self._audit:
            at = one.at.timestamp()
            if one.action == "declare" and ends in one.detail and begun is not None:
                yield begun, at
                begun = None
            if one.action == "declare" and begins in one.detail:
                heard = (told for told, who in self._declared if told >= at and who in one.why)
                begun = min(heard, default=math.inf)
        if begun is not None:
            yield begun, math.inf
