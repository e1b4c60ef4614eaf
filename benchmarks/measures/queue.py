"""The verbs of a queue, in the words of each contender's own public interface."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.contender import Place

__all__ = ["PAYLOAD", "Handle", "Payload", "Queue"]

Payload = dict[str, Any]
Handle = Callable[[Payload], None]
"""What a worker calls for each payload; it may be called on any thread."""

PAYLOAD: Payload = {"order": 42, "total": "19.90", "customer": "acme"}


class Queue(ABC):
    """A queue in a place; calls that block may block."""

    has_bulk = True
    """Whether it can publish many in one call."""
    way = ""
    """How it works off what waits, for the report."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    async def open(self) -> None:
        """Make ready to publish or to work; the first in a place makes tables."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything."""

    @abstractmethod
    async def publish(self, payload: Payload) -> None:
        """Return when it is durable."""

    async def publish_many(self, payloads: Sequence[Payload]) -> None:
        """Return when all are durable, in as few calls as there can be."""
        for payload in payloads:
            await self.publish(payload)

    @abstractmethod
    async def work(self, handle: Handle, stop: asyncio.Event) -> None:
        """Hand each payload to `handle` until `stop`; what was handled is settled on return."""

    @abstractmethod
    async def waiting(self) -> int:
        """Return how many are not settled."""
