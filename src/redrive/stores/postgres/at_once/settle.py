"""Settling at once: deliveries that have arrived, and keep nobody behind them waiting."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.model.settlement import Delivered
from redrive.store import Settled

__all__ = ["SETTLE", "is_simple"]

# See `settling` for what a current lease is; who is in a lane is left to the steps.
SETTLE = """
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), done AS (
    UPDATE redrive.deliveries d
    SET status = 2, settled_at = present.now, worker = NULL, lease_until = NULL, is_alone = false
    FROM present
    CROSS JOIN unnest((SELECT $2::bigint[]), (SELECT $3::bigint[])) AS given (id, token)
    WHERE d.id = given.id AND d.token = given.token AND d.status + 0 = 1
      AND d.lease_until > present.now AND d.lane IS NULL
    RETURNING d.id, d.token, d.attempts + d.snoozes > 1 AS was_tried
), forgotten AS (
    DELETE FROM redrive.exchanges WHERE delivery IN (SELECT id FROM done WHERE was_tried)
)
SELECT id, token FROM done
"""


def is_simple(batch: Sequence[Settled]) -> bool:
    """Tell whether all have arrived, each once."""
    return all(isinstance(one.settlement, Delivered) for one in batch) and len(
        {one.lease.delivery_id for one in batch}
    ) == len(batch)
