"""The ports to time, chance and identity, and their system versions."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import time
from datetime import UTC, datetime
from typing import Protocol

import uuid_utils

__all__ = [
    "Clock",
    "Entropy",
    "Ids",
    "Rng",
    "SystemClock",
    "SystemEntropy",
    "SystemIds",
    "SystemRng",
    "ThreadClock",
    "is_of_machine",
    "wait_at_most",
]


_LONGEST_HOST = 24


class Clock(Protocol):
    """Time. `now` may step; `monotonic` never goes back."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""

    def monotonic(self) -> float:
        """Return seconds that only ever grow; the zero point means nothing."""

    async def sleep(self, seconds: float) -> None:
        """Return when that much time has passed on this clock."""


class Ids(Protocol):
    """Identity."""

    def event_id(self) -> str:
        """Return a new UUIDv7, unique over all machines."""

    def worker_id(self) -> str:
        """Return a new name for a worker, unique over all machines and restarts.

        It is all that people see of a worker, so it tells where it runs.
        """


class Rng(Protocol):
    """Chance."""

    def uniform(self, low: float, high: float) -> float:
        """Return a number between `low` and `high`, every one equally likely."""


class Entropy(Protocol):
    """Chance that nobody can guess, for secrets."""

    def random_bytes(self, size: int) -> bytes:
        """Return bytes that no one who has seen all others could foretell."""


class SystemClock:
    """The machine's clocks and the running event loop's timers."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ThreadClock(SystemClock):
    """The machine's clocks; whoever sleeps blocks their thread, and needs no event loop."""

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - that is what it is for


class SystemIds:
    """UUIDv7 from the operating system's entropy; workers by host, process and a bit of chance."""

    def event_id(self) -> str:
        return str(uuid_utils.uuid7())

    def worker_id(self) -> str:
        host = socket.gethostname().partition(".")[0][:_LONGEST_HOST] or "host"
        return f"{host}-{os.getpid()}-{uuid_utils.uuid4().hex[:8]}"


class SystemRng:
    """The process's random generator."""

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)  # noqa: S311 - jitter, not cryptography


class SystemEntropy:
    """The operating system's."""

    def random_bytes(self, size: int) -> bytes:
        return secrets.token_bytes(size)


def is_of_machine(clock: Clock) -> bool:
    """Tell whether it is the clock of a machine, right or wrong, that others may differ from.

    A store that machines share then goes by its server's clock. Any other, such as the one of a
    test, is what the time is for everybody.
    """
    return isinstance(clock, SystemClock)


async def wait_at_most(event: asyncio.Event, seconds: float, clock: Clock) -> bool:
    """Wait for the event, but no longer than this on the clock; tell whether it came."""
    if event.is_set() or seconds <= 0:
        return event.is_set()
    waiters = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(seconds))]
    try:
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
    return event.is_set()
