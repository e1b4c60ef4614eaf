"""Dead letters by what they failed of: counted along one index, told from the latest of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.model.delivery import Status
from redrive.model.settlement import FailureReason
from redrive.store import MOST_COMPARED, Group, Query
from redrive.stores.sealed import Codec
from redrive.stores.sql.inspection import (
    FAR,
    Place,
    conditions_of,
    end_of,
    events_for,
    where_of,
)
from redrive.stores.sql.session import Session, instant
from redrive.stores.sql.store import SqlStore, surveying

__all__ = ["CausesRole", "is_in_index", "letters_of"]

_IN_INDEX = frozenset(
    ("status", "destination", "tenant", "group", "reason", "since", "until", "with_resolved")
)
"""What of a query the index of groups answers by itself."""
_TOP = 3
_KNOWN = "id, group_id, settled_at, destination, tenant, reason, 3 AS status"
_WITH_RESOLVED = f"""(
    SELECT {_KNOWN} FROM redrive.deliveries /* by groups */
    WHERE status = 3 AND resolution IS NULL
    UNION ALL
    SELECT {_KNOWN} FROM redrive.deliveries /* by resolved */
    WHERE resolved_at IS NOT NULL AND status = 3 AND resolution IS NOT NULL
) AS d"""
_LATEST = """(
    SELECT d.id, d.position, d.status, d.destination, d.tenant, d.reason, d.group_id, d.fault,
           d.payload, d.settled_at, d.resolution
    FROM redrive.deliveries d WHERE {where}
    ORDER BY d.settled_at DESC, d.id DESC LIMIT {most}
) AS d"""
_LARGEST = """
SELECT {group}, count(*), min(d.settled_at), max(d.settled_at)
FROM {letters}{events}
{where} AND {group} > '' GROUP BY {group}
ORDER BY count(*) DESC, max(d.settled_at) DESC, {group} COLLATE "C" LIMIT {limit}
"""
# Of several that failed at the same instant, the one with the highest number is the latest.
_EXAMPLES = """
SELECT latest.name, one.id, one.fault::text, one.reason, t.name
FROM (
    SELECT latest.name, (
        SELECT max(d.id) FROM {letters}{events}
        {where} AND d.group_id = latest.name AND d.settled_at = latest.last_seen
    ) AS id
    FROM json_to_recordset({latest}::json) AS latest (name text, last_seen timestamptz)
) AS latest
JOIN redrive.deliveries one ON one.id = latest.id
JOIN redrive.destinations t ON t.id = one.destination
"""
# By the index, the latest of each group are at hand; without it, all are looked at once.
_TENANTS_BY_INDEX = """
SELECT latest.name, (
    SELECT json_agg(tenant)::text FROM (
        SELECT d.tenant FROM {letters} {where} AND d.group_id = latest.name
        ORDER BY d.settled_at DESC, d.id DESC LIMIT {most}
    ) AS compared
) FROM json_to_recordset({latest}::json) AS latest (name text)
"""
_TENANTS = """
SELECT group_id, json_agg(tenant)::text FROM (
    SELECT d.group_id, d.tenant, row_number() OVER (
        PARTITION BY d.group_id ORDER BY d.settled_at DESC, d.id DESC
    ) AS place
    FROM {letters}{events}
    {where} AND d.group_id IN (
        SELECT name FROM json_to_recordset({latest}::json) AS latest (name text)
    )
) AS letters WHERE place <= {most} GROUP BY group_id
"""
_tenants = msgspec.json.Decoder(list[str | None])


class CausesRole(SqlStore):
    """`Inspection.groups`."""

    @surveying
    async def groups(
        self, session: Session, query: Query, *, limit: int = 50, most_read: int | None = None
    ) -> Sequence[Group]:
        end = None
        if most_read is not None and query.text is not None:
            end = await end_of(session, query, None, most_read)
        where, values = await where_of(session, query, None, end)
        letters, given = letters_of(query), values
        if most_read is not None:
            letters, given = await _latest(session, query, end, most_read, values)
        # What the index of groups does not know is not looked for along it.
        is_counted_along = most_read is None and is_in_index(query)
        known: dict[str, object] = {
            "where": where,
            "events": f" {events_for(query)}",
            "group": "d.group_id" if is_counted_along else "coalesce(d.group_id, '')",
            "most": MOST_COMPARED,
        }
        place = f"${len(given) + 1}"
        statement = _LARGEST.format(**known, letters=letters, limit=place)
        largest = await session.fetch(statement, *given, limit)
        latest = session.records(
            [{"name": name, "last_seen": instant(last)} for name, _, _, last in largest]
        )
        statement = _EXAMPLES.format(
            **known, letters=letters_of(query), latest=f"${len(values) + 1}"
        )
        examples = {name: one for name, *one in await session.fetch(statement, *values, latest)}
        statement = _TENANTS_BY_INDEX if is_counted_along else _TENANTS
        found = await session.fetch(
            statement.format(**known, letters=letters, latest=place), *given, latest
        )
        tenants = dict(found)
        return [_group(one, examples[one[0]], tenants[one[0]], session.codec) for one in largest]


async def _latest(
    session: Session, query: Query, end: Place | None, most_read: int, values: Sequence[object]
) -> tuple[str, list[object]]:
    """Return the latest letters that are looked at, and the values with theirs behind them.

    In the order of an index and with a limit: without, the planner would read all there are.
    """
    conditions, given = await conditions_of(session, query.listed, "d.settled_at", values)
    most = most_read
    if query.text is not None:
        most *= FAR
    if end is not None:
        given.append(end[0])
        conditions.append(f"d.settled_at >= ${len(given)}")
    return _LATEST.format(where=" AND ".join(conditions), most=most), given


def letters_of(query: Query) -> str:
    """Return where the letters of a query are, by the index of groups if that knows enough."""
    if query.status is not Status.FAILED or not is_in_index(query):
        return "redrive.deliveries d"
    return _WITH_RESOLVED if query.with_resolved else "redrive.deliveries d /* by groups */"


def is_in_index(query: Query) -> bool:
    """Tell whether the index of groups knows all that a query asks for."""
    asked = (name for name in query.__struct_fields__ if getattr(query, name) is not None)
    return _IN_INDEX.issuperset(asked)


def _group(row: Sequence[Any], example: Sequence[Any], tenants: str, codec: Codec) -> Group:
    group, letters, first_seen, last_seen = row
    number, document, reason, destination = example
    fault = codec.fault(document, is_strict=False)
    counts = Counter(one for one in _tenants.decode(tenants) if one is not None)
    return Group(
        id=group,
        title="" if fault is None else fault.title,
        destination=destination,
        error_class="" if fault is None else fault.error_class,
        reason=FailureReason(reason),
        count=letters,
        first_seen=instant(first_seen),
        last_seen=instant(last_seen),
        example=number,
        message="" if fault is None else fault.message,
        top_tenants=tuple(sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:_TOP]),
    )
