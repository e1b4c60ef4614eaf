"""Deliveries that go, in SQL, and what that means for their events."""

from __future__ import annotations

import apsw

__all__ = ["remove"]

_DELETE = """
DELETE FROM redrive_deliveries WHERE id IN (SELECT value ->> 0 FROM json_each(?))
"""
_LEAVE_IDLE = """
INSERT INTO redrive_idle (position, since)
SELECT value ->> 1, max(value ->> 2) FROM json_each(?) WHERE true GROUP BY 1
ON CONFLICT (position) DO UPDATE SET since = max(since, excluded.since)
"""


def remove(connection: apsw.Connection, gone: str) -> int:
    """Delete deliveries, given as a JSON list of their id, position and when they were settled.

    An event is idle from then on when the last of its deliveries has gone.
    """
    if gone == "[]":
        return 0
    connection.execute(_DELETE, (gone,))
    count = connection.changes()
    connection.execute(_LEAVE_IDLE, (gone,))
    return count
