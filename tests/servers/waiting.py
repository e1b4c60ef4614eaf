"""Waiting until somebody waits."""

from __future__ import annotations

import asyncio
import threading

import asyncpg

__all__ = ["until_somebody_waits"]

_IS_WAITED_FOR = """
SELECT EXISTS (
    SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))
)
"""


async def until_somebody_waits(person: asyncpg.Connection[asyncpg.Record]) -> None:
    """Return when another connection waits for what this one holds."""
    async with asyncio.timeout(20):
        while not await person.fetchval(_IS_WAITED_FOR):
            await asyncio.to_thread(threading.Event().wait, 0.01)
