"""Looking into the SQLite store: lists, one delivery, groups and lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw
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
    json_text,
    maybe_from_micros,
    maybe_raw,
    micros,
    read_cursor,
    resolution_from,
    write_cursor,
)
from redrive.stores.sqlite.connection import rows

__all__ = [
    "STATUSES",
    "conditions_of",
    "find",
    "find_deliveries",
    "find_delivery",
    "groups",
    "lanes",
    "with_exchanges",
]

STATUSES = (Status.PENDING, Status.IN_FLIGHT, Status.DELIVERED, Status.FAILED)

# What is in flight is looked for among the few that are, which is what the plus signs are for, and
# not along the lane.
_HEAD_OF_LANE = """ifnull((
    SELECT busy.id FROM redrive_deliveries AS busy
    WHERE busy.status = 1 AND +busy.destination = d.destination AND +busy.lane = d.lane
), (
    SELECT min(head.id) FROM redrive_deliveries AS head
    WHERE head.destination = d.destination AND head.lane = d.lane
      AND head.status <> 2 AND head.resolution IS NULL
))"""
_FIELDS: tuple[tuple[str, str, Callable[[Any], object] | None], ...] = (
    ("id", "d.id", None),
    ("event_id", "e.id", None),
    ("event_type", "e.type", None),
    ("destination", "t.name", None),
    ("status", "d.status", STATUSES.__getitem__),
    ("due", "d.due", from_micros),
    ("enqueued_at", "d.enqueued_at", from_micros),
    ("generation", "d.generation", None),
    ("attempts", "d.attempts", None),
    ("key", "e.key", None),
    ("tenant", "d.tenant", None),
    ("priority", "d.priority", None),
    ("deadline", "d.deadline", maybe_from_micros),
    ("kind", "d.kind", KINDS.__getitem__),
    ("snoozes", "d.snoozes", None),
    ("crashes", "d.crashes", None),
    ("worker", "d.worker", None),
    ("lease_until", "d.lease_until", maybe_from_micros),
    ("settled_at", "d.settled_at", maybe_from_micros),
    ("reason", "d.reason", lambda reason: reason and FailureReason(reason)),
    ("fault", "d.fault", fault_from),
    ("first_failed_at", "d.first_failed_at", maybe_from_micros),
    ("last_failed_at", "d.last_failed_at", maybe_from_micros),
    ("resolution", "d.resolution", resolution_from),
    ("behind", f"CASE WHEN d.is_behind AND d.status = 0 THEN {_HEAD_OF_LANE} END", None),
    ("log", "d.log", attempts_from),
    ("cycles", "d.cycles", cycles_from),
    ("payload", "CAST(d.payload AS BLOB)", maybe_raw),
    ("edits", "d.edits", edits_from),
    ("replay", "d.replay", None),
    ("auto_replays", "d.auto_replays", None),
)
"""Each field of a `Delivery`, where it is kept, and how it is read."""

_DELIVERIES = f"""
SELECT {", ".join(column for _, column, _ in _FIELDS)}
FROM redrive_deliveries d
JOIN redrive_events e ON e.position = d.position
JOIN redrive_destinations t ON t.id = d.destination
"""
_FILTERS = {
    "destination": "t.name = ?",
    "event_type": "e.type GLOB ?",
    "event_id": "d.position = (SELECT position FROM redrive_events WHERE id = ?)",
    "key": "e.key = ?",
    "tenant": "d.tenant = ?",
    "reason": "d.reason = ?",
    "error_class": "d.fault ->> 'error_class' = ?",
    "group": """d.group_id IN (
        WITH RECURSIVE named (id) AS (
            SELECT ? UNION SELECT a.new FROM named JOIN redrive_group_aliases a ON a.old = named.id
        ) SELECT id FROM named
    )""",
}
_TEXT = """(
    instr(casefold(d.fault ->> 'message'), ?)
    OR instr(casefold(d.fault ->> 'error_class'), ?)
    OR instr(casefold(iif(json_valid(e.document), e.document -> 'payload', '')), ?)
    OR instr(casefold(d.payload), ?)
)"""
_GROUPS = """
WITH found AS MATERIALIZED (
    SELECT d.id, d.group_id, d.settled_at, d.tenant,
           row_number() OVER (
               PARTITION BY d.group_id ORDER BY d.settled_at DESC, d.id DESC
           ) AS place
    FROM redrive_deliveries d
    JOIN redrive_events e ON e.position = d.position
    JOIN redrive_destinations t ON t.id = d.destination
    WHERE {where}
), largest AS MATERIALIZED (
    SELECT group_id, count(*) AS letters, min(settled_at) AS first_seen,
           max(settled_at) AS last_seen, max(CASE place WHEN 1 THEN id END) AS example
    FROM found GROUP BY group_id ORDER BY letters DESC, last_seen DESC, group_id LIMIT ?
), tenants AS (
    SELECT group_id, tenant, count(*) AS letters,
           row_number() OVER (PARTITION BY group_id ORDER BY count(*) DESC, tenant) AS place
    FROM found WHERE tenant IS NOT NULL GROUP BY group_id, tenant
), top AS MATERIALIZED (
    SELECT group_id, json_group_array(json_array(tenant, letters) ORDER BY place) AS tenants
    FROM tenants WHERE place <= 3 GROUP BY group_id
)
SELECT g.group_id, g.letters, g.first_seen, g.last_seen, g.example, d.fault ->> 'title',
       d.fault ->> 'error_class', d.reason, t.name, d.fault ->> 'message', top.tenants
