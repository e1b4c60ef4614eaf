"""What the servers say about themselves: the settings that decide over the figures."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

__all__ = ["describe_postgres"]

_SHOWN = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")


async def describe_postgres(url: str) -> Mapping[str, str]:
    """Return the settings that decide, as the server has them."""
    asyncpg: Any = importlib.import_module("asyncpg")
    connection = await asyncpg.connect(url)
    try:
        shown = {name: await connection.fetchval(f"SHOW {name}") for name in _SHOWN}
    finally:
        await connection.close()
    return {"server": f"PostgreSQL {shown.pop('server_version').split()[0]}", **shown}
