"""Waiting until somebody waits."""

from __future__ import annotations

import asyncpg

from tests.waiting import eventually

__all__ = ["until_somebody_waits"]

_IS_WAITED_FOR = """
SELECT EXISTS (
    SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))
)
"""


async def until_somebody_waits(person: asyncpg.Connection[asyncpg.Record]) -> None:
    """Return when another connection waits for what this one holds."""
    await eventually(lambda: person.fetchval(_IS_WAITED_FOR), what="somebody waits")
