"""The one who clears up when everything is healed: what people must do, this one does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import ParamSpec, TypeVar

from redrive.errors import NotFoundError, StoreUnavailableError
from redrive.model.delivery import Delivery
from redrive.model.gate import Closed, Open
from redrive.model.replay import ReplayState
from redrive.operations import Operations
from tests.proof.checkers.records import Backfilled
from tests.simulation.history import History
from tests.simulation.loop import SimulationLoop
from tests.simulation.plan import Plan

__all__ = ["Keeper"]

P = ParamSpec("P")
T = TypeVar("T")


class Keeper:
    """Opens what was shut, sends dead letters again, and gives latecomers what they have missed."""

    def __init__(self, plan: Plan, history: History, loop: SimulationLoop, chance: Random) -> None:
        self._plan = plan
        self._history = history
        self._loop = loop
        self._chance = chance

    async def insist(
        self, act: Callable[P, Awaitable[T]], *given: P.args, **options: P.kwargs
    ) -> T:
        """Do something, again if the server lets nobody wait as long as others take."""
        while True:
            try:
                return await act(*given, **options)
            except StoreUnavailableError:
                await self._loop.pause(1.0)

    async def let_go(self, operations: Operations) -> None:
        """Resume what people have paused, reset what they opened, restore what they removed."""
        for plan in self._plan.destinations:
            await self.restore(plan.name, operations)
        for gate in await operations.gates():
            if gate.gate.pause is not None:
                await operations.resume(gate.destination, by="keeper")
            if isinstance(gate.gate.breaker, Open) and gate.gate.breaker.until is None:
                await operations.reset_breaker(gate.destination, by="keeper")
        for replay in await operations.replays(limit=1000):
            if replay.is_automatic and replay.state is ReplayState.PAUSED:
                await operations.resume_replay(replay.id, by="keeper")
        for one in await operations.tenants(limit=1000):
            if one.tenant is None:
                continue
            await operations.resume_tenant(one.tenant, by="keeper")
            if one.destination is not None:
                await operations.resume_tenant(one.tenant, destination=one.destination, by="keeper")

    async def restore(self, name: str, operations: Operations) -> None:
        """Have a destination be there again, if a worker has ever registered it."""
        with suppress(NotFoundError):
            await operations.restore_destination(name, by="keeper")

    async def _is_left_to_auto_replay(self, letter: Delivery, operations: Operations) -> bool:
        """Tell whether a letter is sent again by itself: in no order, and by an open gate."""
        (plan,) = [one for one in self._plan.destinations if one.name == letter.destination]
        auto_replay = plan.auto_replay
        if auto_replay is None or plan.order != "none":
            return False
        gates = [one.gate for one in await operations.gates() if one.destination == plan.name]
        is_open = all(isinstance(one.breaker, Closed) for one in gates)
        return is_open and letter.auto_replays < auto_replay.cycles

    async def backfill(self, destination: str, operations: Operations) -> bool:
        """Give a destination what it has missed, as soon as some worker has registered it."""
        try:
            await operations.backfill(destination, by="keeper")
        except NotFoundError:
            return False
        self._history.write(Backfilled(at=self._loop.time(), destination=destination))
        return True

    async def see_to(self, letters: list[Delivery], operations: Operations) -> None:
        """Resolve what will never do, and send the rest again that no auto-replay will."""
        letters = [
            one for one in letters if not await self._is_left_to_auto_replay(one, operations)
        ]
        hopeless = [one.id for one in letters if one.reason == "terminal" or len(one.cycles) > 8]
        rest = [one.id for one in letters if one.id not in hopeless]
        await operations.resolve(hopeless, by="keeper", why="it will never do")
        if rest and self._chance.random() < 0.5:
            await operations.replay(rest, by="keeper")
        elif rest:
            try:
                await operations.start_replay(rest, by="keeper", canary=5)
            except NotFoundError:
                return
