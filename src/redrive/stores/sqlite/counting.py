"""Kept counts where there is one writer.

What is stored has higher numbers than what was counted, and is not counted before there is some of
it. So to publish costs nothing, nor does it to deliver what is that new.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from redrive.stores.codec import json_text
from redrive.stores.sql.counts import DELIVERED, STATE

__all__ = ["MUCH", "count_delivered", "fold", "is_much"]

MUCH = 4_096
"""So much is counted at once; whoever asks for the counts reads less than that, and a batch."""

_COUNTED = "SELECT value FROM redrive_counters WHERE name = 'counted_deliveries'"
_ADD = """ON CONFLICT DO UPDATE SET number = number + excluded.number"""
_DELIVERED = f"""
WITH done AS MATERIALIZED (
    SELECT d.destination, {STATE} AS state, d.generation, count(*) AS number
    FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value WHERE d.id <= ?
    GROUP BY 1, 2, 3
)
INSERT INTO redrive_counts (destination, state, detail, tenant, number)
SELECT destination, state, generation, '', -number FROM done
UNION ALL SELECT destination, {DELIVERED}, '', '', sum(number) FROM done WHERE true GROUP BY 1
{_ADD}
"""
_FOLD = f"""
INSERT INTO redrive_counts SELECT * FROM redrive_uncounted WHERE true {_ADD};
UPDATE redrive_counters SET value = max(value, ifnull(
    CASE name WHEN 'counted_deliveries' THEN (SELECT max(id) FROM redrive_deliveries)
              ELSE (SELECT max(position) FROM redrive_events) END, 0
)) WHERE name IN ('counted_deliveries', 'counted_events')
"""


def count_delivered(connection: apsw.Connection, ids: Sequence[int]) -> None:
    """Count deliveries that are in flight as delivered; who calls it turns over that they are."""
    counted = connection.execute(_COUNTED).get
    if ids and min(ids) <= counted:
        connection.execute(_DELIVERED, (json_text(ids), counted))


def is_much(last: int, stored: int) -> bool:
    """Tell whether it is time to count, by the number of the last of so many that were stored."""
    return (last - stored) // MUCH != last // MUCH


def fold(connection: apsw.Connection) -> None:
    """Count all that is not counted yet."""
    connection.execute(_FOLD)
