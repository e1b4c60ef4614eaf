"""An idle worker's poll at once: whether there is anything at all, for gates of every kind.

Where nothing is ready, a claim has nothing to decide, whatever limits, tenants or lanes there are.
Only a breaker that is not closed may have to change by being asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.store import Claim, ClaimRequest
from redrive.stores.codec import json_text
from redrive.stores.postgres.codec import numbers
from redrive.stores.postgres.counting import WORK
from redrive.stores.postgres.keeping import HOARDED, has_watch, is_prunable, watch
from redrive.stores.postgres.single_statement.duties import DUTY_COLUMNS, Duties

__all__ = [
    "NOTHING_TO_SORT_OUT",
    "POLL",
    "POLL_AND_KEEP",
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


def _poll(*, steps: str = "", rest: str = "FROM present") -> str:
    # As texts: for an array, the driver asks the server on each new connection what that is.
    destinations = "(SELECT $4::text::integer[])"
    generations = "(SELECT ARRAY(SELECT json_array_elements_text($5::text::json)))"
    return f"""
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), {heard("$2", "$3")}{steps}
SELECT present.now,
       {NOTHING_TO_SORT_OUT}
       AND NOT EXISTS (
           SELECT FROM unnest({destinations}) AS q (destination)
           CROSS JOIN unnest({generations}) AS g (generation)
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
             AND destination = ANY ({destinations}::integer[])
             AND generation = ANY ({generations}::text[])
           ORDER BY due LIMIT 1
       ) AS next_due, {is_on_record("$2")}, {DUTY_COLUMNS}{rest}
"""


POLL = _poll()
POLL_AND_KEEP = _poll(
    steps=f""", {watch("$6", "$2", "$7")}, turn AS MATERIALIZED (
    SELECT {has_watch("$6", "$2")} AS is_ours FROM present
)""",
    rest=f""", turn.*, house.*
FROM present CROSS JOIN turn LEFT JOIN LATERAL (
    SELECT {is_prunable("$8", "$9", "$10", "$11", "$12")}, {HOARDED}, {WORK}
    WHERE turn.is_ours
) AS house ON true""",
)
"""The same for a worker that looks after the house, and will ask all of this if it is its turn."""


def values(request: ClaimRequest, places: Sequence[int]) -> list[object]:
    """Return what `POLL` takes behind the present; `places` are the numbers of the destinations."""
    return [request.worker, request.lease, numbers(places), json_text(request.generations)]


def read(rows: Sequence[Sequence[Any]]) -> tuple[Claim | None, Duties, Sequence[Any]]:
    """Return the claim, unless there is something to decide about, and what was seen besides.

    The last is the present, and what `POLL_AND_KEEP` has found for the house.
    """
    now, is_nothing, next_due, is_heard, *seen = rows[0]
    width = len(Duties._fields) - 1
    duties = Duties(now, *seen[:width])
    claim = Claim(
        now=now, next_due=next_due, is_heard=is_heard, routes_version=duties.routes_version
    )
    return claim if is_nothing else None, duties, (now, *seen[width:])
