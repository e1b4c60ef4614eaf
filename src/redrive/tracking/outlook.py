"""The outlook: routes and gates as the store has them, at most a second old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from redrive.clock import Clock
from redrive.errors import StoreError
from redrive.model.destination import Destination, Order, Routes
from redrive.model.event import Event
from redrive.model.limits import Rate
from redrive.store import Admission, Store

__all__ = ["Outlook"]

_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0


class Outlook:
    """What one process knows of the store's routes and gates, for the loop that asks.

    When the store does not answer, nothing is known: then nothing passes.
    """

    def __init__(self, open_store: Callable[[], Awaitable[Store]], clock: Clock) -> None:
        self._open_store = open_store
        self._clock = clock
        self._store: Store | None = None
        self._routes: Routes | None = None
        self._by_name: dict[str, Destination] = {}
        self._admissions: dict[str, Admission] = {}
        self._read_at: dict[str, float] = {}
        self._paused: frozenset[tuple[str, str | None]] = frozenset()
        self._ahead = timedelta(0)
        self._down_until = 0.0

    @property
    def is_down(self) -> bool:
        """Whether the store did not answer a moment ago."""
        return self._clock.monotonic() < self._down_until

    @property
    def open_store_now(self) -> Store | None:
        """The store, if it was opened."""
        return self._store

    def has_breaker(self, destination: str) -> bool:
        """Tell whether a destination's health is counted."""
        described = self._by_name.get(destination)
        return described is not None and described.limits.breaker is not None

    async def store(self) -> Store:
        """Return the store, open; raises what keeps it from that."""
        if self._store is None:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                self._store = await self._open_store()
        return self._store

    def lose(self) -> None:
        """Note that the store does not answer: for a second nobody asks again."""
        self._down_until = self._clock.monotonic() + _SECONDS
        self._admissions.clear()
        self._read_at.clear()

    def shut(self, destination: str) -> None:
        """Let nothing pass there until its gate is read again."""
        before = self._admissions.get(destination, Admission(passes=0))
        self._admissions[destination] = Admission(passes=0, generation=before.generation)

    def now(self) -> datetime:
        """Return the present by the store's clock, as far as it is known."""
        return self._clock.now() + self._ahead

    async def routes(self) -> Routes | None:
        """Return the routes, at most a second old; `None` while the store does not answer."""
        if self._routes is None or self._is_old(""):
            await self._ask({})
        return None if self.is_down else self._routes

    async def look(self, wanted: Mapping[str, int]) -> None:
        """See to it that these gates are known, where so many events are to go."""
        asked = {
            name: number
            for name, number in wanted.items()
            if self._is_old(name) or self._is_used_up(name, number)
        }
        if asked:
            await self._ask(asked)

    def passes(self, destination: str, event: Event[Any]) -> bool:
        """Tell whether an event may go there past the store, and count it."""
        admission = self._admissions.get(destination)
        described = self._by_name.get(destination)
        if admission is None or described is None or admission.passes < 1:
            return False
        tenant = event.tenant or ""
        if (tenant, None) in self._paused or (tenant, destination) in self._paused:
            return False
        if described.fairness.rate_of(tenant) is not None:
            return False
        if admission.is_counted:
            self._admissions[destination] = Admission(
                passes=admission.passes - 1, generation=admission.generation, is_counted=True
            )
        return True

    def is_ordered(self, destination: str) -> bool:
        """Tell whether the events of a key wait for each other there."""
        described = self._by_name.get(destination)
        return described is not None and described.order is not Order.NONE

    def retry_rate(self, destination: str) -> Rate | None:
        """Return how many retries a destination takes, if that is limited."""
        described = self._by_name.get(destination)
        return None if described is None else described.limits.retry_rate

    def generation(self, destination: str) -> int:
        """Return the generation of a breaker, as it was read."""
        admission = self._admissions.get(destination)
        return 0 if admission is None else admission.generation

    def _is_old(self, name: str) -> bool:
        return self._clock.monotonic() - self._read_at.get(name, -_SECONDS) >= _SECONDS

    def _is_used_up(self, name: str, number: int) -> bool:
        admission = self._admissions.get(name)
        return admission is not None and admission.is_counted and 0 < admission.passes < number

    async def _ask(self, wanted: Mapping[str, int]) -> None:
        if self.is_down:
            return
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                store = await self.store()
                admissions = await store.admit(wanted)
                if self._routes is None or self._routes.version != admissions.routes_version:
                    self._routes = await store.routes()
                    self._by_name = {one.name: one for one in self._routes.destinations}
        except (StoreError, OSError, TimeoutError):
            self.lose()
            return
        now = self._clock.monotonic()
        self._ahead = admissions.now - self._clock.now()
        self._paused = frozenset(admissions.paused)
        for name in wanted:
            self._admissions[name] = admissions.of.get(name, Admission(passes=0))
            self._read_at[name] = now
        self._read_at[""] = now
