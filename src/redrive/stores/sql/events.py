"""Looking for events, from the end of the log back, and for what became of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from redrive.model.delivery import DeliveryId
from redrive.model.event import EventId
from redrive.model.pattern import matches
from redrive.store import EventDelivery, EventPage, EventQuery, FoundEvent
from redrive.stores.codec import LARGEST_NUMBER, read_place
from redrive.stores.sql.giving import names_of
from redrive.stores.sql.inspection import STATUSES
from redrive.stores.sql.session import Either, Session
from redrive.stores.sql.store import SqlStore, reading

__all__ = ["EventsRole"]

_STRETCH = 2_000
"""How many events a call looks at, at most, if not all of them fit."""
_KEYS = 20_000
"""How many positions it goes back for a key, where there is no index of keys."""
_MOST_DOCUMENTS = 500
_MOST_BYTES = 4 * 2**20

_HEAD = "e.position, e.version, e.id::text, e.type, e.key, e.destinations, octet_length(e.document)"
_BACK = f"""
SELECT {_HEAD} FROM redrive.events e WHERE e.position < $1 ORDER BY e.position DESC LIMIT $2
"""
# A document in which a name does not stand need not be read to see that it is not the tenant's.
_BACK_SAYING = Either(
    *(
        _BACK.replace(" FROM", f", {contains}(e.document, $3) > 0 FROM", 1)
        for contains in ("instr", "strpos")
    )
)
_PLAIN = re.compile(r"[\w. -]+", re.ASCII)
"""What JSON writes in one way only."""
_OF_ID = f"""
SELECT {_HEAD} FROM redrive.events e WHERE e.position < $1 AND e.id = $3::uuid LIMIT $2
"""
# Every event that was never given to anybody is idle.
_UNROUTED = Either(
    sqlite=f"""
SELECT {_HEAD} FROM redrive_idle i CROSS JOIN redrive_events e ON e.position = i.position
WHERE i.position < $1 AND e.destinations = '[]' ORDER BY i.position DESC LIMIT $2
""",
    postgres=f"""
SELECT {_HEAD} FROM redrive.events e
WHERE e.position < $1 AND e.destinations = '{{}}' ORDER BY e.position DESC LIMIT $2
""",
)
_LAST_OF_KEYS = f"(SELECT max(position) FROM redrive_events WHERE position < $1) - {_KEYS}"
# SQLite has no index of keys, but is quick to look through the log.
_OF_KEY = Either(
    sqlite=f"""
SELECT {_HEAD} FROM redrive_events e
WHERE e.key = $3 AND e.position < $1 AND e.position > {_LAST_OF_KEYS}
ORDER BY e.position DESC LIMIT $2
""",
    postgres=f"""
