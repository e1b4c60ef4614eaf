"""Looking into a store: lists, one delivery, groups and lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from redrive.claiming.ready import KINDS
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.settlement import FailureReason
from redrive.store import Group, LaneFigures, Page, Query
from redrive.stores.codec import (
    attempts_from,
    cycles_from,
    edits_from,
    exchange_from,
    fault_from,
    from_micros,
    maybe_raw,
    read_cursor,
    resolution_from,
    write_cursor,
)
from redrive.stores.sql.session import Session, instant
from redrive.stores.sql.store import SqlStore, reading

__all__ = ["STATUSES", "InspectionRole", "conditions_of", "find_deliveries", "with_exchanges"]

STATUSES = (Status.PENDING, Status.IN_FLIGHT, Status.DELIVERED, Status.FAILED)
OF_GROUP = """d.group_id IN (
    WITH RECURSIVE named (id) AS (
        SELECT {}::text
        UNION SELECT a.new FROM named JOIN redrive.group_aliases a ON a.old = named.id
    ) SELECT id FROM named
)"""
"""Whether a letter is in a group, by its name of today or an older one."""

# What is in flight is looked for among the few that are, hence the detours, and not along the lane.
# Who is first itself, in a lane that PostgreSQL has put off, is behind nobody.
_AHEAD = """nullif(coalesce((
    SELECT min(busy.id) FROM redrive.deliveries AS busy
    WHERE busy.status = 1 AND busy.destination + 0 = d.destination AND busy.lane || '' = d.lane
), (
    SELECT min(head.id) FROM redrive.deliveries AS head
    WHERE head.destination = d.destination AND head.lane = d.lane
      AND head.status <> 2 AND head.resolution IS NULL
)), d.id)"""


# PostgreSQL takes nothing out of a document with half of a surrogate pair, which we never write.
_SOURCE = r"""CASE WHEN e.document NOT LIKE '%\\ud%' AND e.document NOT LIKE '%\\uD%'
    THEN redrive.readable(e.document) ->> 'source' END"""

_FIELDS: tuple[tuple[str, str, Callable[[Any], object] | None], ...] = (
    ("id", "d.id", None),
    ("event_id", "e.id::text", None),
    ("event_type", "e.type", None),
    ("destination", "t.name", None),
    ("status", "d.status", STATUSES.__getitem__),
    ("due", "d.due", instant),
    ("enqueued_at", "d.enqueued_at", instant),
    ("generation", "d.generation", None),
    ("attempts", "d.attempts", None),
    ("key", "e.key", None),
    ("tenant", "d.tenant", None),
    ("source", _SOURCE, lambda source: source or ""),
    ("priority", "d.priority", None),
    ("deadline", "d.deadline", instant),
    ("kind", "d.kind", KINDS.__getitem__),
    ("snoozes", "d.snoozes", None),
    ("crashes", "d.crashes", None),
    ("worker", "d.worker", None),
    ("lease_until", "d.lease_until", instant),
    ("settled_at", "d.settled_at", instant),
    ("reason", "d.reason", lambda reason: reason and FailureReason(reason)),
    ("fault", "d.fault", fault_from),
    ("first_failed_at", "d.first_failed_at", instant),
    ("last_failed_at", "d.last_failed_at", instant),
    ("resolution", "d.resolution", resolution_from),
    ("behind", f"CASE WHEN d.is_behind AND d.status = 0 THEN {_AHEAD} END", None),
    ("log", "d.log", attempts_from),
    ("cycles", "d.cycles", cycles_from),
    ("payload", "convert_to(d.payload, 'UTF8')", maybe_raw),
    ("edits", "d.edits", edits_from),
    ("replay", "d.replay", None),
    ("auto_replays", "d.auto_replays", None),
)
"""Each field of a `Delivery`, where it is kept, and how it is read."""

_DELIVERIES = f"""
SELECT {", ".join(column for _, column, _ in _FIELDS)}
FROM redrive.deliveries d
JOIN redrive.events e ON e.position = d.position
JOIN redrive.destinations t ON t.id = d.destination
"""
_FILTERS = {
    "destination": "t.name = {}",
    "key": "e.key = {}",
    "tenant": "d.tenant = {}",
    "reason": "d.reason = {}",
    "error_class": "d.fault ->> 'error_class' = {}",
    "group": OF_GROUP,
}
_ENQUEUED, _SETTLED = "d.enqueued_at", "d.settled_at"
_times = {
    Status.PENDING: _ENQUEUED,
    Status.IN_FLIGHT: _ENQUEUED,
    Status.DELIVERED: _SETTLED,
    Status.FAILED: _SETTLED,
    None: f"coalesce({_SETTLED}, {_ENQUEUED})",
}
"""The time that a list goes by; a list of any status goes by ids."""
_OF_EVENT = "d.position = (SELECT position FROM redrive.events WHERE id = {}::uuid)"
_GROUPS = """
WITH found AS MATERIALIZED (
    SELECT d.id, d.group_id, d.settled_at, d.tenant,
           row_number() OVER (
               PARTITION BY d.group_id ORDER BY d.settled_at DESC, d.id DESC
           ) AS place
    FROM redrive.deliveries d
    JOIN redrive.events e ON e.position = d.position
    JOIN redrive.destinations t ON t.id = d.destination
    WHERE {where}
), largest AS MATERIALIZED (
    SELECT group_id, count(*) AS letters, min(settled_at) AS first_seen,
           max(settled_at) AS last_seen, max(id) FILTER (WHERE place = 1) AS example
    FROM found GROUP BY group_id
    ORDER BY letters DESC, last_seen DESC, group_id COLLATE "C" LIMIT {limit}
), tenants AS (
    SELECT group_id, tenant, count(*) AS letters,
           row_number() OVER (
               PARTITION BY group_id ORDER BY count(*) DESC, tenant COLLATE "C"
           ) AS place
    FROM found WHERE tenant IS NOT NULL GROUP BY group_id, tenant
), top AS (
    SELECT group_id, json_agg(json_build_array(tenant, letters) ORDER BY place) AS tenants
    FROM tenants WHERE place <= 3 GROUP BY group_id
)
SELECT g.group_id, g.letters, g.first_seen, g.last_seen, g.example, d.fault ->> 'title',
       d.fault ->> 'error_class', d.reason, t.name, d.fault ->> 'message', top.tenants
