"""Reading the event log, and the routes by which events are given to destinations."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from redrive.model.destination import Routes
from redrive.model.event import Event, EventId
from redrive.model.position import LOG_START, LogPosition
from redrive.store import LoggedEvent
from redrive.stores.codec import destination_from, event_from
from redrive.stores.sql.session import Either, Session
from redrive.stores.sql.store import SqlStore, reading

__all__ = ["LogRole", "read_events", "read_routes"]

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
        self, session: Session, *, after: LogPosition = LOG_START, limit: int = 100
    ) -> Sequence[LoggedEvent]:
        return await read_events(session, after=after, limit=limit)

    @reading
    async def find_event(self, session: Session, event_id: EventId) -> Event[msgspec.Raw] | None:
        rows = await session.fetch(_FIND, session.event_id(event_id))
        return event_from(*rows[0]) if rows else None

    @reading
    async def routes(self, session: Session) -> Routes:
        return await read_routes(session)


async def read_events(session: Session, *, after: LogPosition, limit: int) -> Sequence[LoggedEvent]:
    """Return the events behind a position, in the order of the log."""
    return tuple(
        LoggedEvent(LogPosition(time, number), event_from(*event), version)
        for time, number, version, *event in await session.fetch(
            _READ, after.time, after.number, limit
        )
    )


async def read_routes(session: Session) -> Routes:
    """Return the destinations, with the version of the routes."""
    rows = await session.fetch(_ROUTES)
    return Routes(
        rows[0][0], [destination_from(document) for _, document in rows if document is not None]
    )
