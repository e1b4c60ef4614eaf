"""Errands: what housekeeping asks goes along with the next poll of a worker that rests."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from redrive.clock import Clock, wait_at_most
from redrive.model.retention import Retention
from redrive.stores.postgres.counting import WORKLOAD
from redrive.stores.postgres.keeping import HAS_PRUNABLE, HOARDS, spans

__all__ = ["Errand", "Errands"]

_LONGEST_REST_SECONDS = 1.5
_UNTIL_THE_CLAIM_SECONDS = 0.1
"""A worker that ends its rest claims at once, unless it stops."""
_FRESH_SECONDS = 0.5


class Errand:
    """The turn to keep the house, and what is asked by whom it is."""

    def __init__(self, worker: str, duty: str, span: timedelta, retention: Retention) -> None:
        self.worker = worker
        self.values = (duty, span, *spans(retention))
        self.has_turn: bool | None = None
        self.taken = asyncio.Event()
        self.returned = asyncio.Event()


class Errands:
    """The one errand that waits, and what the last one has brought.

    What was brought answers the same question once, if it comes soon and this process has changed
    nothing since.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rested: asyncio.Event | None = None
        self._rests_until = -math.inf
        self._waiting: Errand | None = None
        self._brought: dict[tuple[str, tuple[object, ...]], list[Any]] = {}
        self._brought_at = -math.inf

    @contextmanager
    def rest(self, at_most: timedelta) -> Iterator[None]:
        """Let errands wait for the poll after this rest."""
        rested = self._rested = asyncio.Event()
        self._rests_until = self._clock.monotonic() + at_most.total_seconds()
        try:
            yield
        finally:
            rested.set()
            if self._rested is rested:
                self._rested = None

    async def send(self, errand: Errand) -> bool:
        """Wait for the next poll to take it along; tells whether one did, and came back."""
        rested, rest = self._rested, self._rests_until - self._clock.monotonic()
        if rested is None or self._waiting is not None or rest > _LONGEST_REST_SECONDS:
            return False
        self._waiting = errand
        try:
            await wait_at_most(rested, max(0.0, rest), self._clock)
            if not await wait_at_most(errand.taken, _UNTIL_THE_CLAIM_SECONDS, self._clock):
                return False
        finally:
            if self._waiting is errand:
                self._waiting = None
        await errand.returned.wait()
        return errand.has_turn is not None

    def is_waiting(self, worker: str) -> bool:
        """Tell whether a poll of this worker has something to take along."""
        return self._waiting is not None and self._waiting.worker == worker

    @contextmanager
    def take(self, worker: str) -> Iterator[Errand | None]:
        """Take along what waits; at the end of the block it has returned, with or without."""
        errand = self._waiting if self.is_waiting(worker) else None
        if errand is None:
            yield None
            return
        self._waiting = None
        errand.taken.set()
        try:
            yield errand
        finally:
            errand.returned.set()

    def bring(self, errand: Errand, found: Sequence[Any], *, since: float) -> None:
        """Hand over what a poll has found, which it asked for at an instant."""
        now, errand.has_turn, is_prunable, hoarded, due, workers = found
        if errand.has_turn:
            self._brought_at = since
            self._brought = {
                (HAS_PRUNABLE, errand.values[2:]): [(is_prunable,)],
                (HOARDS, ()): [(now, hoarded)],
                (WORKLOAD, ()): [(now, due, workers)],
            }

    def brought(self, statement: str, values: tuple[object, ...]) -> list[Any] | None:
        """Return the answer to a statement, if it was brought just now."""
        if self._clock.monotonic() - self._brought_at > _FRESH_SECONDS:
            self.forget()
        return self._brought.pop((statement, values), None)

    def forget(self) -> None:
        """Forget what was brought: it may have changed."""
        self._brought = {}
