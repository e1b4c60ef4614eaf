"""A world whose processes track: past a store that goes away, into journals, and until they die."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from redrive.app.redrive import Redrive
from redrive.errors import BufferFullError, JournalError, StoreError
from redrive.journal.draining import drain_folder
from redrive.journal.folder import to_drain
from redrive.journal.writer import JournalWriter
from redrive.model.delivery import Leased
from redrive.model.event import EventId
from redrive.model.limits import Breaker
from redrive.model.outcome import Outcome, Succeeded
from redrive.policies.filter import Filter
from redrive.tracking.terms import Tracking
from tests.proof.checkers.check import Check
from tests.proof.checkers.endings import AllSettles, NoDrip, StopsInTime, WaitsForSomebody
from tests.proof.checkers.records import Arrived, Counted, Tracked
from tests.proof.checkers.tracking import TrackedAddsUp, TrackedInOrder
from tests.simulation.destinations import SimulatedDestination
from tests.simulation.machine import Machine
from tests.simulation.plan import DestinationPlan, Fault, Plan, TrackingPlan, draw
from tests.simulation.world import World

__all__ = ["TRACKING_CHECKS", "TrackingWorld", "draw_tracking"]

TRACKING_CHECKS: tuple[type[Check], ...] = (
    *(TrackedAddsUp, TrackedInOrder),
    *(AllSettles, WaitsForSomebody, StopsInTime, NoDrip),
)
"""What goes by the books of deliveries is left out: what is taken over is not entered there."""
_LONG_ENOUGH = 900.0
_MOST_AT_ONCE = 9
_UNSAVED = "a.debug"
_TYPES = ("a.x", "b.x", "b.x", "b.y", _UNSAVED)


def draw_tracking(seed: int) -> Plan:
    """Return the plan of a world whose processes track."""
    chance = Random(f"tracking of {seed}")  # noqa: S311 - a simulation
    plan = draw(seed, store="memory")
    duration = chance.choice([8.0, 20.0])
    trackers = chance.choice([1, 1, 2])
    is_weak = chance.random() < 0.6  # the network; without it every event is accounted for exactly

    def destination(name: str, pattern: str, order: str, batch: int | None) -> DestinationPlan:
        begin = chance.uniform(0.0, 0.8) * duration
        down = ((begin, begin + chance.uniform(0.5, 6.0)),) if chance.random() < 0.6 else ()
        return DestinationPlan(
            name=name,
            patterns=(pattern,),
            order=order,
            max_attempts=1000,
            base=0.5,
            cap=2.0,
            timeout=chance.choice([0.5, 2.0]),
            batch=batch,
            breaker=Breaker(failures=3, open_for="1s") if chance.random() < 0.3 else None,
            transient=chance.choice([0.0, 0.0, 0.3]),
            slow=chance.choice([0.0, 0.1]) if is_weak else 0.0,
            latency=chance.choice([0.001, 0.05]),
            down=down,
        )

    outages = [
        Fault(
            at=chance.uniform(0.0, 0.9) * duration,
            what="store down",
            amount=chance.uniform(0.2, 6.0),
        )
        for _ in range(chance.choice([0, 1, 2, 3]))
    ]
    ends = [
        Fault(
            at=chance.uniform(0.1, 0.9) * duration,
            what=chance.choice(["tracker crash", "tracker crash", "tracker stop"]),
            machine=chance.randrange(trackers),
        )
        for _ in range(chance.choice([0, 1, 3]))
    ]
    full = chance.uniform(0.0, 0.8) * duration
    # Fields of the drawn plan that are not named here are as in any world: leases, polls, drifts.
    return msgspec.structs.replace(
        plan,
        workers=chance.choice([1, 2]),
        publishers=1,
        operators=0,
        is_rerouted=False,
        events=0,
        duration=duration,
        tenants=0,
        generations=("default",),
        lease=6.0,
        far=0.0,
        ahead=0.0,
        terminal=0.0,
        poison=0.0,
        late_commits=0.0,
        duplicates=0.0,
        lost_requests=plan.lost_requests if is_weak else 0.0,
        lost_replies=plan.lost_replies if is_weak else 0.0,
        late_replies=plan.late_replies if is_weak else 0.0,
        drift=0.0,
        destinations=(
            destination("d0", "a.*", "none", 3),
            destination("d1", "*.x", "none", 20),
            destination("d2", "b.*", "park", None),
        ),
        next_release=(),
        rollouts=(),
        faults=tuple(sorted((*outages, *ends), key=lambda one: one.at)),
        tracking=TrackingPlan(
            trackers=trackers,
            events=chance.choice([60, 150]),
            capacity=chance.choice([4, 12, 60]),
            on_full=chance.choice(["spill", "spill", "drop_oldest", "raise"]),
            flush_limit=chance.choice([0.5, 3.0]),
            disk_full=(full, full + chance.uniform(0.5, 4.0))
            if chance.random() < 0.25
            else (0.0, 0.0),
        ),
    )


class TrackingWorld(World):
    """Runs a plan whose processes track, beside workers that deliver what is left to the store."""

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 - as any world
        super().__init__(*given)
        assert self._plan.tracking is not None
        self._terms = self._plan.tracking
        self._publishers = []
        self._folder = Path(tempfile.mkdtemp(prefix="redrive-journals-"))
        self._people = [
            _Person(one, self, self._machine(f"tracker-{one}", 40 + one))
            for one in range(self._terms.trackers)
        ]

    def _machine(self, name: str, number: int) -> _TrackingMachine:
        return _TrackingMachine(
            name,
            number,
            self._plan,
            loop=self._loop,
            history=self._history,
            clock=self._ground.clock_for(number),
            ids=self._ids,
            behaviour=self._behaviour,
            make_store=self._ground.make_store,
            lose_store=self._ground.lose_store,
        )

    async def run(self) -> None:
        try:
            with self._disk():
                for one in self._people:
                    one.machine.journal = self._folder / one.machine.name
                    self._loop.create_task(one.live())
                await super().run()
        finally:
            shutil.rmtree(self._folder)

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """Let the disk of the journals be full for a while."""
        append = JournalWriter.append
        begin, end = self._terms.disk_full

        def write(writer: JournalWriter, records: Sequence[Any]) -> None:
            if begin <= self._loop.time() < end:
                raise JournalError("the disk is full")
            append(writer, records)
            self._history.note(self._loop.time(), f"journaled {len(records)} records")

        with patch.object(JournalWriter, "append", write):
            yield

    def _strike(self, fault: Fault) -> None:
        match fault.what:
            case "tracker crash":
                self._people[fault.machine].die()
            case "tracker stop":
                self._people[fault.machine].stop()
            case _:
                super()._strike(fault)

    def _look(self, *, is_final: bool = False) -> None:
        self._history.write(self._ground.look(is_final=is_final))

    def _bound(self) -> float:
        return self._loop.time() + _LONG_ENOUGH

    async def _heal(self) -> None:
        await super()._heal()
        for one in self._people:
            await one.ended.wait()

    def _keep(self, bound: float) -> Callable[[Redrive], Coroutine[Any, Any, None]]:
        """Give the store what the journals still have, and wait until all is delivered."""

        async def life(app: Redrive) -> None:
            store = await app._store()  # noqa: SLF001 - as the command to drain has it
            while self._loop.time() < bound:
                folders = [self._folder / one.machine.name for one in self._people]
                for one in folders:
                    with suppress(StoreError):
                        await drain_folder(one, store)
                _, left = self._ground.unsettled()
                if not left and not any(to_drain(one) for one in folders):
                    break
                letters = [one.id for one in left if one.is_dead_letter]
                if letters:
                    await app.operations.replay(letters, by="keeper")
                await self._loop.pause(1.0)
            await app.close()

        return life


class _Person:
    """Somebody's code that tracks; a new process goes on where the last one ended."""

    def __init__(self, number: int, world: TrackingWorld, machine: _TrackingMachine) -> None:
        self.machine = machine
        self.ended = asyncio.Event()
        self._world = world
        self._history = world._history  # noqa: SLF001 - a part of it
        self._loop = world._loop  # noqa: SLF001 - as above
        self._plan = world._plan  # noqa: SLF001 - as above
        self._terms = world._terms  # noqa: SLF001 - as above
        self._chance = Random(f"tracker {number} of {self._plan.seed}")  # noqa: S311 - a simulation
        self._left = self._terms.events
        self._lives = 0
        self._app: Redrive | None = None
        self._stopping: asyncio.Event | None = None

    async def live(self) -> None:
        """Have one process after the other, until everything is tracked."""
        while self._left > 0:
            self._lives += 1
            self.machine.boot(self._track)
            await self.machine.gone.wait()
            await self._loop.pause(self._chance.random())
        self.ended.set()

    def stop(self) -> None:
        """Have the process end in order."""
        if self._stopping is not None:
            self._stopping.set()

    def die(self) -> None:
        """Kill the process, if there is one."""
        app, self._app = self._app, None
        if app is not None and self.machine.is_alive:
            self._count(app, is_killed=True)
            self.machine.die("it is killed")
            _let_go(self.machine.journal)

    async def _track(self, app: Redrive) -> None:
        self.machine.declare(app)
        self._app, self._stopping = app, asyncio.Event()
        life, chance, plan = f"{self.machine.name} {self._lives}", self._chance, self._terms
        stop = asyncio.Event()
        sender = app.tracking._make_sender()  # noqa: SLF001 - its thread is a task here
        sending = self._loop.create_task(sender.run(stop))
        while self._left > 0 and not self._stopping.is_set():
            for _ in range(min(self._left, chance.randint(1, _MOST_AT_ONCE))):
                self._left -= 1
                event_type, key = chance.choice(_TYPES), chance.choice([None, "k0", "k1"])
                with suppress(BufferFullError):
                    tracked = app.track(event_type, {"n": self._left}, key=key)
                    self._history.write(
                        Tracked(
                            at=self._loop.time(),
                            life=life,
                            event_id=EventId(tracked.event_id),
                            event_type=event_type,
                            key=key,
                        )
                    )
            rest = chance.random() * 2 * self._plan.duration * _MOST_AT_ONCE / plan.events / 2
            await self._loop.pause(rest)
        stop.set()
        await sending
        self._app = None
        self._count(app, is_killed=False)
        await app.close()

    def _count(self, app: Redrive, *, is_killed: bool) -> None:
        figures, plan = app.tracking.figures(), self._plan
        is_weak = any((plan.lost_requests, plan.lost_replies, plan.late_replies))
        is_exact = not (is_weak or any(one.slow for one in plan.destinations))
        self._history.write(
            Counted(
                at=self._loop.time(),
                life=f"{self.machine.name} {self._lives}",
                tracked=figures.tracked,
                waiting=figures.waiting,
                # Nobody wants them, so that they cannot be missed.
                dropped=sum(figures.dropped.values()) - figures.dropped.get("unrouted", 0),
                is_killed=is_killed,
                is_exact=is_exact,
                # A worker's lease runs out beside a store that is down.
                is_once=is_exact and not any(one.what == "store down" for one in plan.faults),
            )
        )


