"""Looking into a store: lists, one delivery, and lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from redrive.claiming.ready import KINDS
from redrive.errors import UsageError
from redrive.model.access import Scope
from redrive.model.delivery import Delivery, DeliveryId, Status
from redrive.model.settlement import FailureReason
from redrive.store import LaneFigures, Page, Query
from redrive.stores.codec import (
    from_micros,
    read_cursor,
    resolution_from,
    write_cursor,
)
from redrive.stores.sealed import Codec
from redrive.stores.sql.session import Session, instant
from redrive.stores.sql.store import SqlStore, reading, surveying

__all__ = [
    "FAR",
    "STATUSES",
    "InspectionRole",
    "Place",
    "conditions_of",
    "end_of",
    "events_for",
    "find_deliveries",
    "where_of",
    "with_exchanges",
    "within",
]

STATUSES = (Status.PENDING, Status.IN_FLIGHT, Status.DELIVERED, Status.FAILED)
_NAMES_OF_GROUP = """
WITH RECURSIVE named (id) AS (
    SELECT $1::text UNION SELECT a.new FROM named JOIN redrive.group_aliases a ON a.old = named.id
) SELECT id FROM named
"""
"""A group by its name of today and by older ones."""
_OF_GROUPS = "d.group_id = ANY ({}::text[])"

# What is in flight is looked for among the few that are, hence the detours, and not along the lane.
# Who is first itself, in a lane that PostgreSQL has put off, is behind nobody.
_AHEAD = """nullif(coalesce((
    SELECT min(busy.id) FROM redrive.deliveries AS busy /* by leases */
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
    ("fault", "d.fault", None),
    ("first_failed_at", "d.first_failed_at", instant),
    ("last_failed_at", "d.last_failed_at", instant),
    ("resolution", "d.resolution", resolution_from),
    ("behind", f"CASE WHEN d.is_behind AND d.status = 0 THEN {_AHEAD} END", None),
    ("log", "d.log", None),
    ("cycles", "d.cycles", None),
    ("payload", "convert_to(d.payload, 'UTF8')", None),
    ("edits", "d.edits", None),
    ("replay", "d.replay", None),
    ("auto_replays", "d.auto_replays", None),
    ("rule", "d.rule", lambda rule: rule or ""),
)
"""Each field of a `Delivery`, where it is kept, and how it is read if it is not encrypted."""
_OPENED = {
    "fault": Codec.fault,
    "log": Codec.attempts,
    "cycles": Codec.cycles,
    "edits": Codec.edits,
}

_DELIVERIES = f"""
SELECT {", ".join(column for _, column, _ in _FIELDS)}
FROM redrive.deliveries d
JOIN redrive.events e ON e.position = d.position
JOIN redrive.destinations t ON t.id = d.destination
"""
_FILTERS = {
    "destination": "d.destination = (SELECT id FROM redrive.destinations WHERE name = {})",
    "key": "e.key = {}",
    "tenant": "d.tenant = {}",
    "reason": "d.reason = {}",
    "error_class": "d.fault ->> 'error_class' = {}",
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
# What is pending is in one of these indexes, and in none of them with what is done.
_PARTS = " UNION ALL ".join(
    f"SELECT id FROM redrive.deliveries /* by {index} */ WHERE {which}"
    for index, which in (
        ("ready", "status = 0 AND is_ready = true AND is_behind = false AND crashes < 2"),
        ("suspects", "status = 0 AND is_ready = true AND is_behind = false AND crashes >= 2"),
        ("waiting", "status = 0 AND is_ready = false"),
        (
            "lanes",
            """lane IS NOT NULL AND status <> 2 AND resolution IS NULL
                AND status = 0 AND is_ready = true AND is_behind = true""",
        ),
    )
)
_PENDING = f"({_PARTS}) AS pending JOIN redrive.deliveries d ON d.id = pending.id"
_UNSEEN = (
    "What is kept here is encrypted, so that no text can be searched for in it; look by "
    "destination, type, key, tenant, reason, error class or group instead."
)
FAR = 10
"""How many times as many deliveries are looked at, to find so many that fit but for their text."""
_OF_EVENT = "d.position = (SELECT position FROM redrive.events WHERE id = {}::uuid)"
# Whatever is in a lane is in their index, which has nothing else: history is not looked at.
_STOPPED_LANES = """
SELECT t.name, d.lane, d.id, d.settled_at, d.reason, (
    SELECT count(*) FROM redrive.deliveries AS next
    WHERE next.destination = d.destination AND next.lane = d.lane AND next.is_behind
      AND next.status = 0 AND next.status <> 2 AND next.resolution IS NULL
)
FROM redrive.deliveries d /* by lanes */ JOIN redrive.destinations t ON t.id = d.destination
WHERE d.lane IS NOT NULL AND d.status <> 2 AND d.resolution IS NULL AND d.status = 3
  {of}
  AND NOT EXISTS (
    SELECT FROM redrive.deliveries AS head
    WHERE head.destination = d.destination AND head.lane = d.lane AND head.id < d.id
      AND head.status <> 2 AND head.resolution IS NULL
)
ORDER BY d.settled_at, d.id LIMIT $1
"""
_OF_DESTINATION = "AND d.destination = (SELECT id FROM redrive.destinations WHERE name = $2)"
_EXCHANGES = """
SELECT d.id, x.document, a.document
FROM redrive.deliveries d
LEFT JOIN redrive.exchanges x ON x.delivery = d.id
LEFT JOIN redrive.addressees a ON a.delivery = d.id
WHERE d.id = ANY ($1::bigint[])
"""


class InspectionRole(SqlStore):
    """`Inspection`, but for groups and figures."""

    @reading
    async def find(
        self,
        session: Session,
        query: Query,
        *,
        cursor: str | None = None,
        limit: int = 50,
        most_read: int | None = None,
    ) -> Page:
        end = None if most_read is None else await end_of(session, query, cursor, most_read)
        where, values = await where_of(session, query, cursor, end)
        # First which they are, by little of each, and then all that is known of those few.
        listed = _listed(query, where, limit=f"${len(values) + 1}")
        ids = [number for _, number in await session.fetch(listed, *values, limit + 1)]
        found = await find_deliveries(
            session,
            f"WHERE d.id = ANY ($1::bigint[]) ORDER BY {_order(query)}",
            ids,
            is_strict=False,
        )
        page = found[:limit]
        if len(ids) <= limit or not page:
            return Page(
                deliveries=tuple(page), next_cursor=None if end is None else write_cursor(*end)
            )
        last = page[-1]
        is_under_way = _times[query.status] == _ENQUEUED
        place = last.enqueued_at if is_under_way else last.settled_at or last.enqueued_at
        return Page(deliveries=tuple(page), next_cursor=write_cursor(place, last.id))

    @reading
    async def find_delivery(self, session: Session, delivery_id: DeliveryId) -> Delivery | None:
        found = await find_deliveries(session, "WHERE d.id = $1", delivery_id, is_strict=False)
        return (await with_exchanges(session, found, is_strict=False))[0] if found else None

    @surveying
    async def lanes(
        self, session: Session, *, destination: str | None = None, limit: int = 50
    ) -> Sequence[LaneFigures]:
        named = () if destination is None else (destination,)
        statement = _STOPPED_LANES.format(of=_OF_DESTINATION if named else "")
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
                statement, limit, *named
            )
        ]


Place = tuple[datetime, DeliveryId]
"""Where a list has come to: the time that it goes by, and a delivery."""


def _order(query: Query) -> str:
    return "d.id DESC" if query.status is None else f"{_times[query.status]} DESC, d.id DESC"


async def where_of(
    session: Session, query: Query, cursor: str | None, end: Place | None = None
) -> tuple[str, list[object]]:
    """Return the condition of a query behind a cursor, up to an end, and its values."""
    time = _times[query.status]
    conditions, values = await conditions_of(session, query, time)

    def add(sign: str, instant: datetime, number: int) -> None:
        if query.status is None:
            values.append(number)
            conditions.append(f"d.id {sign} ${len(values)}")
        else:
            values.extend((instant, number))
            conditions.append(f"({time}, d.id) {sign} (${len(values) - 1}, ${len(values)})")

    if cursor is not None:
        changed, number = read_cursor(cursor)
        add("<", from_micros(changed), number)
    if end is not None:
        add(">=", *end)
    return f"WHERE {' AND '.join(conditions) or 'true'}", values


def _listed(query: Query, where: str, *, limit: str, offset: str = "0") -> str:
    """Return what lists deliveries in their order."""
    return f"""
SELECT {_times[query.status]}, d.id FROM {_source(query.status)} {events_for(query)}
{where} ORDER BY {_order(query)} LIMIT {limit} OFFSET {offset}
"""


def events_for(query: Query) -> str:
    """Return what joins the events to `d`, where a query asks for something of theirs."""
    asks_event = any(one is not None for one in (query.key, query.event_type, query.text))
    return "JOIN redrive.events e ON e.position = d.position" if asks_event else ""


def _source(status: Status | None) -> str:
    return _PENDING if status is Status.PENDING else "redrive.deliveries d"


async def end_of(
    session: Session, query: Query, cursor: str | None, most_read: int
) -> Place | None:
    """Return the last delivery to be looked at; `None` if there are no more than that."""
    if query == query.listed:
        return None  # all of them fit, so that no more are looked at than are shown
    if query.text is None:
        return await _nth(session, query.listed, cursor, None, most_read)
    # What the rest leaves may be far apart; of all there are an index alone is looked at.
    end = await _nth(
        session, Query(status=query.status, with_resolved=True), cursor, None, FAR * most_read
    )
    rest = msgspec.structs.replace(query, text=None)
    return await _nth(session, rest, cursor, end, most_read) or end


async def _nth(
    session: Session, query: Query, cursor: str | None, end: Place | None, number: int
) -> Place | None:
    """Return the delivery at this place of a list, if there are more behind it."""
    where, values = await where_of(session, query, cursor, end)
    # Written out: of a number that it does not know PostgreSQL expects a tenth of all there are.
    found = await session.fetch(_listed(query, where, limit="2", offset=str(number - 1)), *values)
    return (instant(found[0][0]), DeliveryId(found[0][1])) if len(found) > 1 else None


async def conditions_of(
    session: Session, query: Query, time: str, before: Sequence[object] = ()
) -> tuple[list[str], list[object]]:
    """Return a query as conditions with their values; `time` is the column its times are about.

    The values come behind those `before` them.
    """
    conditions = _standing(query)
    values = list(before)

    def add(condition: str, value: object) -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values)}"))

    for name, condition in _FILTERS.items():
        if (value := getattr(query, name)) is not None:
            add(condition, str(value))
    if query.group is not None:
        add(*await _of_group(session, query.group))
    if query.event_type is not None:
        add("e.type LIKE {}", session.pattern(query.event_type))
    if query.event_id is not None:
        add(_OF_EVENT, session.event_id(query.event_id))
    if query.text is not None:
        condition, given = _says(session, query.text, len(values) + 1)
        conditions.append(condition)
        values += given
    if query.since is not None:
        add(f"{time} >= {{}}", query.since)
    if query.until is not None:
        add(f"{time} < {{}}", query.until)
    return conditions, values


