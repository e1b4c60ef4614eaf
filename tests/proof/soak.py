"""The soak: a steady load for minutes, one fault after the other, and then every book compared.

A store joins by a bed of its own, with the faults that only it can have.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from redrive import Operations, Query, StoreError
from redrive.model.delivery import Delivery, Status
from redrive.model.destination import Destination, Order
from tests.faults.disk import Disk
from tests.faults.machine import Child, Machine, until
from tests.proof.checkers import Violation
from tests.proof.judging import Books, judge
from tests.servers.postgres import DURABLE, Cluster
from tests.waiting import spend_at_once

__all__ = ["BEDS", "Verdict", "soak"]

DESTINATIONS = (
    Destination(name="steady", patterns=("thing.*",)),
    Destination(name="ordered", patterns=("thing.*",), order=Order.PARK),
)
_MOST_ATTEMPTS = 20
_WORKERS = 2
_PAGE = 1_000
_DRAINED_SECONDS = 180
_FREEZE_SECONDS = 5


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the books say: how much was acknowledged, and what is wrong, which is nothing."""

    acknowledged: int
    faults: dict[str, int]
    lost: int
    failed: int
    out_of_order: int
    over_the_limit: int
    broken: tuple[Violation, ...]

    @property
    def is_clean(self) -> bool:
        """Whether every invariant held."""
        wrong = (self.lost, self.failed, self.out_of_order, self.over_the_limit)
        return not any(wrong) and not self.broken


Fault = Callable[["Scene"], None]


class Bed(NamedTuple):
    """Where a soak happens: the store's URL, if it is no file, and the faults of its own."""

    url: str | None
    faults: tuple[Fault, ...]


class Scene:
    """The processes of a soak, and the faults that befall them."""

    def __init__(self, machine: Machine, rate: int) -> None:
        self.machine = machine
        self._rate = rate
        self.workers = [self._worker() for _ in range(_WORKERS)]
        self.publisher = self._publisher()

    def _worker(self) -> Child:
        return self.machine.start_worker("--concurrency", "20", REDRIVE_TEST_DISK="on demand")

    def _publisher(self) -> Child:
        return self.machine.start("-m", "tests.proof.paced", str(self._rate))

    def kill_worker(self) -> None:
        """`kill -9` of the worker that runs longest; another takes its place."""
        self.workers.pop(0).kill()
        self.workers.append(self._worker())

    def kill_publisher(self) -> None:
        """`kill -9` of the publisher, wherever it is."""
        self.publisher.kill()
        self.publisher = self._publisher()

    def restart_worker(self) -> None:
        """SIGTERM: finish, give back the rest, and let another begin."""
        old = self.workers.pop(0)
        old.send(signal.SIGTERM)
        old.wait()
        self.workers.append(self._worker())

    def freeze_worker(self) -> None:
        """SIGSTOP past the lease, then SIGCONT."""
        zombie = self.workers[0]
        self.machine.freeze(zombie)
        spend_at_once(_FREEZE_SECONDS)
        zombie.send(signal.SIGCONT)

    def end(self) -> None:
        """Let the publisher end, and mend what is broken."""
        self.publisher.kill()
        while len(self.workers) < _WORKERS:
            self.workers.append(self._worker())
        for place, worker in enumerate(self.workers):
            if worker.process.poll() is not None:
                self.workers[place] = self._worker()


COMMON: tuple[Fault, ...] = (
    Scene.kill_worker,
    Scene.kill_publisher,
    Scene.restart_worker,
    Scene.freeze_worker,
)


def fill_disk(scene: Scene) -> None:
    """Let the disk be full for a while."""
    disk = Disk(scene.machine.folder)
    disk.fill()
    spend_at_once(3)
    disk.free()


@contextmanager
def _file() -> Iterator[Bed]:
    yield Bed(None, (fill_disk,))


@contextmanager
def _postgres() -> Iterator[Bed]:
    cluster = Cluster(DURABLE)

    def crash_server(_: Scene) -> None:
        """Stop the server as a crash does, and start it again."""
        cluster.stop(is_crash=True)
        spend_at_once(1)
        cluster.start()

    try:
        cluster.start()
        with cluster.database.schema() as url:
            yield Bed(url, (crash_server,))
    finally:
        cluster.remove()


