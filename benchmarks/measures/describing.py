"""What the servers say about themselves: the settings that decide over the figures."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

__all__ = ["describe_postgres", "describe_redis"]

_POSTGRES = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")
_REDIS = ("appendonly", "appendfsync")


async def describe_postgres(url: str) -> Mapping[str, str]:
    """Return the settings of a PostgreSQL server."""
    asyncpg: Any = importlib.import_module("asyncpg")
    connection = await asyncpg.connect(url)
    try:
        shown = {name: await connection.fetchval(f"SHOW {name}") for name in _POSTGRES}
    finally:
        await connection.close()
    return {"server": f"PostgreSQL {shown.pop('server_version').split()[0]}", **shown}


def describe_redis(url: str) -> Mapping[str, str]:
    """Return the settings of a Redis or Valkey server."""
    client: Any = importlib.import_module("redis").Redis.from_url(url, decode_responses=True)
    said = client.info("server")
    name = said.get("server_name", "redis").capitalize()
    number = said.get("valkey_version", said["redis_version"])
    settings = {one: client.config_get(one)[one] for one in _REDIS}
    client.close()
    return {"server": f"{name} {number}", **settings}
