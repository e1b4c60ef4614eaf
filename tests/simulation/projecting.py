"""A world whose workers project: they read the log, make read models of it, and park what fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

from redrive.app.redrive import Redrive
from redrive.errors import Terminal, Transient
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.event import Event
from redrive.operations import Operations
from redrive.policies.retry import Retry
from redrive.store import Query
from redrive.transports.projection import ReadModel
from tests.proof.checkers.accounts import NoPhantom, NothingLost
from tests.proof.checkers.check import Check
from tests.proof.checkers.endings import AllSettles, NoDrip, StopsInTime, WaitsForSomebody
from tests.proof.checkers.projections import LogReadWhole, ModelRight, ReadersKeep
from tests.proof.checkers.records import GivenUp
from tests.simulation.disk import HostGround
from tests.simulation.history import History
from tests.simulation.loop import SimulationLoop
from tests.simulation.machine import Machine
from tests.simulation.people import Operator
from tests.simulation.plan import ProjectionPlan
from tests.simulation.world import World

__all__ = ["PROJECTING_CHECKS", "ProjectingWorld"]

PROJECTING_CHECKS: tuple[type[Check], ...] = (
    *(NothingLost, NoPhantom, LogReadWhole, ModelRight, ReadersKeep),
    *(AllSettles, WaitsForSomebody, StopsInTime, NoDrip),
)
"""What goes by the books of deliveries is left out: what is handed over is not entered there."""
_LONG_ENOUGH = 600.0
"""By when all must be read and applied once nothing goes wrong any more, in seconds."""
_MOST_CYCLES = 6
_REMAKING, _STRICT = 0.4, 0.2


class ProjectingWorld(World):
    """Runs a plan of projections on the real SQLite store, which alone undoes what was not kept."""

    _ground: HostGround

    def _machine(self, name: str, number: int) -> Machine:
        return _ProjectingMachine(
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

    def _operator(self, number: int) -> _Operator:
        return _Operator(number, self._plan, self._history, self._loop)

    def _look(self, *, is_final: bool = False) -> None:
        if is_final:
            self._history.write(self._ground.look(is_final=True))
        for record in self._ground.models(self._plan.projections, is_final=is_final):
            self._history.write(record)

    def _bound(self) -> float:
        return self._loop.time() + self._set_back + _LONG_ENOUGH

    @property
    def _set_back(self) -> float:
        """By how many seconds clocks were set back."""
        return sum(max(0.0, -one.amount) for one in self._plan.faults if "clock" in one.what)

    def _keep(self, bound: float) -> Callable[[Redrive], Coroutine[Any, Any, None]]:
        """Resume what is paused, and send dead letters again until nothing is left to do."""

        async def life(app: Redrive) -> None:
            operations = app.operations
            # Leases, and when the dead were last heard of, are ahead of a clock that was set back.
            await self._skip(self._set_back + self._plan.lease)
            for one in self._plan.names:
                await operations.resume(one, by="keeper")
            while self._loop.time() < bound:
                self._look()
                projections = await operations.projections()
                _, left = self._ground.unsettled()  # now: what was handed over meanwhile, too
                if not left and all(
                    one.is_caught_up and not one.checkpoint.is_reset for one in projections
                ):
                    break
                await self._see_to([one for one in left if one.is_dead_letter], operations)
                await self._loop.pause(1.0)
            await app.close()

        return life

    async def _see_to(self, letters: Sequence[Delivery], operations: Operations) -> None:
        hopeless = [
            one for one in letters if one.reason == "terminal" or len(one.cycles) > _MOST_CYCLES
        ]
        for one in hopeless:
            _give_up(self._history, self._loop, one)
        await operations.resolve([one.id for one in hopeless], by="keeper", why="it will never do")
        rest = [one.id for one in letters if one not in hopeless]
        await operations.replay(rest, by="keeper")


def _give_up(history: History, loop: SimulationLoop, letter: Delivery) -> None:
    """Take down that an event may never be applied, before somebody sees to that."""
    history.write(GivenUp(at=loop.time(), projection=letter.destination, event_id=letter.event_id))


class _ProjectingMachine(Machine):
    """A process that declares projections."""

    def declare(self, app: Redrive) -> None:
        for one in self._plan.projections:
            for version in one.titles:
                model = _Model(one, version, self)
                app.projection(
                    *one.patterns,
                    name=one.name,
                    version=version,
                    partitions=one.partitions_of(version),
                    on_failure=one.on_failure,
                    truncate=model.truncate,
                    retry=Retry(max_attempts=one.max_attempts, base=timedelta(seconds=one.base)),
                    timeout=timedelta(seconds=min(one.timeout, self._plan.lease / 3)),
                    batch=one.takes_batch,
                    **model.tables,
                )(model.apply_all if one.takes_batch else model.apply)


class _Model:
    """The function of one projection: it writes down what it is given, in order."""

    def __init__(self, plan: ProjectionPlan, version: int, machine: _ProjectingMachine) -> None:
        self._plan = plan
        self._title = plan.titles[version]
        self._has_versions = plan.versions > 1
        self._machine = machine

    @property
    def tables(self) -> dict[str, Any]:
        """The options of a projection whose readers have a view."""
        return {"tables": [self._plan.name], "create": self.create} if self._has_versions else {}

    async def create(self, model: ReadModel) -> None:
        model.connection.execute(f"CREATE TABLE {model.table(self._plan.name)} (event TEXT)")

    async def apply(self, event: Event[Any], model: ReadModel) -> None:
        machine, plan = self._machine, self._plan
        behaviour, loop = machine._behaviour, machine.loop  # noqa: SLF001 - a part of it
        chance = behaviour.chance
        is_healed = behaviour.is_healed
        if plan.latency:
            await loop.pause(chance.random() * plan.latency)
        model.connection.execute(
            "INSERT INTO model (projection, event) VALUES (?, ?)", (self._title, event.id)
        )
        if self._has_versions:
            table = model.table(plan.name)
            model.connection.execute(f"INSERT INTO {table} VALUES (?)", (event.id,))  # noqa: S608 - its own
        if event.payload.get("terminal") == plan.name and not event.payload.get("edited"):
            raise Terminal("this one will never do")
        if is_healed:
            return
        if chance.random() < plan.slow:
            await loop.pause(chance.uniform(0.0, plan.timeout * 2))
        if chance.random() < plan.deadly:
            machine.die("an event kills it")
            await loop.create_future()
        if chance.random() < plan.transient:
            raise Transient("busy just now")

    async def apply_all(self, events: list[Event[Any]], model: ReadModel) -> None:
        for event in events:
            await self.apply(event, model)

    async def truncate(self, model: ReadModel) -> None:
        model.connection.execute("DELETE FROM model WHERE projection = ?", (self._title,))
        if self._has_versions:
            model.connection.execute(f"DELETE FROM {model.table(self._plan.name)}")  # noqa: S608 - its own


class _Operator(Operator):
    """A person who sees to what a projection has parked, and has it begin anew."""

    def __init__(self, number: int, *given: Any) -> None:  # noqa: ANN401 - as any person
        super().__init__(number, *given)
        self._is_first = number == 0

    def _acts(self) -> Sequence[Callable[[Operations], Awaitable[None]]]:
        return (
            *(self._replay, self._replay, self._start_replay, self._turn_replay, self._edit),
            *(self._delete, self._resolve, self._cancel, self._reschedule, self._prioritise),
            *(self._pause, self._resume, self._resume, self._look, self._reset, self._reset),
        )

    async def _given_up(self, operations: Operations, status: Status) -> list[DeliveryId]:
        page = await operations.deliveries(Query(status=status), limit=10)
        chosen = [one for one in page.deliveries if self._chance.random() < 0.3][:2]
        for one in chosen:
            _give_up(self._history, self._loop, one)
        return [one.id for one in chosen]

    async def _delete(self, operations: Operations) -> None:
        found = await self._given_up(operations, Status.FAILED)
        await operations.delete(found, by=self._name, why="no use")

    async def _resolve(self, operations: Operations) -> None:
        found = await self._given_up(operations, Status.FAILED)
        await operations.resolve(found, by=self._name, why="by phone")

    async def _cancel(self, operations: Operations) -> None:
        found = await self._given_up(operations, Status.PENDING)
        await operations.cancel(found, by=self._name)

    async def _reset(self, operations: Operations) -> None:
        one = self._chance.choice(self._plan.projections)
        if one.versions > 1:
            await self._change_version(one, operations)
        else:
            await operations.reset_projection(one.name, by=self._name, why="a new column")

    async def _change_version(self, plan: ProjectionPlan, operations: Operations) -> None:
        """Make the version anew that readers do not have, or give it to them; one person does."""
        if not self._is_first:
            return
        for one in await operations.projections():
            if one.checkpoint.name == plan.name and not one.is_serving:
                version = one.checkpoint.version
                if self._chance.random() < _REMAKING:
                    strict = self._chance.random() < _STRICT
                    await operations.rebuild_projection(
                        plan.name, by=self._name, version=version, strict=strict
                    )
                else:
                    await operations.swap_projection(
                        plan.name,
                        by=self._name,
                        version=version,
                        timeout=self._chance.choice(["0s", "1s"]),
                    )

    def _destination(self) -> str:
        return self._chance.choice(self._plan.names)