BEDS: dict[str, Callable[[], AbstractContextManager[Bed]]] = {
    "sqlite": _file,
    "postgres": _postgres,
}


def soak(
    bed: Bed,
    folder: Path,
    *,
    seconds: float,
    rate: int = 200,
    fault_every: float = 60,
    seed: int = 0,
    told: Callable[[float], None] = lambda _: None,
) -> Verdict:
    """Publish at a rate, let faults happen, heal, drain, and compare."""
    machine = Machine(folder, "soaked", bed.url)
    rng = random.Random(seed)  # noqa: S311 - a soak that can be repeated
    happened: Counter[str] = Counter()
    try:
        machine.publish([], "thing.made")
        scene = Scene(machine, rate)
        begun = time.monotonic()
        next_fault = begun + fault_every / 2
        while (now := time.monotonic()) < begun + seconds:
            told(now - begun)
            if now >= next_fault:
                # Each kind once before any kind twice, in an order of chance.
                faults = sorted(
                    (*COMMON, *bed.faults), key=lambda one: (happened[one.__name__], rng.random())
                )
                happened[faults[0].__name__] += 1
                faults[0](scene)
                next_fault += fault_every
            spend_at_once(0.1)
        scene.end()
        until(lambda: _is_settled(machine), within=_DRAINED_SECONDS, what="all work settled")
        return _judge(machine, happened)
    finally:
        machine.close()


def _is_settled(machine: Machine) -> bool:
    try:
        return machine.is_settled()
    except StoreError:
        return False


def _judge(machine: Machine, faults: Counter[str]) -> Verdict:
    tried, acknowledged = _book(machine.folder / "book")
    events = machine.app.sync.operate(Operations.events, limit=10_000_000)
    numbers = [int(msgspec.json.decode(one.event.payload)["number"]) for one in events]
    keys = {number: one.event.key for number, one in zip(numbers, events, strict=True)}
    deliveries = [one for status in Status for one in _deliveries(machine, status)]
    effects = (machine.journal("done"), machine.journal("kept"))
    books = Books(
        tried=tried,
        acknowledged=acknowledged,
        events=events,
        deliveries=deliveries,
        figures=machine.figures(),
        stuck=machine.app.sync.operate(Operations.stuck),
        miscounts=machine.app.sync.operate(Operations.recount),
    )
    return Verdict(
        acknowledged=len(acknowledged),
        faults=dict(faults),
        lost=sum(not done[number] for done in effects for number in acknowledged),
        failed=sum(one.status is Status.FAILED for one in deliveries),
        out_of_order=_out_of_order(machine, numbers, keys),
        over_the_limit=sum(one.attempts > _MOST_ATTEMPTS for one in deliveries),
        broken=tuple(judge(books, DESTINATIONS)),
    )


def _book(path: Path) -> tuple[set[int], set[int]]:
    tried: set[int] = set()
    acknowledged: set[int] = set()
    for line in path.read_text("utf-8").splitlines():
        word, number = line.split()
        (tried if word == "tried" else acknowledged).add(int(number))
    return tried, acknowledged


def _deliveries(machine: Machine, status: Status) -> list[Delivery]:
    found: list[Delivery] = []
    cursor = None
    query = Query(status=status, with_resolved=True)
    while True:
        page = machine.app.sync.operate(Operations.deliveries, query, cursor=cursor, limit=_PAGE)
        found += page.deliveries
        cursor = page.next_cursor
        if cursor is None:
            return found


def _out_of_order(machine: Machine, numbers: Sequence[int], keys: dict[int, str | None]) -> int:
    """Count the events that were first kept before an earlier one of their key was."""
    position = {number: place for place, number in enumerate(numbers)}
    last: dict[str | None, int] = {}
    wrong = 0
    for number in machine.journal("kept"):  # in the order of their first time
        place = position.get(number, -1)
        wrong += place < last.get(keys.get(number), -1)
        last[keys.get(number)] = max(place, last.get(keys.get(number), -1))
    return wrong
