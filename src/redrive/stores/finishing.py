"""Finishing: what was begun is ended, whoever would rather not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["to_the_end"]

T = TypeVar("T")


async def to_the_end(last_step: Coroutine[Any, Any, T]) -> T:
    """Await a last, short step, even when a time-out comes a moment too late.

    Given up in the middle, nobody would know whether a commit has happened. Only who is cancelled
    twice has to go.
    """
    step = asyncio.ensure_future(last_step)
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        if step.cancelled():
            raise
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        step.cancel()
        await asyncio.wait([step])
        raise
