"""Batches of a projection: what is applied of a page, and what becomes deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from redrive.model.delivery import DeliveryId, Lease
from redrive.model.position import LogPosition
from redrive.store import Applying, LoggedEvent, ReaderTurn, Settled
from redrive.stores.sql.giving import give
from redrive.stores.sql.leases import settle
from redrive.stores.sql.replays import EDIT
from redrive.stores.sql.session import Session

__all__ = ["Batch"]

_LANES = """
SELECT DISTINCT lane FROM redrive.deliveries
WHERE destination = $1 AND lane = ANY ($2::text[]) AND status <> 2 AND resolution IS NULL
"""
# What failed comes in flight, to be settled as any other; the others wait behind it.
_HAND_OVER = """
INSERT INTO redrive.deliveries
    (position, destination, status, is_ready, is_behind, kind, priority, generation, tenant, lane,
     due, enqueued_at, token, attempts, worker, lease_until)
SELECT given.position, $1::integer, given.status, true, given.status = 0, 0, 0, $2::text,
       given.tenant, given.lane, $3::timestamptz, $3::timestamptz, given.status, given.status,
       CASE WHEN given.status = 1 THEN $4::text END,
       CASE WHEN given.status = 1 THEN $5::timestamptz END
FROM json_to_recordset($6::json) AS given (
    position bigint, status smallint, tenant text, lane text
)
WHERE true ORDER BY given.position
RETURNING id, position
"""
_EDITS = """
SELECT position, convert_to(payload, 'UTF8'), edits FROM redrive.projection_edits
WHERE projection = $1 AND position = ANY ($2::bigint[])
"""
_LONG_ENOUGH = timedelta(hours=1)
"""The lease of what is settled in the same transaction."""


class Batch:
    """The events of a page on their way: applied, failed, or behind one of their key."""

    def __init__(
        self, session: Session, destination: int, connection: object, apply: Applying
    ) -> None:
        self.applied: list[LoggedEvent] = []
        self.is_strict = False
        """Whether to stop behind the first event that fails."""
        self.stopped_at: LogPosition | None = None
        self.edits: dict[int, tuple[bytes, str]] = {}
        """The payloads that a person gave to events, and how they were changed, by position."""
        self._session = session
        self._destination = destination
        self._connection = connection
        self._apply = apply
        self._handed_over: list[tuple[LoggedEvent, Settled | None]] = []

    async def read_edits(self, projection: str, events: Sequence[LoggedEvent]) -> None:
        """Find out which events a person has edited, for any version of a projection."""
        if events:
            numbers = [one.position.number for one in events]
            for position, payload, edits in await self._session.fetch(_EDITS, projection, numbers):
                self.edits[position] = (payload, edits)

    def as_edited(self, events: Sequence[LoggedEvent]) -> Sequence[LoggedEvent]:
        """Return events with the payloads that a person gave them, if so."""
        return [self._edited(one) for one in events] if self.edits else events

    def _edited(self, logged: LoggedEvent) -> LoggedEvent:
        if logged.position.number not in self.edits:
            return logged
        payload, _ = self.edits[logged.position.number]
        return replace(logged, event=self._session.codec.carrying(logged.event, payload))

    async def apply(self, events: Sequence[LoggedEvent]) -> None:
        """Apply what may be, all at once if nothing fails, else each by itself."""
        keys = {one.event.key for one in events if one.event.key is not None}
        lanes = await self._session.fetch(_LANES, self._destination, sorted(keys)) if keys else ()
        parked = {lane for (lane,) in lanes}
        direct = [one for one in events if one.event.key not in parked]
        if not direct or await self._succeeds(direct):
            self.applied = direct
            self._handed_over = [(one, None) for one in events if one.event.key in parked]
            return
        for one in events:
            if one.event.key is not None and one.event.key in parked:
                self._handed_over.append((one, None))
            elif failure := await self._try([one]):
                self._handed_over.append((one, failure))
                if self.is_strict:
                    self.stopped_at = one.position
                    return
                if one.event.key is not None:
                    parked.add(one.event.key)
            else:
                self.applied.append(one)

    async def _succeeds(self, events: Sequence[LoggedEvent]) -> bool:
        return await self._try(events) is None

    async def _try(self, events: Sequence[LoggedEvent]) -> Settled | None:
        """Apply events, and undo it if one fails; returns what was decided about that one."""
        await self._session.fetch("SAVEPOINT redrive_batch")
        answers = await self._apply(self._connection, events, self._session.now)
        failure = next((one for one in answers if one is not None), None)
        if failure is not None:
            await self._session.fetch("ROLLBACK TO SAVEPOINT redrive_batch")
        await self._session.fetch("RELEASE SAVEPOINT redrive_batch")
        return failure

    async def hand_over(
        self, name: str, turn: ReaderTurn, *, generation: str, history: int
    ) -> tuple[tuple[LoggedEvent, Settled | None], ...]:
        """Make deliveries of what was not applied, and settle those that failed."""
        if not self._handed_over:
            return ()
        session = self._session
        rows: list[dict[str, object]] = [
            {
                "position": one.position.number,
                "status": int(settled is not None),
                "tenant": one.event.tenant,
                "lane": one.event.key,
            }
            for one, settled in self._handed_over
        ]
        inserted = await session.fetch(
            _HAND_OVER,
            self._destination,
            generation,
            session.now,
            turn.checkpoint.worker,
            session.now + _LONG_ENOUGH,
            session.records(rows),
        )
        ids = {position: DeliveryId(number) for number, position in inserted}
        await give(session, [(position, None, name) for position in sorted(ids)])
        for position in sorted(ids.keys() & self.edits.keys()):
            payload, edits = self.edits[position]
            await session.fetch(EDIT, ids[position], payload.decode(), edits)
        handed_over = tuple(
            (one, settled and replace(settled, lease=Lease(ids[one.position.number], 1)))
            for one, settled in self._handed_over
        )
        await settle(session, [settled for _, settled in handed_over if settled], history=history)
        behind = [ids[one.position.number] for one, settled in handed_over if not settled]
        await session.line_up(sorted(behind))
        return handed_over
