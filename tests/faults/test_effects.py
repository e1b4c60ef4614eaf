"""`kill -9` between an effect and its settlement: the ledger has everything exactly once.

With `REDRIVE_TEST_LONG=1` everything has its full size.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from redrive import Operations
from redrive.model.delivery import Status
from redrive.model.settlement import FailureReason
from tests.effects.ledger import Ledger
from tests.faults.machine import Child, Machine, on_each_store
from tests.faults.mortality import POINTS
from tests.waiting import spend_at_once

MachineOf = Callable[[str], Machine]
KILLS = 50 if os.environ.get("REDRIVE_TEST_LONG") else 5
PER_KILL = 20


class Books:
    """A machine whose workers keep a ledger, and the numbers that were published."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.published = 0
        self._ledger = Ledger(machine.store)
        machine.figures()  # the store is there before the ledger is
        asyncio.run(self._ledger.create())

    def publish(self, count: int, **marks: object) -> int:
        """Publish so many more numbers; return the first of them."""
        first = self.published
        self.published += count
        self.machine.publish(
            [{"number": number, **marks} for number in range(first, self.published)]
        )
        return first

    def numbers(self) -> Counter[int]:
        return asyncio.run(self._ledger.numbers())

    def start_worker(self) -> Child:
        return self.machine.start_worker(REDRIVE_TEST_MORTAL="1")

    def finish(self) -> None:
        """Let one worker do the rest, and send again what the kills had condemned."""
        worker = self.start_worker()
        self.machine.until_settled()
        condemned = self.machine.deliveries(Status.FAILED)
        assert {one.reason for one in condemned} <= {FailureReason.CRASH_LOOP}
        if condemned:
            ids = [one.id for one in condemned]
            self.machine.app.sync.operate(Operations.replay, ids, by="ada", why="it was killed")
            self.machine.until_settled()
        worker.kill()

    def assert_exactly_once(self) -> None:
        assert self.numbers() == Counter(range(self.published))
        assert self.machine.of("books").delivered == self.published


@on_each_store
@pytest.mark.timeout(240 + KILLS * 30)
def test_an_effect_happens_exactly_once_wherever_its_worker_dies(machine_of: MachineOf) -> None:
    books = Books(machine_of("bookkeeping"))
    doomed: dict[int, str] = {}

    for kill in range(KILLS):
        point = POINTS[kill % len(POINTS)]
        books.publish(2)
        doomed[books.publish(1, dies=point)] = point
        victim = books.start_worker()
        assert victim.wait() < 0
    books.finish()

    books.assert_exactly_once()
    for number, point in doomed.items():
        story = books.machine.story(number)
        assert story.count("died") == 1
        # What was committed before the kill is known to be done, and is not begun again.
        assert (story[-1] == "died") is (point == "committed")


@on_each_store
@pytest.mark.timeout(240 + KILLS * 30)
def test_an_effect_happens_exactly_once_whenever_its_worker_is_killed(
    machine_of: MachineOf,
) -> None:
    books = Books(machine_of("bookkeeping"))
    pauses = random.Random(7)  # noqa: S311 - a choice, no secret

    for kill in range(KILLS):
        books.publish(PER_KILL)
        victim = books.start_worker()
        books.machine.until_written("begun", kill * PER_KILL + 3)
        spend_at_once(pauses.uniform(0, 0.1))
        victim.kill()
    books.finish()

    books.assert_exactly_once()
