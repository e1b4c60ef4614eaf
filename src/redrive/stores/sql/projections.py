"""Projections: turns, checkpoints, and batches of which what fails becomes deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId, Lease
from redrive.model.event import EventId
from redrive.model.position import LogPosition
from redrive.store import (
    MOST_LAG,
    Applying,
    Checkpoint,
    LoggedEvent,
    LogNews,
    LogPage,
    Projected,
    Projecting,
    ProjectionFigures,
    ReaderTurn,
    Settled,
    Truncating,
)
from redrive.stores.codec import event_from
from redrive.stores.projecting import still_read
from redrive.stores.sql.audit import record
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.giving import give
from redrive.stores.sql.leases import settle
from redrive.stores.sql.removal import grow, remove
from redrive.stores.sql.session import Either, Session, instant
from redrive.stores.sql.store import PRESENT, SqlStore, reading, writing

__all__ = ["ProjectionsRole", "project"]

_COLUMNS = """projection, version, log_partition, began_time, began_number, time, number,
       event::text, type, applied_at, count, worker, types, is_reset"""
_BEGIN = """
INSERT INTO redrive.checkpoints
    (projection, version, log_partition, began_time, began_number, time, number)
VALUES ($1, 1, 0, $2, $3, $2, $3) ON CONFLICT DO NOTHING
"""
# Whoever applies a batch has the row locked, and so has the turn.
_FREE = """
SELECT c.projection FROM redrive.checkpoints c
WHERE c.projection = $1 AND (c.worker IS NULL OR c.worker = $2 OR NOT EXISTS (
    SELECT FROM redrive.workers w WHERE w.id = c.worker AND w.seen_at > $3
)) FOR NO KEY UPDATE OF c SKIP LOCKED
"""
_TAKE = f"""
UPDATE redrive.checkpoints SET worker = $2, token = token + 1, types = $3 WHERE projection = $1
RETURNING token, {_COLUMNS}
"""
_LOCK = """
SELECT time, number, is_reset FROM redrive.checkpoints
WHERE projection = $1 AND version = $2 AND log_partition = $3 AND token = $4
FOR NO KEY UPDATE
"""
_MOVE = """
UPDATE redrive.checkpoints
SET time = $4, number = $5, count = count + $6, event = coalesce($7::uuid, event),
    type = coalesce($8::text, type), applied_at = coalesce($9::timestamptz, applied_at),
    is_reset = false
WHERE projection = $1 AND version = $2 AND log_partition = $3
"""
_ALL = f"""
SELECT {_COLUMNS} FROM redrive.checkpoints ORDER BY projection, version, log_partition
"""
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
_LOCK_ALL = "SELECT worker FROM redrive.checkpoints WHERE projection = $1 FOR NO KEY UPDATE"
_RESET = """
UPDATE redrive.checkpoints
SET began_time = $2, began_number = $3, time = $2, number = $3, event = NULL, type = NULL,
    applied_at = NULL, count = 0, worker = NULL, token = token + 1, is_reset = true
WHERE projection = $1
"""
_HANDED_OVER = """
SELECT d.id FROM redrive.deliveries d JOIN redrive.destinations t ON t.id = d.destination
WHERE t.name = $1 ORDER BY d.id FOR UPDATE OF d
"""
_NEWS = Either(
    sqlite="""
SELECT projection, token, EXISTS (SELECT 1 FROM redrive_events WHERE position > ?3)
FROM redrive_checkpoints
""",
    postgres=f"""
SELECT projection, token, EXISTS (
    SELECT FROM redrive.events WHERE (xid, position) > ($2, $3) AND xid < redrive.log_end()
) FROM {PRESENT} CROSS JOIN redrive.checkpoints
""",
)
_LAG = Either(
    sqlite="""
SELECT type, count(*), min(position) FROM (
    SELECT type, position FROM redrive_events WHERE position > ?2 ORDER BY position LIMIT ?3
) GROUP BY type
""",
    postgres="""
