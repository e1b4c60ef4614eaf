"""The grounds a simulated system stands on: where its store is, and what can happen to it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Protocol, cast

from redrive.model.delivery import Delivery, Status
from redrive.model.destination import Destination
from redrive.store import Query, Store
from redrive.stores.memory import MemoryStore
from tests.proof.checkers.records import ClockSet, Looked, Silenced
from tests.simulation.history import History
from tests.simulation.late import with_late_commits
from tests.simulation.loop import SimulationLoop
from tests.simulation.machine import Machine
from tests.simulation.network import Link, Server, at_once
from tests.simulation.plan import Plan
from tests.simulation.ports import HostClock

__all__ = ["Ground", "NetworkGround"]

_ALL = 100_000


class Ground(Protocol):
    """Where the store is."""

    ways: Counter[str]
    """How often each call went which way, on a store that has several."""

    def clock_for(self, number: int) -> HostClock:
        """Return the clock of a new machine."""

    def begin(self, destinations: list[Destination]) -> None:
        """Make the store, with the destinations registered."""

    def make_store(self, machine: Machine) -> Store:
        """Return the store as a process sees it."""

    def lose_store(self, machine: Machine) -> None:
        """Let go of what a dead process had open."""

    def fail(self, *, is_down: bool) -> None:
        """Let the store be out of reach, or back."""

    def step(self, by: timedelta, machines: list[Machine]) -> None:
        """Set the clock that the store goes by."""

    def step_machine(self, machine: Machine, by: timedelta) -> None:
        """Set the clock of a machine."""

    def heal(self) -> None:
        """Let nothing go wrong any more."""

    def look(self, *, is_final: bool = False) -> Looked:
        """Read everything."""

    def unsettled(self) -> tuple[datetime, list[Delivery]]:
        """Return the store's time, and what is pending, in flight or a dead letter."""

    def end(self) -> None:
        """Let go of everything."""


class NetworkGround:
    """A store in memory stands for a server: its own clock decides, and it is reached by links."""

    def __init__(
        self,
        plan: Plan,
        loop: SimulationLoop,
        history: History,
        make: type[MemoryStore] = MemoryStore,
    ) -> None:
        self.ways: Counter[str] = Counter()
        self._plan = plan
        self._loop = loop
        self._history = history
        self._clock = HostClock(loop, ahead=plan.ahead)
        late = with_late_commits(make) if plan.late_commits else make
        self._store = late(self._clock, 20)
        self._server = Server(plan, self._store, loop=loop, history=history, now=self._clock.now)

    def clock_for(self, number: int) -> HostClock:
        drift = self._plan.drift if number % 2 else 0.0
        return HostClock(self._loop, drift=drift, ahead=self._plan.ahead)

    def begin(self, destinations: list[Destination]) -> None:
        self._server.perform("register", {"destinations": destinations})

    def make_store(self, machine: Machine) -> Store:
        return cast("Store", Link(self._server, machine.name))

    def lose_store(self, machine: Machine) -> None:
        pass

    def fail(self, *, is_down: bool) -> None:
        self._server.is_down = is_down

    def step(self, by: timedelta, machines: list[Machine]) -> None:
        self._history.write(ClockSet(at=self._loop.time(), was=self._clock.now()))
        self._clock.step(by)
        for machine in machines:
            why = "the clock of the store was set"
            self._history.write(Silenced(at=self._loop.time(), machine=machine.name, why=why))

    def step_machine(self, machine: Machine, by: timedelta) -> None:
        machine.clock.step(by)

    def heal(self) -> None:
        self._server.heal()

    def look(self, *, is_final: bool = False) -> Looked:
        store = self._store
        self._server.follower.go_on()
        return Looked(
            at=self._loop.time(),
            now=self._clock.now(),
            deliveries=tuple(one for status in Status for one in self._in(status)),
            # What is there, though a planted bug does not let it be read.
            events=tuple(
                one.event for one in at_once(MemoryStore.read_events(store, limit=_ALL)).events
            ),
            figures=at_once(store.figures()),
            audit=at_once(store.audit(limit=_ALL)),
            replays=at_once(store.replays(limit=_ALL)),
            is_final=is_final,
        )

    def unsettled(self) -> tuple[datetime, list[Delivery]]:
        found = [
            one
            for status in (Status.PENDING, Status.IN_FLIGHT, Status.FAILED)
            for one in self._in(status)
            if one.resolution is None
        ]
        return self._clock.now(), found

    def end(self) -> None:
        pass

    def _in(self, status: Status) -> tuple[Delivery, ...]:
        query = Query(status=status, with_resolved=True)
        found: tuple[Delivery, ...] = at_once(self._store.find(query, limit=_ALL)).deliveries
        return found