def _says(session: Session, text: str, first: int) -> tuple[str, list[object]]:
    if session.codec.is_sealing:
        raise UsageError(_UNSEEN)
    return session.search(text, first)


def within(scope: Scope, number: int) -> tuple[str, list[object]]:
    """Return the condition that `d` is in a scope, and its values from this number on."""
    condition, values = "", list[object]()
    if scope.tenant is not None:
        condition += f" AND d.tenant = ${number}"
        values.append(scope.tenant)
    if scope.destinations:
        condition += (
            " AND d.destination IN (SELECT id FROM redrive.destinations "
            f"WHERE name = ANY (${number + len(values)}::text[]))"
        )
        values.append(list(scope.destinations))
    return condition, values


def _standing(query: Query) -> list[str]:
    """Return the conditions that are written out, not bound: partial indexes need that."""
    if query.status is None:
        return []
    status = f"d.status = {STATUSES.index(query.status)}"
    return [status] if query.with_resolved else [status, "d.resolution IS NULL"]


async def _of_group(session: Session, group: str) -> tuple[str, object]:
    """Return the condition of a group; of one that has one name the index has the latest last."""
    names = [name for (name,) in await session.fetch(_NAMES_OF_GROUP, group)]
    return ("d.group_id = {}", group) if len(names) == 1 else (_OF_GROUPS, names)


