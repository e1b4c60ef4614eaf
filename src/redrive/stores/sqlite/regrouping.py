"""Dead letters whose fingerprint was made in an older way get their group of today, in SQL."""

from __future__ import annotations

from datetime import datetime

import apsw

from redrive.store import Grouping
from redrive.stores.codec import fault_from, json_text, micros
from redrive.stores.sqlite.connection import rows

__all__ = ["OF_GROUP", "has_outdated", "outdated", "regroup"]

OF_GROUP = """d.group_id IN (
    WITH RECURSIVE named (id) AS (
        SELECT ? UNION SELECT a.new FROM named JOIN redrive_group_aliases a ON a.old = named.id
    ) SELECT id FROM named
)"""
"""Whether a letter is in a group, by its name of today or an older one."""

_OUTDATED = """
SELECT d.id, t.name, d.group_id, d.fault
FROM redrive_deliveries d INDEXED BY redrive_grouped
JOIN redrive_destinations t ON t.id = d.destination
WHERE d.status = 3 AND d.group_id < ? ORDER BY d.group_id LIMIT ?
"""


def has_outdated(connection: apsw.Connection, *, before: str) -> bool:
    """Tell whether there is anything to regroup."""
    return bool(rows(connection, _OUTDATED, (before, 1)))


def outdated(connection: apsw.Connection, *, before: str) -> int:
    """Carry out `Housekeeping.outdated`."""
    return int(
        connection.execute(
            "SELECT count(*) FROM redrive_deliveries WHERE status = 3 AND group_id < ?", (before,)
        ).get
    )


def regroup(
    connection: apsw.Connection, grouped: Grouping, *, before: str, limit: int, now: datetime
) -> int:
    """Carry out `Housekeeping.regroup`."""
    found = [
        (number, old, grouped(fault, name))
        for number, name, old, document in rows(connection, _OUTDATED, (before, limit))
        if (fault := fault_from(document)) is not None
    ]
    connection.executemany(
        "UPDATE redrive_deliveries SET group_id = ?, fault = ? WHERE id = ?",
        [(fault.group, json_text(fault), number) for number, _, fault in found],
    )
    aliases = dict.fromkeys((old, fault.group) for _, old, fault in found if old)
    connection.executemany(
        "INSERT INTO redrive_group_aliases VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        [(old, new, micros(now)) for old, new in aliases],
    )
    return len(found)
