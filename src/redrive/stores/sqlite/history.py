"""The histories of keys, and the index that they are read by."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.store import LoggedEvent
from redrive.stores.sql.log import read_key
from redrive.stores.sqlite.core import Core

__all__ = ["HistoryRole"]

# No part of the schema: it costs who publishes with keys in bulk a sixth of their time, so only
# files in which somebody reads histories have it.
_INDEX = """
CREATE INDEX IF NOT EXISTS redrive_events_of_key ON redrive_events (key, version)
WHERE key IS NOT NULL
"""


class HistoryRole(Core):
    """`EventLog.read_key`: whoever is the first to ask makes the index."""

    _is_indexed = False

    async def read_key(
        self, key: str, *, after: int = 0, limit: int = 100
    ) -> Sequence[LoggedEvent]:
        if not self._is_indexed:
            await self._write(lambda session, _: session.fetch(_INDEX))
            self._is_indexed = True
        return await self._read(lambda session, _: read_key(session, key, after=after, limit=limit))