SELECT type, count(*), min(position) FROM (
    SELECT type, position FROM redrive.events WHERE (xid, position) > ($1, $2)
    ORDER BY xid, position LIMIT $3
) AS unread GROUP BY type
""",
)
_DOCUMENT = (
    "SELECT convert_to(document, 'UTF8'), id::text, type FROM redrive.events WHERE position = $1"
)
_WAITING = """
SELECT count(*), count(DISTINCT d.lane)
FROM redrive.deliveries d JOIN redrive.destinations t ON t.id = d.destination
WHERE t.name = $1 AND d.status <> 2 AND d.resolution IS NULL
"""
_SEEN = "SELECT seen_at FROM redrive.workers WHERE id = $1"
_IS_PAST = Either(
    sqlite="c.number >= e.position", postgres="(c.time, c.number) >= (e.xid, e.position)"
).within("""
SELECT {} AND NOT EXISTS (
    SELECT FROM redrive.deliveries d JOIN redrive.destinations t ON t.id = d.destination
    WHERE d.position = e.position AND t.name = $1 AND d.status <> 2 AND d.resolution IS NULL
) FROM redrive.checkpoints c CROSS JOIN redrive.events e
WHERE c.projection = $1 AND e.id = $2::uuid
""")
_names = msgspec.json.Decoder(tuple[str, ...])
_LONG_ENOUGH = timedelta(hours=1)
"""The lease of what is settled in the same transaction."""


class ProjectionsRole(SqlStore):
    """`Projections`, but for `project`."""

    @writing()
    async def take_turn(
        self,
        session: Session,
        projection: str,
        *,
        worker: str,
        lease: timedelta,
        begin: LogPosition,
        types: Sequence[str] = (),
    ) -> ReaderTurn | None:
        await session.fetch(_BEGIN, projection, begin.time, begin.number)
        if not await session.fetch(_FREE, projection, worker, session.now - lease):
            return None
        wanted = session.json(list(types))
        [(token, *columns)] = await session.fetch(_TAKE, projection, worker, wanted)
        return ReaderTurn(token=token, checkpoint=_checkpoint(columns))

    async def log_news(self, after: LogPosition) -> LogNews:
        rows = await self._query(_NEWS, after.time, after.number)
        return LogNews(
            has_more=any(row[2] for row in rows), tokens={name: token for name, token, _ in rows}
        )

    @writing(notifies=True)
    async def reset_projection(
        self, session: Session, projection: str, *, to: LogPosition, actor: Actor
    ) -> int:
        await _lock(session, projection)
        await session.fetch(_RESET, projection, to.time, to.number)
        gone = await _clear(session, projection)
        detail = f"{projection} behind {to}"
        await record(session, "reset_projection", (), actor, count=gone, detail=detail)
        return gone

    @writing(notifies=True)
    async def drop_projection(
        self, session: Session, projection: str, *, lease: timedelta, actor: Actor
    ) -> int:
        worker = await _lock(session, projection)
        seen_at = instant(await session.value(_SEEN, worker))
        if seen_at is not None and seen_at > session.now - lease:
            raise still_read(projection, worker)
        await session.fetch("DELETE FROM redrive.checkpoints WHERE projection = $1", projection)
        gone = await _clear(session, projection)
        await record(session, "drop_projection", (), actor, count=gone, detail=projection)
        return gone

    @reading
    async def projections(self, session: Session) -> Sequence[ProjectionFigures]:
        return [await _figures(session, _checkpoint(row)) for row in await session.fetch(_ALL)]

    @reading
    async def has_applied(self, session: Session, projection: str, event_id: EventId) -> bool:
        rows = await session.fetch(_IS_PAST, projection, session.event_id(event_id))
        return not rows or bool(rows[0][0])


async def _lock(session: Session, projection: str) -> str:
    """Keep readers from a projection, and return whose turn it is."""
    rows = await session.fetch(_LOCK_ALL, projection)
    if not rows:
        names = [row[0] for row in await session.fetch(_ALL)]
        raise not_found(projection, names, what="projection")
    return rows[0][0] or ""


async def _clear(session: Session, projection: str) -> int:
    """Remove what a projection has handed over, and return how much that was."""
    gone = [DeliveryId(number) for (number,) in await session.fetch(_HANDED_OVER, projection)]
    await remove(session, gone)
    await session.fetch("DELETE FROM redrive.inbox WHERE handler = $1", projection)
    if gone:
        await grow(session, "deleted", len(gone))
    return len(gone)


async def _figures(session: Session, checkpoint: Checkpoint) -> ProjectionFigures:
    place = checkpoint.position
    unread = await session.fetch(_LAG, place.time, place.number, MOST_LAG)
    wanted = [row for row in unread if checkpoint.wants(row[0])]
    oldest_at = None
    if wanted:
        [document] = await session.fetch(_DOCUMENT, min(first for _, _, first in wanted))
        oldest_at = event_from(*document).published_at
    [(handed_over, parked)] = await session.fetch(_WAITING, checkpoint.projection)
    return ProjectionFigures(
        checkpoint=checkpoint,
        now=session.now,
        lag={kind: count for kind, count, _ in sorted(wanted)},
        is_at_least=sum(count for _, count, _ in unread) == MOST_LAG,
        oldest_at=oldest_at,
        handed_over=handed_over,
        parked_keys=parked,
        seen_at=instant(await session.value(_SEEN, checkpoint.worker)),
    )


def _checkpoint(row: Sequence[Any]) -> Checkpoint:
    name, version, partition, began_time, began, time, number, event, kind, at, count = row[:11]
    worker, types, is_reset = row[11:]
    return Checkpoint(
        projection=name,
        version=version,
        partition=partition,
        began=LogPosition(began_time, began),
        position=LogPosition(time, number),
        event_id=None if event is None else EventId(event),
        event_type=kind,
        applied_at=instant(at),
        count=count,
        worker=worker,
        types=_names.decode(types),
        is_reset=bool(is_reset),
    )


async def project(
    session: Session,
    turn: ReaderTurn,
    page: LogPage,
    apply: Applying,
    *,
    after: LogPosition,
    generation: str,
    history: int,
    connection: object,
    truncate: Truncating | None = None,
) -> Projected:
    """Do all of `Projections.project` but the commit; unless it is kept, the caller undoes it."""
    checkpoint = turn.checkpoint
    name = checkpoint.projection
    place = (name, checkpoint.version, checkpoint.partition)
    rows = await session.fetch(_LOCK, *place, turn.token)
    if not rows or LogPosition(*rows[0][:2]) != after:
        return Projected(ending=Projecting.REFUSED)
    gates = await GateRepository.read(session, [name])
    if name not in gates.numbers or await gates.is_stopped(name):
        return Projected(ending=Projecting.HELD)
    if rows[0][2] and truncate is not None:
        await truncate(connection)
    batch = _Batch(session, gates.numbers[name], connection, apply)
    await batch.apply(page.events)
    handed_over = await batch.hand_over(name, turn, generation=generation, history=history)
    last = batch.applied[-1].event if batch.applied else None
    await session.fetch(
        _MOVE,
        *place,
        page.reached.time,
        page.reached.number,
        len(batch.applied),
        None if last is None else last.id,
        None if last is None else last.type,
        None if last is None else session.now,
    )
    return Projected(ending=Projecting.KEPT, handed_over=handed_over)


class _Batch:
    """The events of a page on their way: applied, failed, or behind one of their key."""

    def __init__(
        self, session: Session, destination: int, connection: object, apply: Applying
    ) -> None:
        self.applied: list[LoggedEvent] = []
        self._session = session
        self._destination = destination
        self._connection = connection
        self._apply = apply
        self._handed_over: list[tuple[LoggedEvent, Settled | None]] = []

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
        handed_over = tuple(
            (one, settled and replace(settled, lease=Lease(ids[one.position.number], 1)))
            for one, settled in self._handed_over
        )
        await settle(session, [settled for _, settled in handed_over if settled], history=history)
        behind = [ids[one.position.number] for one, settled in handed_over if not settled]
        await session.line_up(sorted(behind))
        return handed_over