WITH of_key AS MATERIALIZED (
    SELECT position FROM redrive.events WHERE key = $3 AND position < $1
), latest AS MATERIALIZED (
    SELECT position FROM of_key ORDER BY position DESC LIMIT $2
)
SELECT {_HEAD} FROM latest JOIN redrive.events e USING (position) ORDER BY e.position DESC
""",
)
# Where the look for a key has ended, if that is not at the beginning of the log.
_PAST_KEYS = Either(
    sqlite=f"SELECT max(position) + 1 FROM redrive_events WHERE position <= {_LAST_OF_KEYS}",
    postgres="SELECT NULL WHERE $1::bigint IS NULL",
)
_DOCUMENTS = """
SELECT position, convert_to(document, 'UTF8') FROM redrive.events
WHERE position = ANY ($1::bigint[])
"""
_DELIVERIES = """
SELECT d.position, d.id, t.name, d.status, d.resolution IS NOT NULL
FROM redrive.deliveries d JOIN redrive.destinations t ON t.id = d.destination
WHERE d.position = ANY ($1::bigint[]) ORDER BY d.id
"""


class _Head(NamedTuple):
    """What is known of an event without its document."""

    position: int
    version: int | None
    id: str
    type: str
    key: str | None
    destinations: object
    size: int
    may_say: object = True


class EventsRole(SqlStore):
    """`EventSearch`."""

    @reading
    async def find_events(
        self, session: Session, query: EventQuery, *, cursor: str | None = None, limit: int = 50
    ) -> EventPage:
        before = LARGEST_NUMBER if cursor is None else read_place(cursor)
        most = limit + 1 if query == EventQuery() else max(_STRETCH, limit + 1)
        heads = await _heads(session, query, before, most)
        found: list[tuple[int, FoundEvent]] = []
        is_older = query.since is not None and len(heads) == most
        for some in _batches([one for one in heads if _may_fit(one, query)]):
            events = await _events(session, some)
            is_older = is_older and all(_is_older(one, query) for _, one in events)
            found += await _fitting(session, query, events)
            if len(found) > limit:
                page = tuple(one for _, one in found[:limit])
                return EventPage(events=page, next_cursor=str(found[limit - 1][0]))
        return EventPage(
            events=tuple(one for _, one in found),
            next_cursor=await _end(session, query, heads, before, most),
            is_older=is_older,
        )


async def _heads(session: Session, query: EventQuery, before: int, most: int) -> list[_Head]:
    """Return the latest events before a position, by the index that fits the query best."""
    if query.event_id is not None:
        rows = await session.fetch(_OF_ID, before, most, session.event_id(query.event_id))
    elif query.unrouted:
        rows = await session.fetch(_UNROUTED, before, most)
    elif query.key is not None:
        rows = await session.fetch(_OF_KEY, before, most, query.key)
    elif said := [one for one in (query.tenant, query.source) if one and _PLAIN.fullmatch(one)]:
        rows = await session.fetch(_BACK_SAYING, before, most, said[0])
    else:
        rows = await session.fetch(_BACK, before, most)
    return [_Head(*row) for row in rows]


async def _end(
    session: Session, query: EventQuery, heads: Sequence[_Head], before: int, most: int
) -> str | None:
    """Return where to go on; `None` at the beginning of the log."""
    if len(heads) == most:
        return str(heads[-1].position)
    if query.key is None or query.event_id is not None or query.unrouted:
        return None
    past = await session.value(_PAST_KEYS, before)
    return None if past is None else str(past)


def _may_fit(head: _Head, query: EventQuery) -> bool:
    if query.since is not None:
        return True  # its time has to be known, to see when there is no use in looking on
    return (
        bool(head.may_say)
        and query.key in (None, head.key)
        and (query.event_type is None or matches(query.event_type, head.type))
    )


def _is_older(event: FoundEvent, query: EventQuery) -> bool:
    return query.since is not None and event.published_at < query.since


def _batches(heads: Sequence[_Head]) -> Iterator[Sequence[_Head]]:
    """Part events so that the documents of a part fit into memory."""
    batch: list[_Head] = []
    size = 0
    for one in heads:
        if batch and (len(batch) == _MOST_DOCUMENTS or size + one.size > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.size
    if batch:
        yield batch


async def _events(session: Session, heads: Sequence[_Head]) -> list[tuple[int, FoundEvent]]:
    rows = await session.fetch(_DOCUMENTS, [one.position for one in heads])
    documents: dict[int, bytes] = dict(rows)
    events = []
    for one in heads:
        event = session.codec.event(documents[one.position], one.id, one.type, is_strict=False)
        found = FoundEvent(
            id=EventId(one.id),
            type=one.type,
            published_at=event.published_at,
            key=one.key,
            tenant=event.tenant,
            source=event.source,
            version=one.version,
            destinations=names_of(one.destinations),
        )
        events.append((one.position, found))
    return events


async def _fitting(
    session: Session, query: EventQuery, events: Sequence[tuple[int, FoundEvent]]
) -> list[tuple[int, FoundEvent]]:
    fitting = [(position, one) for position, one in events if query.fits(one)]
    deliveries: dict[int, list[EventDelivery]] = {position: [] for position, _ in fitting}
    for position, number, name, status, is_resolved in await session.fetch(
        _DELIVERIES, list(deliveries)
    ):
        one = EventDelivery(
            id=DeliveryId(number),
            destination=name,
            status=STATUSES[status],
            is_resolved=bool(is_resolved),
        )
        deliveries[position].append(one)
    return [
        (position, replace(one, deliveries=tuple(deliveries[position])))
        for position, one in fitting
        if query.fits_one_of(deliveries[position])
    ]
