"""The examiner: asks destinations that are down whether they are back, in the name of one worker.

A check is leased in the store like a probe, so that of all workers one asks at a time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from redrive.clock import Clock
from redrive.errors import StoreError
from redrive.executor import Executor
from redrive.model.duration import spell_duration
from redrive.model.health import HealthCheck
from redrive.observer import BreakerChanged, HealthChecked, Observer
from redrive.policies.capture import capture
from redrive.policies.outage import is_check_due
from redrive.store import Gates, Report
from redrive.transport import Checkable, Endpoint

__all__ = ["Examiner"]

_LONGEST_REST_SECONDS = 1.0
_SLACK = timedelta(seconds=1)
"""How long the lease outlasts the check, for the way to the store and back."""


class Examiner:
    """Runs the health checks of a worker's destinations, while their breakers are open."""

    def __init__(
        self,
        *,
        store: Gates,
        serving: Callable[[], Mapping[str, Endpoint]],
        clock: Clock,
        executor: Executor,
        observer: Observer,
        on_store_lost: Callable[[StoreError], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._executor = executor
        self._observer = observer
        self._on_store_lost = on_store_lost
        self._serving = serving
        self._served: Mapping[str, Endpoint] = {}
        self._known: dict[str, tuple[Endpoint, HealthCheck]] = {}
        self._asking: dict[str, None] = {}

    async def run(self) -> None:
        """Check again and again, until cancelled; a check that hangs keeps no other waiting."""
        async with asyncio.TaskGroup() as group:
            while True:
                spans = [health.every.total_seconds() for _, health in self._checks.values()]
                rest = min([_LONGEST_REST_SECONDS, *spans])
                for name in await self._due():
                    group.create_task(self._check(name))
                await self._clock.sleep(rest)

    @property
    def _checks(self) -> Mapping[str, tuple[Endpoint, HealthCheck]]:
        """What is asked of whom, as of what is served now."""
        if (served := self._serving()) is not self._served:
            self._served = served
            self._known = {
                name: (one, one.terms.health)
                for name, one in served.items()
                if one.terms.health is not None
                and (callable(one.terms.health.ask) or isinstance(one.transport, Checkable))
            }
        return self._known

    async def check_once(self) -> bool:
        """Make every check whose time has come; tells whether a breaker changed."""
        checked = await asyncio.gather(*(self._check(name) for name in await self._due()))
        return any(checked)

    async def _due(self) -> list[str]:
        if not self._checks:
            return []
        now = self._clock.now()
        try:
            gates = await self._store.gates()
        except StoreError as error:
            self._on_store_lost(error)
            return []
        return [
            one.destination
            for one in gates
            if one.destination in self._checks
            and one.destination not in self._asking
            and is_check_due(one.gate, now=now)
        ]

    async def _check(self, name: str) -> bool:
        endpoint, health = self._checks[name]
        try:
            generation = await self._store.begin_check(
                name, every=health.every, lease=health.timeout + _SLACK
            )
            if generation is None:
                return False
            wrong = await self._examined(endpoint, health)
            self._observer.notice(HealthChecked(destination=name, error=wrong))
            report = Report(
                destination=name, generation=generation, is_success=not wrong, is_check=True
            )
            reported = await self._store.report([report], chance=0.0)
        except StoreError as error:
            self._on_store_lost(error)
            return False
        for change in reported.changes:
            self._observer.notice(BreakerChanged(change=change))
        return bool(reported.changes)

    async def _examined(self, endpoint: Endpoint, health: HealthCheck) -> str:
        """Return what is wrong with a destination; nothing if it is well."""
        asking = asyncio.ensure_future(self._ask(endpoint, health))
        waiting = asyncio.ensure_future(self._clock.sleep(health.timeout.total_seconds()))
        try:
            await asyncio.wait([asking, waiting], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return f"no answer within {spell_duration(health.timeout)}"
            return asking.result()
        except Exception as error:  # noqa: BLE001 - whatever the check raises is its answer
            fault = capture(error, rule="health check")
            return f"{fault.error_class}: {fault.message}"
        finally:
            for one in (asking, waiting):
                one.cancel()
            await asyncio.wait([waiting])

    async def _ask(self, endpoint: Endpoint, health: HealthCheck) -> str:
        if isinstance(health.ask, str):
            transport = endpoint.transport
            return await transport.check_health(health) if isinstance(transport, Checkable) else ""
        if inspect.iscoroutinefunction(health.ask):
            answer = await health.ask()
        else:
            answer = await self._executor.submit(self._in_thread(endpoint, health.ask))
            answer = await answer if inspect.isawaitable(answer) else answer
        return "it returned False" if answer is False else ""

    def _in_thread(self, endpoint: Endpoint, ask: Callable[[], Any]) -> Callable[[], Any]:
        """Return the call for a thread; one that never returns is not made a second time."""
        name = endpoint.destination.name
        self._asking[name] = None

        def call() -> object:
            try:
                return ask()
            finally:
                self._asking.pop(name, None)

        return call
