"""An idle worker's poll at once: whether there is anything at all, for gates of every kind.

Where nothing is ready, a claim has nothing to decide, whatever limits, tenants or lanes there are.
Only a breaker that is not closed may have to change by being asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.store import Claim, ClaimRequest
from redrive.stores.postgres.single_statement.duties import DUTY_COLUMNS, Duties

__all__ = [
    "NOTHING_TO_SORT_OUT",
    "POLL",
    "heard",
    "is_on_record",
    "read",
    "values",
]


def heard(worker: str, lease: str) -> str:
    """Return the part of a statement by which a worker is heard of, unless it just was."""
    return f"""heard AS (
    UPDATE redrive.workers w SET seen_at = present.now FROM present
    WHERE w.id = {worker} AND w.seen_at < present.now - {lease}::interval / 6
)"""


def is_on_record(worker: str) -> str:
    """Return the column that tells whether anybody can see that a worker lives, and what it serves.

    One that was silent for long has been forgotten, and only a heartbeat brings it back.
    """
    return f"""EXISTS (
           SELECT FROM redrive.workers WHERE id = {worker} AND serving IS NOT NULL
       ) AS is_on_record"""


# In the order of each index and with a limit, so that it is a look at the first of each.
NOTHING_TO_SORT_OUT = """NOT coalesce((
           SELECT due <= present.now FROM redrive.deliveries
           WHERE status = 0 AND NOT is_ready ORDER BY due LIMIT 1
       ), false)
       AND NOT coalesce((
           SELECT true FROM redrive.deliveries
           WHERE status = 0 AND is_ready AND NOT is_behind AND crashes >= 2
           ORDER BY destination, generation, priority DESC, id LIMIT 1
       ), false)
       AND NOT EXISTS (SELECT FROM redrive.late_lanes)"""
"""Whether nothing has come due that is not in its line yet, nobody is suspect and no lane late."""


POLL = f"""
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), {heard("$2", "$3")}
SELECT present.now,
       {NOTHING_TO_SORT_OUT}
       AND NOT EXISTS (
           SELECT FROM unnest((SELECT $4::integer[])) AS q (destination)
           CROSS JOIN unnest((SELECT $5::text[])) AS g (generation)
           CROSS JOIN generate_series(0, 3) AS k (kind)
           CROSS JOIN LATERAL (
               SELECT FROM redrive.deliveries d
               WHERE d.destination = q.destination AND d.generation = g.generation
                 AND d.kind = k.kind
                 AND d.status = 0 AND d.is_ready AND NOT d.is_behind AND d.crashes < 2
               ORDER BY coalesce(d.tenant, '') COLLATE "C", (-d.priority), d.id LIMIT 1
           ) first
       ) AS is_nothing,
       (
           SELECT due FROM redrive.deliveries
           WHERE status = 0 AND NOT is_ready AND NOT is_behind
             AND destination = ANY ((SELECT $4::integer[])::integer[])
             AND generation = ANY ((SELECT $5::text[])::text[])
           ORDER BY due LIMIT 1
       ) AS next_due, {is_on_record("$2")}, {DUTY_COLUMNS}
FROM present
"""


def values(request: ClaimRequest, places: Sequence[int]) -> list[object]:
    """Return what `POLL` takes behind the present; `places` are the numbers of the destinations."""
    return [request.worker, request.lease, list(places), list(request.generations)]


def read(rows: Sequence[Sequence[Any]]) -> tuple[Claim | None, Duties]:
    """Return the claim, unless there is something to decide about, and what was seen besides."""
    now, is_nothing, next_due, is_heartbeat, *seen = rows[0]
    duties = Duties(now, *seen)
    claim = Claim(
        now=now, next_due=next_due, is_heartbeat=is_heartbeat, routes_version=duties.routes_version
    )
    return claim if is_nothing else None, duties
