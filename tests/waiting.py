"""Waiting for what others bring about, and work that takes its time: no test sleeps but here."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable

__all__ = ["PATIENCE_SECONDS", "eventually", "spend", "spend_at_once", "until"]

PATIENCE_SECONDS = 120.0
"""How long anything may take that must come about: it matters only when it does not."""

_LOOK_EVERY_SECONDS = 0.02


async def eventually(
    is_so: Callable[[], object | Awaitable[object]],
    *,
    what: str,
    within: float = PATIENCE_SECONDS,
) -> None:
    """Wait for a condition."""
    try:
        async with asyncio.timeout(within):
            while True:
                found = is_so()
                if await found if inspect.isawaitable(found) else found:
                    return
                await asyncio.sleep(_LOOK_EVERY_SECONDS)
    except TimeoutError:
        raise AssertionError(f"After {within} s still not: {what}") from None


def until(is_so: Callable[[], bool], *, what: str, within: float = PATIENCE_SECONDS) -> float:
    """Wait for a condition that other processes bring about; returns how long it took."""
    begun = time.monotonic()
    while not is_so():
        if time.monotonic() - begun > within:
            raise AssertionError(f"After {within} s still not: {what}")
        time.sleep(_LOOK_EVERY_SECONDS)
    return time.monotonic() - begun


async def spend(seconds: float) -> None:
    """Take a while, as a handler or a network does: part of what happens, not a wait for it."""
    await asyncio.sleep(seconds)


def spend_at_once(seconds: float) -> None:
    """Take a while, and let nothing else of this thread run."""
    threading.Event().wait(seconds)
