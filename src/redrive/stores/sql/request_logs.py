"""The log of requests: a row for what a worker writes at once, and how many there were until it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redrive.model.erasure import ErasureTerms, erased_request
from redrive.model.request_log import LoggedRequest
from redrive.store import RequestBatch
from redrive.stores.sql.erasing import erased_among
from redrive.stores.sql.session import Session
from redrive.stores.sql.store import SqlStore, reading, writing

__all__ = ["RequestLogsRole"]

_ADD = """
INSERT INTO redrive.request_log (destination, counted, body)
SELECT t.id, coalesce((
    SELECT max(r.counted) FROM redrive.request_log r WHERE r.destination = t.id
), 0) + given.size, given.body
FROM json_to_recordset($1::json) AS given (name text, size integer, body text)
JOIN redrive.destinations t ON t.name = given.name
"""
# Two who write at once may count the same numbers: then a few more are kept.
_TRIM = """
DELETE FROM redrive.request_log WHERE id IN (
    SELECT r.id FROM json_to_recordset($1::json) AS given (name text, keep integer)
    JOIN redrive.destinations t ON t.name = given.name
    JOIN redrive.request_log r ON r.destination = t.id AND r.counted <= (
        SELECT max(m.counted) FROM redrive.request_log m WHERE m.destination = t.id
    ) - given.keep
)
"""
_READ = """
SELECT r.body FROM redrive.request_log r JOIN redrive.destinations t ON t.id = r.destination
WHERE t.name = $1 ORDER BY r.counted DESC, r.id DESC LIMIT $2
"""


class RequestLogsRole(SqlStore):
    """`RequestLogs`."""

    @writing()
    async def log_requests(self, session: Session, batches: Mapping[str, RequestBatch]) -> None:
        told = {one.event_id for batch in batches.values() for one in batch.requests if one.error}
        erased = await erased_among(session, told) if told else frozenset()
        added = [
            {
                "name": name,
                "size": len(batch.requests),
                "body": session.json(_without(erased, batch.requests)),
            }
            for name, batch in batches.items()
            if batch.requests
        ]
        if added:
            await session.fetch(_ADD, session.records(added))
            kept = [{"name": name, "keep": batch.keep} for name, batch in batches.items()]
            await session.fetch(_TRIM, session.records(kept))

    @reading
    async def logged_requests(
        self, session: Session, destination: str, *, limit: int
    ) -> Sequence[LoggedRequest]:
        rows = await session.fetch(_READ, destination, limit)
        found = [
            one
            for (body,) in rows
            for one in reversed(session.codec.requests(body, is_strict=False))
        ]
        return found[:limit]


def _without(erased: frozenset[str], requests: Sequence[LoggedRequest]) -> list[LoggedRequest]:
    """Return requests as they are kept: some come when their event has been erased already."""
    return [
        erased_request(one, ErasureTerms()) if one.event_id in erased else one for one in requests
    ]
