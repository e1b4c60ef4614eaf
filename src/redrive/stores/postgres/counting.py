"""How a statement counts what it changes: a few rows in place of a trigger for each of many."""

from __future__ import annotations

__all__ = ["counting"]

_COUNTING = """INSERT INTO redrive.count_changes (destination, state, detail, tenant, number)
    SELECT changed.* FROM (
        SELECT destination, state, generation, count(*) AS number FROM {rows}
        WHERE counted IS NOT NULL GROUP BY 1, 2, 3
    ) AS kept CROSS JOIN LATERAL (
        VALUES (destination, {before}, generation, '', -number),
               (destination, {after}, {detail}, '', number)
    ) AS changed"""


def counting(rows: str, *, before: str, after: str, detail: str = "generation") -> str:
    """Return what counts the deliveries of a CTE in another state than before.

    It has to return their `destination`, `generation`, a `state` that the others are told by, and
    `counted`, which it turned over.
    """
    return _COUNTING.format(rows=rows, before=before, after=after, detail=detail)