class _TrackingMachine(Machine):
    """A process that tracks into a journal of its own, if it has one."""

    journal: Path | None = None

    def settings(self) -> dict[str, Any]:
        plan = self._plan.tracking
        assert plan is not None
        terms = Tracking(
            rate=None,
            capacity=plan.capacity,
            on_full=plan.on_full,
            flush_limit=timedelta(seconds=plan.flush_limit),
            filter=Filter(never_save=(_UNSAVED,)),
        )
        return {"tracking": terms, "journal_sync": "never"}

    def ports(self) -> dict[str, Any]:
        return {"journal": self.journal, "tracks_inline": True}

    def transport(self, plan: DestinationPlan) -> SimulatedDestination:
        return _Destination(
            plan,
            self._behaviour,
            self._history,
            machine=self.name,
            die=lambda: self.die("a delivery kills it"),
            block=self.block,
        )


class _Destination(SimulatedDestination):
    """Takes down what has arrived."""

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        outcomes = await super().send(deliveries)
        for leased, outcome in zip(deliveries, outcomes, strict=True):
            if isinstance(outcome, Succeeded):
                event_id = EventId(leased.event.id)
                at = self._behaviour.loop.time()
                self._history.write(
                    Arrived(at=at, destination=leased.destination, event_id=event_id)
                )
        return outcomes


def _let_go(folder: Path | None) -> None:
    """Close what a dead process had open there, as the system does: its locks go with it.

    What closes it once more, when its tasks are collected, closes nothing else.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    for one in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            if folder is not None and one.readlink().is_relative_to(folder):
                os.dup2(nothing, int(one.name))
    os.close(nothing)
