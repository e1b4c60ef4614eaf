"""Destinations that behave as the plan says, and write down what they were sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any

from redrive.errors import Terminal, Transient
from redrive.model.delivery import Leased
from redrive.model.event import Event
from redrive.model.outcome import (
    Applied,
    Cancel,
    Fault,
    Faulted,
    Interrupted,
    Nature,
    Outcome,
    Snooze,
    Succeeded,
)
from redrive.policies.terms import Terms
from redrive.testing.fakes import InlineExecutor
from redrive.transports.function import FunctionTransport
from tests.proof.checkers.records import Begun, Ended
from tests.simulation.history import History
from tests.simulation.loop import SimulationLoop
from tests.simulation.plan import DestinationPlan

__all__ = ["Behaviour", "SimulatedDestination", "word_of"]


class Behaviour:
    """How all destinations behave now: as planned, or well once everything is healed."""

    def __init__(self, seed: int, loop: SimulationLoop) -> None:
        self.chance = Random(f"destinations of {seed}")  # noqa: S311 - a simulation
        self.is_healed = False
        self.loop = loop

    def is_down(self, plan: DestinationPlan) -> bool:
        """Tell whether the destination is in one of its outages."""
        now = self.loop.time()
        return not self.is_healed and any(begin <= now < end for begin, end in plan.down)


class SimulatedDestination:
    """The way to one destination from one process: a real handler, watched."""

    def __init__(
        self,
        plan: DestinationPlan,
        behaviour: Behaviour,
        history: History,
        *,
        machine: str,
        die: Callable[[], None],
        block: Callable[[float], None],
    ) -> None:
        self.batch = plan.batch or 1
        self._plan = plan
        self._behaviour = behaviour
        self._history = history
        self._machine = machine
        self._die = die
        self._block = block
        one = self._answer_at_once if plan.is_sync else self._answer
        many = self._answer_all
        self._way = FunctionTransport(
            one if plan.batch is None else many,
            terms=Terms(),
            executor=InlineExecutor(),
            batch=plan.batch,
        )

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        loop, plan = self._behaviour.loop, self._plan
        for leased in deliveries:
            self._history.write(Begun(at=loop.time(), machine=self._machine, leased=leased))
        outcomes: Sequence[Outcome]
        if not self._behaviour.is_healed and self._behaviour.chance.random() < plan.throttling:
            outcomes = [self._throttled()] * len(deliveries)
        else:
            outcomes = await self._way.send(deliveries)
        for leased, outcome in zip(deliveries, outcomes, strict=True):
            self._history.write(Ended(at=loop.time(), lease=leased.lease, outcome=word_of(outcome)))
        return outcomes

    async def _answer(self, event: Event[Any]) -> object:
        behaviour, plan = self._behaviour, self._plan
        chance, loop = behaviour.chance, behaviour.loop
        await loop.pause(chance.random() * plan.latency)
        if not behaviour.is_healed:
            if event.payload.get("poison") == plan.name:
                self._die()
                await loop.create_future()
            if chance.random() < plan.slow:
                await loop.pause(chance.uniform(0.0, plan.timeout * 3))
            if chance.random() < plan.hanging:
                await self._hang()
            if chance.random() < plan.blocking:
                self._block(chance.uniform(0.0, plan.timeout * 4))
                await loop.pause(0.0)
        return self._decide(event)

    def _answer_at_once(self, event: Event[Any]) -> object:
        return self._decide(event)

    async def _answer_all(self, events: list[Event[Any]]) -> list[object]:
        answers: list[object] = []
        for event in events:
            try:
                answers.append(await self._answer(event))
            except (Terminal, Transient) as error:
                answers.append(error)
        return answers

    def _decide(self, event: Event[Any]) -> object:
        behaviour, plan = self._behaviour, self._plan
        if event.payload.get("terminal") == plan.name and not event.payload.get("edited"):
            raise Terminal("this one will never do")
        if behaviour.is_healed:
            return None
        drawn = behaviour.chance.random()
        if behaviour.is_down(plan) or drawn < plan.transient:
            raise Transient("busy just now")
        if behaviour.chance.random() < plan.snoozing:
            return Snooze(timedelta(seconds=behaviour.chance.choice([0.0, 0.5, 4.0])))
        return None

    async def _hang(self) -> None:
        """Neither end nor give up."""
        while True:
            try:
                await self._behaviour.loop.create_future()
            except asyncio.CancelledError:
                continue

    def _throttled(self) -> Faulted:
        fault = Fault(error_class="HTTP 429", message="slow down", rule="429", code="429")
        wait = timedelta(seconds=self._plan.retry_after)
        return Faulted(
            fault=fault, nature=Nature.THROTTLED, retry_after=wait or None, is_for_all=True
        )


def word_of(outcome: Outcome) -> str:
    """Return how an outcome is taken down."""
    match outcome:
        case Succeeded():
            return "succeeded"
        case Applied():
            return "applied"
        case Interrupted():
            return "interrupted"
        case Snooze():
            return "snooze"
        case Cancel():
            return "cancel"
        case Faulted(nature=nature):
            return str(nature)