async def find_deliveries(
    session: Session, where: str, *values: object, is_strict: bool = True
) -> list[Delivery]:
    """Return the deliveries of a condition of ours, whole.

    Without being strict, what cannot be decrypted here says so; that is only to be looked at.
    """
    return [
        _delivery(row, session.codec, is_strict=is_strict)
        for row in await session.fetch(_DELIVERIES + where, *values)
    ]


async def with_exchanges(
    session: Session, deliveries: Sequence[Delivery], *, is_strict: bool = True
) -> list[Delivery]:
    """Return the same deliveries, each with what was exchanged in its last try, and with whom."""
    codec = session.codec
    found = await session.fetch(_EXCHANGES, [one.id for one in deliveries])
    kept = {
        number: {
            "exchange": codec.exchange(exchange, is_strict=is_strict),
            "addressees": codec.addressees(addressees, is_strict=is_strict),
        }
        for number, exchange, addressees in found
    }
    return [msgspec.structs.replace(one, **kept.get(one.id, {})) for one in deliveries]


def _delivery(row: Sequence[Any], codec: Codec, *, is_strict: bool) -> Delivery:
    fields: dict[str, Any] = {
        name: value if read is None else read(value)
        for (name, _, read), value in zip(_FIELDS, row, strict=True)
    }
    for name, opened in _OPENED.items():
        fields[name] = opened(codec, fields[name], is_strict=is_strict)
    fields["payload"] = codec.payload(fields["payload"], fields["event_id"], is_strict=is_strict)
    return Delivery(**fields)
