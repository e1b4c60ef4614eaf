"""Surveys: what a replay of many would take, and what of it would only wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from redrive.model.delivery import DeliveryId
from redrive.model.settlement import FailureReason
from redrive.store import Query, Selection, Survey
from redrive.stores.sql.causes import is_in_index, letters_of
from redrive.stores.sql.inspection import conditions_of, events_for
from redrive.stores.sql.session import Session

__all__ = ["BLOCKING", "HEAD", "SELECTED", "STOPPED_BLOCKS", "selected", "sendable", "survey"]

_MOST_NAMED = 10
SELECTED = """
FROM redrive.deliveries d
JOIN redrive.events e ON e.position = d.position
JOIN redrive.destinations t ON t.id = d.destination
WHERE {where}
"""
_COUNTED = """
SELECT d.destination, d.reason, d.group_id, d.tenant, count(*), max(d.id)
FROM {letters}{events}
WHERE {where} GROUP BY 1, 2, 3, 4
"""
_IN_LANES = """
SELECT d.id, d.destination FROM {letters}{events}
WHERE {where} AND d.lane IS NOT NULL AND d.status <> 2
"""
# PostgreSQL goes through the lanes first because it is to go in their order.
_BY_LANES = """(
    SELECT * FROM redrive.deliveries /* by lanes */
    WHERE lane IS NOT NULL AND status <> 2 AND resolution IS NULL AND status = 3
    ORDER BY destination, lane, id LIMIT 1000000000
) AS d"""
_FEW = 20_000
"""So many letters are looked at one by one, to see which of them are in lanes."""
_NAMES = "SELECT id, name FROM redrive.destinations WHERE id = ANY ($1::integer[])"
_TITLES = """
SELECT group_id, fault::text FROM redrive.deliveries WHERE id = ANY ($1::bigint[])
"""
# What says it nowhere need not be read to see that it does not.
BLOCKING = """
SELECT id FROM redrive.destinations
WHERE strpos(document, '"block"') > 0 AND document::json ->> 'order' = 'block'
"""
# A partial index is used only by a query that repeats its condition, hence `status <> 2`.
STOPPED_BLOCKS = f"""
SELECT DISTINCT d.destination FROM redrive.deliveries d
WHERE d.destination IN ({BLOCKING})
  AND d.lane IS NOT NULL AND d.status = 3 AND d.status <> 2 AND d.resolution IS NULL
  AND d.id NOT IN (SELECT unnest($1::bigint[]))
"""
HEAD = """
    FROM redrive.deliveries AS head
    WHERE head.destination = d.destination AND head.lane = d.lane
      AND head.status <> 2 AND head.resolution IS NULL
    ORDER BY head.id LIMIT 1
"""
_SENDABLE = f"""
SELECT d.id FROM redrive.deliveries d
WHERE d.id = ANY ($1::bigint[]) AND d.destination NOT IN (SELECT unnest($2::integer[])) AND (
    d.lane IS NULL OR NOT (
        SELECT head.status = 3 AND head.id NOT IN (SELECT unnest($1::bigint[])) {HEAD}
    )
)
ORDER BY d.id
"""


async def survey(session: Session, selection: Selection) -> Survey:
    """Count what is selected, along the index of groups if that knows all that is asked for."""
    where, values = await selected(session, selection)
    query = selection.query or Query()
    is_in = selection.ids is None and is_in_index(query)
    known = {"where": where, "events": f" {events_for(query)}"}
    letters = letters_of(query) if is_in else "redrive.deliveries d"
    rows = await session.fetch(_COUNTED.format(**known, letters=letters), *values)
    if is_in and sum(row[4] for row in rows) > _FEW:
        letters = _BY_LANES
    in_lanes = await session.fetch(_IN_LANES.format(**known, letters=letters), *values)
    names: dict[int, str] = dict(await session.fetch(_NAMES, sorted({row[0] for row in rows})))
    groups = _largest(rows, 2)[:_MOST_NAMED]
    latest = [max(row[5] for row in rows if row[2] == group) for group, _ in groups]
    titles = {
        group: fault.title
        for group, document in await session.fetch(_TITLES, latest)
        if (fault := session.codec.fault(document, is_strict=False)) is not None
    }
    destinations = _largest(rows, 0)
    return Survey(
        selected=sum(count for _, count in destinations),
        destinations=_named([(names[one], count) for one, count in destinations]),
        reasons=tuple((FailureReason(one), count) for one, count in _largest(rows, 1)),
        groups=tuple((group, titles.get(group, ""), count) for group, count in groups),
        tenants=_largest(rows, 3)[:_MOST_NAMED],
        in_lanes=len(in_lanes),
        behind=await _behind(session, dict(destinations), in_lanes),
    )


async def _behind(
    session: Session, counts: dict[int, int], in_lanes: Sequence[tuple[int, int]]
) -> int:
    """Count what would only wait: of the lanes, and of the destinations that stop as a whole."""
    ids = [number for number, _ in in_lanes]
    lanes = Counter(destination for _, destination in in_lanes)
    stopped = {number for (number,) in await session.fetch(STOPPED_BLOCKS, ids)}
    beside = sum(counts.get(number, 0) - lanes[number] for number in stopped)
    return len(ids) - len(await sendable(session, [DeliveryId(one) for one in ids])) + beside


def _largest(rows: Sequence[Sequence[Any]], column: int) -> tuple[tuple[Any, int], ...]:
    """Add up the counts by a column, the most first."""
    counts: Counter[Any] = Counter()
    for row in rows:
        if row[column] is not None:
            counts[row[column]] += row[4]
    return _named(counts.items())


def _named(counts: Iterable[tuple[Any, int]]) -> tuple[tuple[Any, int], ...]:
    return tuple(sorted(counts, key=lambda one: (-one[1], one[0])))


async def selected(session: Session, selection: Selection) -> tuple[str, list[object]]:
    """Return the condition of a selection, and its values."""
    letters = "d.status = 3 AND d.resolution IS NULL"
    if selection.ids is not None:
        return f"{letters} AND d.id = ANY ($1::bigint[])", [list(selection.ids)]
    if selection.query is None:
        return letters, []
    conditions, values = await conditions_of(session, selection.query, "d.settled_at")
    return " AND ".join([*conditions, letters]), values


async def sendable(session: Session, ids: Sequence[DeliveryId]) -> list[DeliveryId]:
    """Leave out what would only wait behind a dead letter that is not sent with it."""
    numbers = list(ids)
    blocked = [number for (number,) in await session.fetch(STOPPED_BLOCKS, numbers)]
    return [DeliveryId(one) for (one,) in await session.fetch(_SENDABLE, numbers, blocked)]
