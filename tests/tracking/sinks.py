"""Destinations for tests of tracking: good, dead and hung, all on record."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from redrive.model.delivery import Leased
from redrive.model.outcome import Outcome, Succeeded

__all__ = ["Dead", "Good", "Hung"]


class Good:
    """Takes everything, in batches; any thread may look at what it has."""

    def __init__(self, batch: int = 100) -> None:
        self.batch = batch
        self.taken: list[str] = []
        self.attempts: list[int] = []
        self.threads: set[str] = set()

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        self.threads.add(threading.current_thread().name)
        self.taken += [one.event.id for one in deliveries]
        self.attempts += [one.attempt for one in deliveries]
        return [Succeeded()] * len(deliveries)


class Dead:
    """Refuses everything."""

    batch = 100

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        self.asked += [one.event.id for one in deliveries]
        raise ConnectionError("nobody is there")


class Hung:
    """Never answers."""

    batch = 100

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def send(self, deliveries: Sequence[Leased]) -> Sequence[Outcome]:
        self.asked += [one.event.id for one in deliveries]
        await asyncio.Event().wait()
        return []