FROM largest g
JOIN redrive_deliveries d ON d.id = g.example
JOIN redrive_destinations t ON t.id = d.destination
LEFT JOIN top ON top.group_id = g.group_id
ORDER BY g.letters DESC, g.last_seen DESC, g.group_id
"""
_STOPPED_LANES = """
SELECT t.name, d.lane, d.id, d.settled_at, d.reason, (
    SELECT count(*) FROM redrive_deliveries AS next
    WHERE next.destination = d.destination AND next.lane = d.lane AND next.is_behind
      AND next.status <> 2 AND next.resolution IS NULL AND next.status = 0
)
FROM redrive_deliveries d JOIN redrive_destinations t ON t.id = d.destination
WHERE d.status = 3 AND d.resolution IS NULL AND d.lane IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM redrive_deliveries AS head
    WHERE head.destination = d.destination AND head.lane = d.lane AND head.id < d.id
      AND head.status <> 2 AND head.resolution IS NULL
)
ORDER BY d.settled_at, d.id LIMIT ?
"""

_tenants = msgspec.json.Decoder(tuple[tuple[str, int], ...])
_EXCHANGES = """
SELECT delivery, document FROM redrive_exchanges
WHERE delivery IN (SELECT value FROM json_each(?))
"""


def find(connection: apsw.Connection, query: Query, *, cursor: str | None, limit: int) -> Page:
    """Carry out `Inspection.find`."""
    is_settled = query.status in {Status.DELIVERED, Status.FAILED}
    time = "d.settled_at" if is_settled else "d.enqueued_at"
    conditions, values = conditions_of(query, time)
    if cursor is not None:
        conditions.append(f"({time}, d.id) < (?, ?)")
        values += read_cursor(cursor)
    found = find_deliveries(
        connection,
        f"WHERE {' AND '.join(conditions)} ORDER BY {time} DESC, d.id DESC LIMIT ?",
        (*values, limit + 1),
    )
    page = found[:limit]
    if len(found) <= limit or not page:
        return Page(deliveries=tuple(page))
    last = page[-1]
    changed_at = last.settled_at if is_settled else last.enqueued_at
    return Page(
        deliveries=tuple(page),
        next_cursor=write_cursor(changed_at or last.enqueued_at, last.id),
    )


def groups(connection: apsw.Connection, query: Query, *, limit: int) -> Sequence[Group]:
    """Carry out `Inspection.groups`."""
    conditions, values = conditions_of(query, "d.settled_at")
    statement = _GROUPS.format(where=" AND ".join([*conditions, "d.group_id IS NOT NULL"]))
    return tuple(
        Group(
            id=group,
            title=title or "",
            destination=destination,
            error_class=error_class,
            reason=FailureReason(reason),
            count=letters,
            first_seen=from_micros(first_seen),
            last_seen=from_micros(last_seen),
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
        ) in rows(connection, statement, (*values, limit))
    )


def conditions_of(query: Query, time: str) -> tuple[list[str], list[object]]:
    """Return a query as conditions with their values; `time` is the column its times are about."""
    # The status is written out, not bound: only so does SQLite use the partial indexes.
    conditions = [f"d.status = {STATUSES.index(query.status)}"]
    values: list[object] = []
    for name, condition in _FILTERS.items():
        if (value := getattr(query, name)) is not None:
            conditions.append(condition)
            values.append(_only_asterisks(value) if name == "event_type" else value)
    if query.text is not None:
        conditions.append(_TEXT)
        values += [query.text.casefold()] * 4
    if query.since is not None:
        conditions.append(f"{time} >= ?")
        values.append(micros(query.since))
    if query.until is not None:
        conditions.append(f"{time} < ?")
        values.append(micros(query.until))
    if not query.with_resolved:
        conditions.append("d.resolution IS NULL")
    return conditions, values


def find_deliveries(
    connection: apsw.Connection, where: str, values: Sequence[Any]
) -> list[Delivery]:
    """Return the deliveries of a condition of ours, whole."""
    return [_delivery(row) for row in rows(connection, _DELIVERIES + where, values)]


def find_delivery(connection: apsw.Connection, delivery_id: DeliveryId) -> Delivery | None:
    """Carry out `Inspection.find_delivery`."""
    found = find_deliveries(connection, "WHERE d.id = ?", (delivery_id,))
    if not found:
        return None
    return with_exchanges(connection, found)[0]


def with_exchanges(connection: apsw.Connection, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return the same deliveries, each with what was exchanged in its last try."""
    found = rows(connection, _EXCHANGES, (json_text([one.id for one in deliveries]),))
    exchanges = {number: exchange_from(document) for number, document in found}
    return [msgspec.structs.replace(one, exchange=exchanges.get(one.id)) for one in deliveries]


def lanes(connection: apsw.Connection, *, limit: int) -> Sequence[LaneFigures]:
    """Carry out `Inspection.lanes`."""
    return [
        LaneFigures(
            destination=destination,
            key=key,
            head=head,
            since=from_micros(since),
            reason=FailureReason(reason),
            waiting=waiting,
        )
        for destination, key, head, since, reason, waiting in rows(
            connection, _STOPPED_LANES, (limit,)
        )
    ]


def _only_asterisks(pattern: str) -> str:
    """Return a pattern of ours for SQLite's GLOB, to which more characters mean something."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


def _delivery(row: Sequence[Any]) -> Delivery:
    fields: dict[str, Any] = {
        name: value if read is None else read(value)
        for (name, _, read), value in zip(_FIELDS, row, strict=True)
    }
    return Delivery(**fields)