FROM largest g
JOIN redrive.deliveries d ON d.id = g.example
JOIN redrive.destinations t ON t.id = d.destination
LEFT JOIN top ON top.group_id = g.group_id
ORDER BY g.letters DESC, g.last_seen DESC, g.group_id COLLATE "C"
"""
_STOPPED_LANES = """
SELECT t.name, d.lane, d.id, d.settled_at, d.reason, (
    SELECT count(*) FROM redrive.deliveries AS next
    WHERE next.destination = d.destination AND next.lane = d.lane AND next.is_behind
      AND next.status = 0
)
FROM redrive.deliveries d JOIN redrive.destinations t ON t.id = d.destination
WHERE d.status = 3 AND d.resolution IS NULL AND d.lane IS NOT NULL AND NOT EXISTS (
    SELECT FROM redrive.deliveries AS head
    WHERE head.destination = d.destination AND head.lane = d.lane AND head.id < d.id
      AND head.status <> 2 AND head.resolution IS NULL
)
ORDER BY d.settled_at, d.id LIMIT $1
"""

_EXCHANGES = "SELECT delivery, document FROM redrive.exchanges WHERE delivery = ANY ($1::bigint[])"

_tenants = msgspec.json.Decoder(tuple[tuple[str, int], ...])


class InspectionRole(SqlStore):
    """`Inspection`, but for the figures."""

    @reading
    async def find(
        self, session: Session, query: Query, *, cursor: str | None = None, limit: int = 50
    ) -> Page:
        time = _times[query.status]
        conditions, values = conditions_of(session, query, time)
        if cursor is not None:
            changed, number = read_cursor(cursor)
            if query.status is None:
                conditions.append(f"d.id < ${len(values) + 1}")
                values.append(number)
            else:
                conditions.append(f"({time}, d.id) < (${len(values) + 1}, ${len(values) + 2})")
                values += [from_micros(changed), number]
        order = "d.id DESC" if query.status is None else f"{time} DESC, d.id DESC"
        found = await find_deliveries(
            session,
            f"WHERE {' AND '.join(conditions) or 'true'} ORDER BY {order} LIMIT ${len(values) + 1}",
            *values,
            limit + 1,
        )
        page = found[:limit]
        if len(found) <= limit or not page:
            return Page(deliveries=tuple(page))
        last = page[-1]
        place = last.enqueued_at if time == _ENQUEUED else last.settled_at or last.enqueued_at
        return Page(deliveries=tuple(page), next_cursor=write_cursor(place, last.id))

    @reading
    async def find_delivery(self, session: Session, delivery_id: DeliveryId) -> Delivery | None:
        found = await find_deliveries(session, "WHERE d.id = $1", delivery_id)
        return (await with_exchanges(session, found))[0] if found else None

    @reading
    async def groups(self, session: Session, query: Query, *, limit: int = 50) -> Sequence[Group]:
        conditions, values = conditions_of(session, query, _SETTLED)
        statement = _GROUPS.format(
            where=" AND ".join([*conditions, "d.group_id IS NOT NULL"]), limit=f"${len(values) + 1}"
        )
        return tuple(
            Group(
                id=group,
                title=title or "",
                destination=destination,
                error_class=error_class,
                reason=FailureReason(reason),
                count=letters,
                first_seen=instant(first_seen),
                last_seen=instant(last_seen),
                example=example,
                message=message or "",
                top_tenants=_tenants.decode(tenants or "[]"),
            )
            for (
                group,
                letters,
                first_seen,
                last_seen,
                example,
                title,
                error_class,
                reason,
                destination,
                message,
                tenants,
            ) in await session.fetch(statement, *values, limit)
        )

    @reading
    async def lanes(self, session: Session, *, limit: int = 50) -> Sequence[LaneFigures]:
        return [
            LaneFigures(
                destination=destination,
                key=key,
                head=head,
                since=instant(since),
                reason=FailureReason(reason),
                waiting=waiting,
            )
            for destination, key, head, since, reason, waiting in await session.fetch(
                _STOPPED_LANES, limit
            )
        ]


def conditions_of(session: Session, query: Query, time: str) -> tuple[list[str], list[object]]:
    """Return a query as conditions with their values; `time` is the column its times are about."""
    # The status is written out, not bound: only so are the partial indexes used.
    conditions = [] if query.status is None else [f"d.status = {STATUSES.index(query.status)}"]
    values: list[object] = []

    def add(condition: str, value: object) -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values)}"))

    for name, condition in _FILTERS.items():
        if (value := getattr(query, name)) is not None:
            add(condition, str(value))
    if query.event_type is not None:
        add("e.type LIKE {}", session.pattern(query.event_type))
    if query.event_id is not None:
        add(_OF_EVENT, session.event_id(query.event_id))
    if query.text is not None:
        condition, given = session.search(query.text, len(values) + 1)
        conditions.append(condition)
        values += given
    if query.since is not None:
        add(f"{time} >= {{}}", query.since)
    if query.until is not None:
        add(f"{time} < {{}}", query.until)
    if not query.with_resolved and query.status is not None:
        conditions.append("d.resolution IS NULL")
    return conditions, values


async def find_deliveries(session: Session, where: str, *values: object) -> list[Delivery]:
    """Return the deliveries of a condition of ours, whole."""
    return [_delivery(row) for row in await session.fetch(_DELIVERIES + where, *values)]


async def with_exchanges(session: Session, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return the same deliveries, each with what was exchanged in its last try."""
    found = await session.fetch(_EXCHANGES, [one.id for one in deliveries])
    exchanges = {number: exchange_from(document) for number, document in found}
    return [msgspec.structs.replace(one, exchange=exchanges.get(one.id)) for one in deliveries]


def _delivery(row: Sequence[Any]) -> Delivery:
    fields: dict[str, Any] = {
        name: value if read is None else read(value)
        for (name, _, read), value in zip(_FIELDS, row, strict=True)
    }
    return Delivery(**fields)
