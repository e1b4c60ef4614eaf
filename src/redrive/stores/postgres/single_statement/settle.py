"""Settling in one statement: deliveries that have arrived, and keep nobody behind them waiting."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.model.settlement import Delivered
from redrive.store import Settled
from redrive.stores.postgres.counting import counting
from redrive.stores.sql.counts import DELIVERED, STATE

__all__ = ["DELIVER", "SETTLE", "is_simple"]

# See `sql.leases` for what a current lease is, and why it says `status + 0`.
DELIVER = f"""
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), given AS MATERIALIZED (
    SELECT id, token FROM unnest((SELECT $2::text::bigint[]), (SELECT $3::text::bigint[]))
        AS given (id, token)
), done AS (
    UPDATE redrive.deliveries d
    SET status = 2, settled_at = present.now, worker = NULL, lease_until = NULL, is_alone = false,
        counted = NOT d.counted
    FROM present CROSS JOIN given
    WHERE d.id = given.id AND d.token = given.token AND d.status + 0 = 1
      AND d.lease_until > present.now {{which}}
    RETURNING d.id, d.attempts + d.snoozes > 1 OR d.first_failed_at IS NOT NULL AS was_tried,
              d.destination, d.lane, d.generation, d.counted, {STATE} AS state
), counted AS (
    {counting("done", before="state", after=str(DELIVERED), detail="''")}
), forgotten AS (
    DELETE FROM redrive.exchanges WHERE delivery IN (SELECT id FROM done WHERE was_tried)
){{then}}
"""
# Who is in a lane is left to the steps. It returns what was not settled, which is mostly nothing.
SETTLE = DELIVER.format(
    which="AND d.lane IS NULL",
    then="""
SELECT id FROM given WHERE id NOT IN (SELECT id FROM done)""",
)


def is_simple(batch: Sequence[Settled]) -> bool:
    """Tell whether all have arrived, each once, with nothing more to keep of them."""
    return all(
        isinstance(one.settlement, Delivered) and one.exchange is None for one in batch
    ) and len({one.lease.delivery_id for one in batch}) == len(batch)
