"""Reading the event log, and the routes by which events are given to destinations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.model.destination import Routes
from redrive.model.event import Event, EventId
from redrive.model.position import LOG_START, LogPosition
from redrive.store import LoggedEvent, LogPage
from redrive.stores.codec import LARGEST_NUMBER, destination_from
from redrive.stores.sql.session import Either, Session
from redrive.stores.sql.store import SqlStore, reading

__all__ = ["SPREAD", "LogRole", "end_of_log", "read_events", "read_key", "read_routes"]

# SQLite has one writer, so that positions are in the order of commits.
_READ = Either(
    sqlite="""
SELECT 0, position, version, CAST(document AS BLOB), id, type FROM redrive_events
WHERE position > ?2 ORDER BY position LIMIT ?3
""",
    postgres="""
SELECT xid, position, version, document, id::text, type FROM redrive.events
WHERE (xid, position) > ($1, $2) AND xid < redrive.log_end()
ORDER BY xid, position LIMIT $3
""",
)
# Of an event that does not fit, the document stays where it is.
_READ_FITTING = Either(
    *(
        statement.replace(document, f"CASE WHEN {fits} THEN {document} END")
        for statement, document, fits in (
            (
                _READ.sqlite,
                "CAST(document AS BLOB)",
                "EXISTS (SELECT 1 FROM json_each(?4) WHERE redrive_events.type GLOB value)",
            ),
            (_READ.postgres, "document", "type LIKE ANY ($4::text[])"),
        )
    )
)
SPREAD = Either(
    sqlite="spread({})",
    postgres=(
        "('x' || encode(substring(sha256(convert_to({}, 'UTF8')) FOR 2), 'hex'))::bit(16)::integer"
    ),
)
"""`redrive.model.projection.spread` of a text."""
# Only what fits is brought, and where the look has ended: of several partitions each looks at
# everything.
_READ_PARTITION = Either(
    sqlite=f"""
SELECT 0, position, version, CASE WHEN fits THEN CAST(document AS BLOB) END, id, type, number
FROM (
    SELECT *, (json_array_length(?4) = 0
        OR EXISTS (SELECT 1 FROM json_each(?4) WHERE looked_at.type GLOB value))
        AND {SPREAD.sqlite.replace("{}", "ifnull(key, id)")} % ?6 = ?5 AS fits,
        row_number() OVER (ORDER BY position) AS number,
        lead(position) OVER (ORDER BY position) IS NULL AS is_last
    FROM (
        SELECT position, version, id, type, key, document FROM redrive_events
        WHERE position > ?2 ORDER BY position LIMIT ?3
    ) AS looked_at
) WHERE fits OR is_last ORDER BY position
""",
    postgres=f"""
SELECT xid, position, version, CASE WHEN fits THEN document END, id::text, type, number
FROM (
    SELECT *, CASE WHEN cardinality($4::text[]) = 0 OR type LIKE ANY ($4::text[])
        THEN {SPREAD.postgres.replace("{}", "coalesce(key, id::text)")} % $6::integer = $5::integer
        ELSE false END AS fits,
        row_number() OVER (ORDER BY xid, position) AS number,
        lead(position) OVER (ORDER BY xid, position) IS NULL AS is_last
    FROM (
        SELECT xid, position, version, id, type, key, document FROM redrive.events
        WHERE (xid, position) > ($1, $2) AND xid < redrive.log_end()
        ORDER BY xid, position LIMIT $3
    ) AS looked_at
) AS seen WHERE fits OR is_last ORDER BY xid, position
""",
)
_READ_KEY = Either(
    sqlite="""
SELECT 0, position, version, CAST(document AS BLOB), id, type FROM redrive_events
WHERE key = ?1 AND version > ?2 ORDER BY version LIMIT ?3
""",
    postgres="""
SELECT xid, position, version, document, id::text, type FROM redrive.events
WHERE key = $1 AND version > $2 ORDER BY version LIMIT $3
""",
)
# Whatever is stored by a transaction that is still to end has a later time than this.
_END = Either(
    sqlite="SELECT 0, ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'redrive_events'",
    postgres=f"SELECT redrive.log_end() - 1, {LARGEST_NUMBER}",
)
_FIND = """
SELECT convert_to(document, 'UTF8'), id::text, type FROM redrive.events WHERE id = $1::uuid
"""
_ROUTES = """
SELECT c.value, t.document FROM redrive.counters c
LEFT JOIN redrive.destinations t ON t.removed_at IS NULL
WHERE c.name = 'routes_version'
"""


class LogRole(SqlStore):
    """What is read of `EventLog` and `Registry`."""

    @reading
    async def read_events(
        self,
        session: Session,
        *,
        after: LogPosition = LOG_START,
        types: Sequence[str] = (),
        limit: int = 100,
        partition: int = 0,
        partitions: int = 1,
    ) -> LogPage:
        chosen = (partition, partitions)
        return await read_events(session, after=after, types=types, limit=limit, chosen=chosen)

    @reading
    async def read_key(
        self, session: Session, key: str, *, after: int = 0, limit: int = 100
    ) -> Sequence[LoggedEvent]:
        return await read_key(session, key, after=after, limit=limit)

    @reading
    async def end_of_log(self, session: Session) -> LogPosition:
        return await end_of_log(session)

    @reading
    async def find_event(self, session: Session, event_id: EventId) -> Event[msgspec.Raw] | None:
        rows = await session.fetch(_FIND, session.event_id(event_id))
        return session.codec.event(*rows[0]) if rows else None

    @reading
    async def routes(self, session: Session) -> Routes:
        return await read_routes(session)


async def end_of_log(session: Session) -> LogPosition:
    """Return the position behind which nothing can be read yet."""
    [place] = await session.fetch(_END)
    return LogPosition(*place)


async def read_events(
    session: Session,
    *,
    after: LogPosition,
    types: Sequence[str] = (),
    limit: int,
    chosen: tuple[int, int] = (0, 1),
) -> LogPage:
    """Look at so many events behind a position, and return those that fit, in log order.

    Of several partitions one is `chosen`, by its number, and by how many there are.
    """
    place = (after.time, after.number, limit)
    if chosen[1] > 1:
        patterns = [session.pattern(one) for one in types]
        rows = await session.fetch(_READ_PARTITION, *place, patterns, *chosen)
        return LogPage(
            events=_logged(session, [row[:6] for row in rows if row[3] is not None]),
            reached=LogPosition(*rows[-1][:2]) if rows else after,
            is_end=not rows or rows[-1][6] < limit,
        )
    if types:
        rows = await session.fetch(_READ_FITTING, *place, [session.pattern(one) for one in types])
    else:
        rows = await session.fetch(_READ, *place)
    return LogPage(
        events=_logged(session, [row for row in rows if row[3] is not None]),
        reached=LogPosition(*rows[-1][:2]) if rows else after,
        is_end=len(rows) < limit,
    )


async def read_key(session: Session, key: str, *, after: int, limit: int) -> Sequence[LoggedEvent]:
    """Return the events of a key behind a version, in their order."""
    return _logged(session, await session.fetch(_READ_KEY, key, after, limit))


def _logged(session: Session, rows: Sequence[Any]) -> tuple[LoggedEvent, ...]:
    return tuple(
        LoggedEvent(LogPosition(time, number), session.codec.event(*event), version)
        for time, number, version, *event in rows
    )


async def read_routes(session: Session) -> Routes:
    """Return the destinations, with the version of the routes."""
    rows = await session.fetch(_ROUTES)
    await session.look_at_encryption()
    return Routes(
        rows[0][0], [destination_from(document) for _, document in rows if document is not None]
    )
