"""A simulated process: an app with ports of its own, that may die, freeze and be started again."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from redrive.app.declaration import Ports
from redrive.app.redrive import Redrive
from redrive.model.health import HealthCheck
from redrive.policies.retry import Retry
from redrive.store import Store
from redrive.testing.fakes import CountingIds, SeededRng
from tests.proof.checkers.records import Died, Silenced
from tests.simulation.destinations import Behaviour, SimulatedDestination
from tests.simulation.history import History
from tests.simulation.loop import SimulationLoop, Strand
from tests.simulation.plan import DestinationPlan, Plan
from tests.simulation.ports import HostClock, StrandExecutor

__all__ = ["Machine"]


class Machine:
    """One process after the other under one name; each begins with `boot`.

    `make_store` makes the store as a process sees it; `lose_store` is what becomes of what that
    had open when the process dies.
    """

    def __init__(
        self,
        name: str,
        number: int,
        plan: Plan,
        *,
        loop: SimulationLoop,
        history: History,
        clock: HostClock,
        ids: CountingIds,
        behaviour: Behaviour,
        make_store: Callable[[Machine], Store],
        lose_store: Callable[[Machine], None],
    ) -> None:
        self.name = name
        self.loop = loop
        self.clock = clock
        self.gone = asyncio.Event()
        self.frozen_until = 0.0
        self.release = 0
        self._plan = plan
        self._history = history
        self._ids = ids
        self._rng = SeededRng(plan.seed * 100 + number)
        self._behaviour = behaviour
        self._make_store = make_store
        self._lose_store = lose_store
        self._wiring = ExitStack()
        self.main = Strand(name)
        self.heartbeat = Strand(f"{name} heartbeat")

    @property
    def is_alive(self) -> bool:
        return not self.main.is_dead

    def settings(self) -> dict[str, Any]:
        """Return what the app is made with beside what the plan says."""
        return {}

    def ports(self) -> dict[str, Any]:
        """Return what the app is connected to beside what every process is."""
        return {}

    def boot(self, life: Callable[[Redrive], Coroutine[Any, Any, None]]) -> None:
        """Begin a new process, which lives until `life` ends or it dies."""
        self.main = Strand(self.name)
        self.heartbeat = Strand(f"{self.name} heartbeat")
        self.gone = asyncio.Event()
        self.frozen_until = 0.0
        # The app is made inside: whatever it starts must belong to the process.
        self.loop.create_task(self._live(life), context=self.main.context())

    async def _live(self, life: Callable[[Redrive], Coroutine[Any, Any, None]]) -> None:
        gone, app = self.gone, self._app()
        try:
            await life(app)
        except Exception as error:  # noqa: BLE001 - a process must not end by one
            told = "".join(traceback.format_exception(error))
            self._history.complain(self.loop.time(), f"{self.name} breaks", told)
        gone.set()

    def die(self, why: str = "") -> None:
        """End without a word: no task takes another step, and no `finally` runs."""
        if not self.is_alive:
            return
        self.main.die()
        self.heartbeat.die()
        self._lose_store(self)
        self._history.note(self.loop.time(), f"{self.name} dies: {why}")
        self._history.write(Died(at=self.loop.time(), machine=self.name))
        self.gone.set()

    def freeze(self, seconds: float) -> None:
        """Take no step for a while, as a process that was stopped; then go on as if nothing was."""
        self._silence(seconds, "is frozen", self.main, self.heartbeat)

    def block(self, seconds: float) -> None:
        """Have the handlers' loop blocked; the heartbeat goes on."""
        self._silence(seconds, "is blocked", self.main)

    def _silence(self, seconds: float, why: str, *strands: Strand) -> None:
        now = self.loop.time()
        if not self.is_alive or self.frozen_until > now:
            return
        self._history.write(Silenced(at=now, machine=self.name, why=f"{why} for {seconds:.3f} s"))
        self.frozen_until = now + seconds
        for strand in strands:
            strand.stop()
        outside = Strand("outside").context()
        self.loop.call_later(seconds, self._thaw, strands, context=outside)

    def thaw(self) -> None:
        """End any freeze now."""
        self._thaw((self.main, self.heartbeat))

    def _thaw(self, strands: tuple[Strand, ...]) -> None:
        for strand in strands:
            if not strand.is_dead:
                strand.go_on(self.loop)
        self.frozen_until = 0.0

    def _app(self) -> Redrive:
        plan = self._plan
        app = Redrive(
            "memory://",
            concurrency=plan.concurrency,
            lease=timedelta(seconds=plan.lease),
            grace=timedelta(seconds=plan.grace),
            poll=timedelta(seconds=plan.poll),
            generations=plan.generations,
            history=20,
            **self.settings(),
        )
        ports = Ports(
            clock=self.clock,
            ids=self._ids,
            rng=self._rng,
            executor=StrandExecutor(self.loop, self.heartbeat),
            end_process=lambda: self.die("it was wedged"),
            **self.ports(),
        )
        # Never left: the process ends with its wiring in place.
        self._wiring.enter_context(app.rewired(ports, lambda: self._make_store(self)))
        return app

    def declare(self, app: Redrive) -> None:
        """Declare what the machine's release does, as its code would."""
        for one in self._plan.destinations_of(self.release):
            if one.joins_at > self.loop.time():
                continue
            app.destination(
                one.name,
                *one.patterns,
                transport=self.transport(one),
                **options_of(one),
                **self._health_of(one),
            )

    def transport(self, plan: DestinationPlan) -> SimulatedDestination:
        """Return the way to a destination."""
        return SimulatedDestination(
            plan,
            self._behaviour,
            self._history,
            machine=self.name,
            die=lambda: self.die("a delivery kills it"),
            block=self.block,
        )

    def _health_of(self, plan: DestinationPlan) -> dict[str, Any]:
        """Return how the destination is asked whether it is back, if it is."""
        if not plan.is_checked or plan.breaker is None:
            return {}

        async def ask() -> bool:
            await self.loop.pause(plan.latency)
            return not self._behaviour.is_down(plan)

        return {"health": HealthCheck(ask, every="1s", timeout="2s")}


def options_of(plan: DestinationPlan) -> dict[str, Any]:
    """Return the plan of a destination as the options of its declaration."""
    return {
        "order": plan.order,
        "retry": Retry(
            max_attempts=plan.max_attempts,
            base=timedelta(seconds=plan.base),
            cap=timedelta(seconds=plan.cap),
        ),
        "timeout": timedelta(seconds=plan.timeout),
        "concurrency": plan.concurrency,
        "breaker": plan.breaker,
        "rate": plan.rate,
        "retry_rate": plan.retry_rate,
        "replay_rate": plan.replay_rate,
        "retry_budget": plan.retry_budget,
        "shared_rate": plan.shared_rate,
        "fairness": plan.fairness,
        "snooze_limit": plan.snooze_limit,
        "auto_replay": plan.auto_replay,
    }
