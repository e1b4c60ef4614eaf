"""One run: the system of a plan works while its faults happen, then heals, drains and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from random import Random
from typing import Any

from redrive.app.declaration import declare_destination
from redrive.app.redrive import Redrive
from redrive.errors import StoreError
from redrive.model.delivery import Delivery, Status
from redrive.model.destination import NOTHING, Destination
from redrive.operations import Operations
from redrive.testing.fakes import CountingIds
from redrive.worker import Worker
from tests.proof.checkers import Promise
from tests.proof.checkers.records import Born, Healed, Left, Silenced, Stopped, Stopping
from tests.simulation.destinations import Behaviour
from tests.simulation.ground import Ground
from tests.simulation.history import History
from tests.simulation.keeper import Keeper
from tests.simulation.loop import SimulationLoop
from tests.simulation.machine import Machine, options_of
from tests.simulation.people import FAR_TIMES, Operator, Publisher
from tests.simulation.plan import Fault, Plan

__all__ = ["World", "promises_of"]

_LAST_WORDS = 15.0
"""What a worker may take to stop beside its grace time: its last round, its last words."""
_FAR = 20.0
_STILL = 30.0
"""After how many seconds without a change only the next lease, due time or gate can bring one."""
_AUTO_REPLAYS_AT = 57
"""The second of a minute before which no auto-replay needs a worker."""


class _Silent:
    """A way to nowhere: only the terms of a destination matter."""

    batch = 1

    async def send(self, deliveries: Any) -> Any:  # noqa: ANN401 - never called
        raise NotImplementedError


def promises_of(plan: Plan) -> dict[str, Promise]:
    """Return what the destinations of a plan may rely on."""
    return {
        one.name: Promise(
            declare_destination(one.name, one.patterns, _Silent(), options_of(one)).destination,
            one.max_attempts,
        )
        for one in plan.destinations
    } | {
        title: Promise(Destination(name=title, patterns=NOTHING), one.max_attempts)
        for one in plan.projections
        for title in one.titles.values()
    }


class World:
    """Runs a plan on a ground."""

    def __init__(self, plan: Plan, loop: SimulationLoop, history: History, ground: Ground) -> None:
        self._plan = plan
        self._loop = loop
        self._history = history
        self._ground = ground
        self._behaviour = Behaviour(plan.seed, loop)
        self._chance = Random(f"world of {plan.seed}")  # noqa: S311 - a simulation
        self._ids = CountingIds()
        self._workers: dict[str, Worker] = {}
        self._closing = False
        self._is_down = False
        self._machines = [self._machine(f"worker-{one}", one) for one in range(plan.workers)]
        self._publishers = [
            (Publisher(one, plan, history, loop), self._machine(f"publisher-{one}", 10 + one))
            for one in range(plan.publishers)
        ]
        self._operators = [
            (self._operator(one), self._machine(f"operator-{one}", 20 + one))
            for one in range(plan.operators)
        ]

    async def run(self) -> None:
        """Live through the plan from beginning to end."""
        promises = promises_of(self._plan)
        late = [one.name for one in self._plan.destinations if one.joins_at]
        early = [
            one.destination
            for name, one in promises.items()
            if name not in late and not self._plan.is_service(name)
        ]
        self._ground.begin(early)
        begun = [self._loop.create_task(self._supervise(one)) for one in self._machines]
        begun += [self._loop.create_task(self._employ(*one)) for one in self._publishers]
        for operator, machine in self._operators:
            machine.boot(operator.live)
        begun.append(self._loop.create_task(self._suffer()))
        begun.append(self._loop.create_task(self._watch()))
        if late:
            begun.append(self._loop.create_task(self._roll_out()))
        if self._plan.rollouts:
            begun.append(self._loop.create_task(self._deploy()))
        await self._loop.pause(self._plan.duration)
        await self._heal()
        await self._drain()
        await self._end(begun)

    def _operator(self, number: int) -> Operator:
        return Operator(number, self._plan, self._history, self._loop)

    def _machine(self, name: str, number: int) -> Machine:
        return Machine(
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

    async def _supervise(self, machine: Machine) -> None:
        """Keep a worker process running, as a supervisor does."""
        while not self._closing:
            machine.boot(self._work(machine))
            main = machine.main
            await machine.gone.wait()
            if machine.is_alive:
                await self._loop.pause(0.0)
                left = self._loop.tasks_of(main)
                self._history.write(Left(at=self._loop.time(), machine=machine.name, tasks=left))
            self._workers.pop(machine.name, None)
            await self._loop.pause(0.1 + self._chance.random() * (0.1 if self._closing else 1.0))

    def _work(self, machine: Machine) -> Callable[[Redrive], Coroutine[Any, Any, None]]:
        async def life(app: Redrive) -> None:
            machine.declare(app)
            worker = await self._begin_work(app, machine)
            if self._is_down:
                self._history.write(
                    Silenced(at=self._loop.time(), machine=machine.name, why="nobody hears it stop")
                )
            self._history.write(Stopped(at=self._loop.time(), worker=worker.id))
            if worker.leaves_handlers:
                machine.die("it leaves handlers that do not end")
                await self._loop.create_future()
            await app.close()

        return life

    async def _begin_work(self, app: Redrive, machine: Machine) -> Worker:
        """Run a worker to its end; without the store the process ends before it has begun."""
        while True:
            try:
                worker = await app.make_worker(services=self._plan.gateway is not None)
                self._history.write(
                    Born(at=self._loop.time(), worker=worker.id, machine=machine.name)
                )
                self._workers[machine.name] = worker
                await worker.run()
            except StoreError:
                machine.die("it cannot reach the store")
                await self._loop.create_future()
            else:
                return worker

    async def _employ(self, publisher: Publisher, machine: Machine) -> None:
        while not publisher.is_done:
            machine.boot(self._publish(publisher, machine))
            await machine.gone.wait()
            await self._loop.pause(self._chance.random())

    def _publish(
        self, publisher: Publisher, machine: Machine
    ) -> Callable[[Redrive], Coroutine[Any, Any, None]]:
        async def life(app: Redrive) -> None:
            if self._plan.rollouts:  # elsewhere, those who publish declare nothing
                machine.declare(app)
            await publisher.live(app)

        return life

    async def _deploy(self) -> None:
        """Roll the next release out and back: one process after the other, and some crash."""
        chance = Random(f"deployments of {self._plan.seed}")  # noqa: S311 - a simulation
        publishers = [machine for _, machine in self._publishers]
        for number, at in enumerate(self._plan.rollouts):
            await self._loop.pause(max(0.0, at - self._loop.time()))
            release = (number + 1) % 2
            everybody = [*publishers, *self._machines]
            if chance.random() < 0.5:
                chance.shuffle(everybody)
            for machine in everybody:
                if self._behaviour.is_healed:
                    return
                self._history.note(self._loop.time(), f"{machine.name} gets release {release}")
                machine.release = release
                if machine in publishers or chance.random() < 0.3:
                    machine.die("it is replaced")
                else:
                    self._stop(machine)
                await self._loop.pause(chance.random() * self._plan.duration / 10)

    async def _roll_out(self) -> None:
        """Start the workers anew, one by one, with the code that knows the latest destination."""
        joins_at = max(one.joins_at for one in self._plan.destinations)
        await self._loop.pause(max(0.0, joins_at - self._loop.time()))
        for machine in self._machines:
            self._stop(machine)
            await self._loop.pause(self._chance.random())

    async def _suffer(self) -> None:
        """Let the faults of the plan happen, each at its time."""
        for fault in self._plan.faults:
            await self._loop.pause(max(0.0, fault.at - self._loop.time()))
            self._history.note(self._loop.time(), f"fault: {fault.what} {fault.machine}")
            self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        machine = self._machines[fault.machine]
        match fault.what:
            case "store down":
                self._ground.fail(is_down=True)
                self._is_down = True
                self._loop.call_later(fault.amount, self._restore)
            case "crash":
                machine.die("it crashes")
            case "freeze":
                machine.freeze(fault.amount)
            case "stop":
                self._stop(machine)
            case "clock step":
                self._ground.step_machine(machine, timedelta(seconds=fault.amount))
            case "store clock step":
                self._ground.step(timedelta(seconds=fault.amount), self._machines)
            case "publisher crash":
                self._publishers[0][1].die("it crashes")
            case other:
                raise AssertionError(f"nobody knows how to let {other} happen")

    def _restore(self) -> None:
        self._is_down = False
        self._ground.fail(is_down=False)

    def _stop(self, machine: Machine) -> None:
        worker = self._workers.pop(machine.name, None)
        if worker is None or not machine.is_alive:
            return
        if machine.frozen_until <= self._loop.time():
            within = self._plan.grace + _LAST_WORDS + self._plan.lease
            self._history.write(Stopping(at=self._loop.time(), worker=worker.id, within=within))
        worker.stop()

    async def _watch(self) -> None:
        """Look at everything every now and then."""
        while not self._behaviour.is_healed:
            await self._loop.pause(self._plan.duration / 4)
            self._look()

    def _look(self, *, is_final: bool = False) -> None:
        self._history.write(self._ground.look(is_final=is_final))

    async def _heal(self) -> None:
        self._ground.heal()
        self._behaviour.is_healed = True
        for operator, machine in self._operators:
            operator.is_off = True
            machine.thaw()
        for machine in self._machines:
            machine.thaw()
            if self._plan.may_register_again:
                self._stop(machine)  # what starts registers again what was removed
        for publisher, machine in self._publishers:
            publisher.is_hurried = True
            while not publisher.is_done:
                await self._loop.pause(0.1)
            if machine.is_alive:
                await machine.gone.wait()
        for _, machine in self._operators:
            await machine.gone.wait()
        self._history.write(Healed(at=self._loop.time(), bound=self._bound()))

    def _bound(self) -> float:
        """Compute by when all must be settled if nothing goes wrong any more."""
        plan = self._plan
        now, left = self._ground.unsettled()
        waits = [(one.due - now).total_seconds() for one in left if one.status is Status.PENDING]
        number = len(left)
        if any(one.joins_at for one in plan.destinations) or self._history.lacking:
            # Who comes late is given what it has missed, and some of that may be due much later.
            waits.append(max(FAR_TIMES) if plan.far else 0.0)
            number += plan.events
        rates = [
            rate.per_second
            for one in (*plan.destinations, *plan.next_release)
            for rate in (
                one.rate,
                one.retry_rate,
                one.replay_rate,
                one.fairness.rate,
                None if one.shared_rate is None else one.shared_rate.rate,
            )
            if rate is not None
        ]
        breakers = [
            (one.breaker.longest_open + one.breaker.ramp).total_seconds()
            for one in plan.destinations
            if one.breaker is not None
        ]
        cycles = [one.auto_replay.cycles if one.auto_replay else 0 for one in plan.destinations]
        longest_call = max(one.timeout for one in plan.destinations) + plan.grace
        each = 1.0 / min(rates, default=10.0) + plan.poll + 1.0
        asked = max(
            min(one.retry_after, 86_400.0) if one.throttling else 0.0 for one in plan.destinations
        )
        return (
            self._loop.time()
            + max([0.0, *waits])
            + sum(-one.amount for one in plan.faults if "clock" in one.what and one.amount < 0)
            + max(breakers, default=0.0)
            + asked
            + 2 * longest_call
            + 10 * plan.lease
            + 2 * each * (number + 5)
            + 60.0 * max(cycles) * (number + 3)
            + 60.0
        )

    async def _drain(self) -> None:
        """Have people see to what only people can, until everything is settled."""
        bound = self._bound()
        keeper = self._machine("keeper", 30)
        keeper.boot(self._keep(bound))
        await keeper.gone.wait()

    def _keep(self, bound: float) -> Callable[[Redrive], Coroutine[Any, Any, None]]:
        async def life(app: Redrive) -> None:
            operations = app.operations
            keeper = self._keeper()
            await keeper.insist(keeper.let_go, operations)
            late = [one.name for one in self._plan.destinations if one.joins_at]
            before, moved = list[Delivery](), 0.0
            while self._loop.time() < bound:
                now, left = self._ground.unsettled()
                if late:
                    was_given = await keeper.insist(keeper.backfill, late[0], operations)
                    late = [] if was_given else late
                if not left and not late and not self._history.lacking:
                    break
                if left != before:
                    before, moved = left, self._loop.time()
                letters = [one for one in left if one.is_dead_letter]
                await keeper.insist(keeper.see_to, letters, operations)
                is_still = self._loop.time() - moved > _STILL
                wait = await self._rest_of(operations, now, left, is_still=is_still)
                if self._loop.time() - moved > _STILL * 20 and not wait:
                    # Nothing is ahead that could bring a change: a last chance before the bound.
                    wait = bound - self._loop.time() - 2 * _STILL - self._longest_auto_replay()
                if wait > _FAR:
                    await self._skip(wait)
                await self._loop.pause(1.0)
            await app.close()

        return life

    def _longest_auto_replay(self) -> float:
        """Return how many seconds all cycles of an auto-replay may take, a minute each."""
        auto_replays = [one.auto_replay for one in self._plan.destinations if one.auto_replay]
        return 60.0 * max((one.cycles + 1 for one in auto_replays), default=0)

    def _keeper(self) -> Keeper:
        return Keeper(self._plan, self._history, self._loop, self._chance)

    async def _rest_of(
        self, operations: Operations, now: datetime, left: list[Delivery], *, is_still: bool
    ) -> float:
        """Return for how many seconds nothing can happen, as far as is known.

        Where all is still, what may start waits for something else that is not over yet.
        """
        opens = {one.destination: one.until for one in await operations.gates()}
        ready = [
            # In flight and nobody's: its lease must run out, however the clock was set.
            one.lease_until or max(one.due, opens.get(one.destination) or one.due)
            for one in left
            if one.behind is None and not one.is_dead_letter
        ]
        if not ready and any(one.auto_replay for one in self._plan.destinations):
            return max(0.0, _AUTO_REPLAYS_AT - now.second)
        waits = [(one - now).total_seconds() for one in ready]
        return min((one for one in waits if one > 0.0 or not is_still), default=0.0)

    async def _skip(self, seconds: float) -> None:
        """Let a long time pass without workers, which would only look at their clocks."""
        self._history.note(self._loop.time(), f"everybody sleeps for {seconds:.3f} s")
        await self._stop_all()
        await self._loop.pause(seconds)
        self._closing = False
        for machine in self._machines:
            self._loop.create_task(self._supervise(machine))

    async def _stop_all(self) -> None:
        """Ask every worker to stop, also those that are still to be born, until they have."""
        self._closing = True
        while left := [one for one in self._machines if not one.gone.is_set()]:
            for machine in left:
                self._stop(machine)
            await self._loop.pause(0.2)

    async def _end(self, begun: list[asyncio.Task[None]]) -> None:
        await self._stop_all()
        self._look(is_final=True)
        for task in begun:
            if task.done() and task.exception() is not None:
                task.result()
