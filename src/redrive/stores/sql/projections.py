"""Projections: turns, checkpoints, and batches of which what fails becomes deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.event import EventId
from redrive.model.position import LOG_START, LogPosition
from redrive.store import (
    MOST_LAG,
    Applying,
    Checkpoint,
    LogNews,
    LogPage,
    Projected,
    Projecting,
    ProjectionFigures,
    ReaderTurn,
    Rebuild,
    Swapping,
    Truncating,
)
from redrive.stores.codec import event_from
from redrive.stores.projecting import (
    check_swap,
    left_behind,
    no_table,
    serving,
    serving_from,
    still_read,
    still_serving,
    still_used,
    versions_beside,
    went_on,
)
from redrive.stores.sql.audit import record
from redrive.stores.sql.batches import Batch
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.log import end_of_log
from redrive.stores.sql.removal import grow, remove
from redrive.stores.sql.session import Either, Session, instant
from redrive.stores.sql.store import PRESENT, SqlStore, reading, writing
from redrive.stores.sql.views import BusyTablesError, quoted

__all__ = ["ProjectionsRole", "all_projections", "project"]

_COLUMNS = """projection, version, log_partition, began_time, began_number, time, number,
       event::text, type, applied_at, count, worker, types, is_reset, tables, served_at,
       rebuild"""
_BEGIN = """
INSERT INTO redrive.checkpoints
    (projection, version, log_partition, began_time, began_number, time, number, rebuild)
VALUES ($1, $4, 0, $2, $3, $2, $3, $5) ON CONFLICT DO NOTHING
"""
_IS_THERE = "SELECT 1 FROM redrive.checkpoints WHERE projection = $1"
# Whoever applies a batch has the row locked, and so has the turn.
_FREE = """
SELECT c.projection FROM redrive.checkpoints c
WHERE c.projection = $1 AND (c.worker IS NULL OR c.worker = $2 OR NOT EXISTS (
    SELECT FROM redrive.workers w WHERE w.id = c.worker AND w.seen_at > $3
)) FOR NO KEY UPDATE OF c SKIP LOCKED
"""
_TAKE = f"""
UPDATE redrive.checkpoints SET worker = $2, token = token + 1, types = $3, tables = $4
WHERE projection = $1
RETURNING token, {_COLUMNS}
"""
_LOCK = """
SELECT time, number, is_reset, rebuild FROM redrive.checkpoints
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
_CANCEL = """
UPDATE redrive.checkpoints SET rebuild = $2, worker = NULL, token = token + 1 WHERE projection = $1
"""
_GO_ON = "UPDATE redrive.checkpoints SET rebuild = $2 WHERE projection = $1"
_HAS_PRUNED = "SELECT value FROM redrive.counters WHERE name = 'pruned_events'"
_SERVE = "UPDATE redrive.checkpoints SET served_at = $2 WHERE projection = $1"
_HOLD = f"""
SELECT {_COLUMNS} FROM redrive.checkpoints WHERE projection = ANY ($1::text[])
ORDER BY projection FOR NO KEY UPDATE
"""
_LOCK_ALL = "SELECT worker FROM redrive.checkpoints WHERE projection = $1 FOR NO KEY UPDATE"
_RESET = """
UPDATE redrive.checkpoints
SET began_time = $2, began_number = $3, time = $2, number = $3, event = NULL, type = NULL,
    applied_at = NULL, count = 0, worker = NULL, token = token + 1, is_reset = true, rebuild = $4
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
_UNREAD = Either(
    sqlite="""
SELECT type, count(*) FROM (
    SELECT type FROM redrive_events WHERE position > ?2 AND position <= ?4
    ORDER BY position LIMIT ?5
) GROUP BY type
""",
    postgres="""
SELECT type, count(*) FROM (
    SELECT type FROM redrive.events
    WHERE (xid, position) > ($1, $2) AND (xid, position) <= ($3, $4)
    ORDER BY xid, position LIMIT $5
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
_rebuilds = msgspec.json.Decoder(Rebuild)
_ALL_OF_IT = 2**62
_names = msgspec.json.Decoder(tuple[str, ...])


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
        version: int = 1,
        tables: Sequence[str] = (),
    ) -> ReaderTurn | None:
        if not await session.fetch(_IS_THERE, projection):
            new = Checkpoint(
                projection=projection,
                version=version,
                began=begin,
                position=begin,
                types=tuple(types),
            )
            rebuild = None
            if versions_beside(new, await _checkpoints(session)):
                begun = await _rebuild(session, new)
                is_partial = begin == LOG_START and bool(await session.value(_HAS_PRUNED))
                rebuild = session.json(replace(begun, is_partial=is_partial))
            await session.fetch(_BEGIN, projection, begin.time, begin.number, version, rebuild)
        if not await session.fetch(_FREE, projection, worker, session.now - lease):
            return None
        wanted, given = session.json(list(types)), session.json(list(tables))
        [(token, *columns)] = await session.fetch(_TAKE, projection, worker, wanted, given)
        return ReaderTurn(token=token, checkpoint=_checkpoint(columns))

    async def log_news(self, after: LogPosition) -> LogNews:
        rows = await self._query(_NEWS, after.time, after.number)
        return LogNews(
            has_more=any(row[2] for row in rows), tokens={name: token for name, token, _ in rows}
        )

    @writing(notifies=True)
    async def reset_projection(
        self,
        session: Session,
        projection: str,
        *,
        to: LogPosition,
        actor: Actor,
        rate: float | None = None,
        is_strict: bool = False,
    ) -> int:
        await _lock(session, projection)
        [row] = await session.fetch(_HOLD, [projection])
        begun = await _rebuild(session, replace(_checkpoint(row), position=to))
        rebuild = session.json(replace(begun, rate=rate, is_strict=is_strict))
        await session.fetch(_RESET, projection, to.time, to.number, rebuild)
        gone = await _clear(session, projection)
        detail = f"{projection} behind {to}"
        await record(session, "reset_projection", (), actor, count=gone, detail=detail)
        return gone

    @writing(notifies=True)
    async def cancel_rebuild(self, session: Session, projection: str, *, actor: Actor) -> bool:
        await _lock(session, projection)
        [row] = await session.fetch(_HOLD, [projection])
        rebuild = _checkpoint(row).rebuild
        if rebuild is None or not rebuild.is_running:
            return False
        await session.fetch(_CANCEL, projection, session.json(replace(rebuild, is_cancelled=True)))
        await record(session, "cancel_rebuild", (), actor, count=1, detail=projection)
        return True

    async def swap_projection(
        self, projection: str, *, through: LogPosition, accepts_parked: bool, actor: Actor
    ) -> Swapping:
        try:
            return await self._swap(
                projection, through=through, accepts_parked=accepts_parked, actor=actor
            )
        except BusyTablesError:
            return Swapping.BUSY

    @writing(notifies=True)
    async def _swap(
        self,
        session: Session,
        projection: str,
        *,
        through: LogPosition,
        accepts_parked: bool,
        actor: Actor,
    ) -> Swapping:
        await _lock(session, projection)
        known = await _checkpoints(session)
        serves = serving(known)
        name = next(one.name for one in known if one.projection == projection)
        held = [
            _checkpoint(row)
            for row in await session.fetch(
                _HOLD, [one.projection for one in known if one.name == name]
            )
        ]
        checkpoint = next(one for one in held if one.projection == projection)
        current = next((one for one in held if one.projection in serves), None)
        current = check_swap(checkpoint, current)
        end = max(through, current.position)
        if checkpoint.is_reset or await _has_unread(session, checkpoint, end):
            return Swapping.BEHIND
        if checkpoint.rebuild is not None and checkpoint.rebuild.is_partial:
            return Swapping.PARTIAL
        [(handed_over, _)] = await session.fetch(_WAITING, projection)
        if handed_over and not accepts_parked:
            return Swapping.PARKED
        if missing := await session.missing_tables(checkpoint.own_tables):
            raise no_table(projection, missing)
        left = [one for one in current.tables if one not in checkpoint.tables]
        gone = await session.missing_tables(left) if left else []
        if stale := [one for one in left if one not in gone]:
            raise left_behind(checkpoint, current, stale)
        await session.point_views(checkpoint.tables, checkpoint.version)
        await session.fetch(_SERVE, projection, serving_from(session.now, held))
        detail = f"{name} from version {current.version} to {checkpoint.version}"
        await record(session, "swap_projection", (), actor, count=1, detail=detail)
        return Swapping.SWAPPED

    async def drop_projection(self, projection: str, *, lease: timedelta, actor: Actor) -> int:
        try:
            return await self._drop(projection, lease=lease, actor=actor)
        except BusyTablesError as error:
            raise still_used(projection) from error

    @writing(notifies=True)
    async def _drop(
        self, session: Session, projection: str, *, lease: timedelta, actor: Actor
    ) -> int:
        worker = await _lock(session, projection)
        known = await _checkpoints(session)
        checkpoint = next(one for one in known if one.projection == projection)
        others = versions_beside(checkpoint, known)
        if others and projection in serving(known):
            raise still_serving(checkpoint)
        seen_at = instant(await session.value(_SEEN, worker))
        if seen_at is not None and seen_at > session.now - lease:
            raise still_read(projection, worker)
        await session.fetch("DELETE FROM redrive.checkpoints WHERE projection = $1", projection)
        gone = await _clear(session, projection)
        if others:
            await session.drop_tables(checkpoint.own_tables)
        else:
            await session.fetch(
                "DELETE FROM redrive.projection_edits WHERE projection = $1", checkpoint.name
            )
        await record(session, "drop_projection", (), actor, count=gone, detail=projection)
        return gone

    @reading
    async def projections(self, session: Session) -> Sequence[ProjectionFigures]:
        return await all_projections(session)

    @reading
    async def has_applied(self, session: Session, projection: str, event_id: EventId) -> bool:
        rows = await session.fetch(_IS_PAST, projection, session.event_id(event_id))
        return not rows or bool(rows[0][0])


async def all_projections(session: Session) -> list[ProjectionFigures]:
    """Return how all projections are, by name."""
    known = await _checkpoints(session)
    serves = serving(known)
    return [await _figures(session, one, is_serving=one.projection in serves) for one in known]


async def _checkpoints(session: Session) -> list[Checkpoint]:
    return [_checkpoint(row) for row in await session.fetch(_ALL)]


async def _has_unread(session: Session, checkpoint: Checkpoint, end: LogPosition) -> bool:
    """Tell whether a projection wants something up to a position that it has not read."""
    place = checkpoint.position
    unread = await session.fetch(_UNREAD, place.time, place.number, end.time, end.number, MOST_LAG)
    is_far = sum(count for _, count in unread) == MOST_LAG
    return is_far or any(checkpoint.wants(kind) for kind, _ in unread)


async def _rebuild(session: Session, checkpoint: Checkpoint) -> Rebuild:
    """Return the rebuild of a projection from where it stands, up to the present end of the log."""
    place, goal = checkpoint.position, await end_of_log(session)
    unread = await session.fetch(
        _UNREAD, place.time, place.number, goal.time, goal.number, _ALL_OF_IT
    )
    total = sum(count for kind, count in unread if checkpoint.wants(kind))
    return Rebuild(begun_at=session.now, goal=goal, total=total)


async def _prepare(
    session: Session, checkpoint: Checkpoint, create: Truncating, connection: object
) -> None:
    """See to it that a read model has its tables, and that readers have some version of it."""
    if not checkpoint.tables:
        return
    if await session.missing_tables(checkpoint.own_tables):
        await create(connection)
        if missing := await session.missing_tables(checkpoint.own_tables):
            raise no_table(checkpoint.projection, missing)
    known = await _checkpoints(session)
    if checkpoint.projection not in serving(known):
        return
    if checkpoint.served_at is None or await session.missing_tables(checkpoint.tables):
        await session.point_views(checkpoint.tables, checkpoint.version)
        since = serving_from(session.now, versions_beside(checkpoint, known))
        await session.fetch(_SERVE, checkpoint.projection, since)


async def _empty(session: Session, checkpoint: Checkpoint) -> None:
    """Empty the tables of a read model; who reads it goes on with what was there."""
    for one in checkpoint.own_tables:
        await session.fetch(f"DELETE FROM {quoted(one)}")


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


async def _figures(
    session: Session, checkpoint: Checkpoint, *, is_serving: bool
) -> ProjectionFigures:
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
        is_serving=is_serving,
    )


def _checkpoint(row: Sequence[Any]) -> Checkpoint:
    name, version, partition, began_time, began, time, number, event, kind, at, count = row[:11]
    worker, types, is_reset, tables, served_at, rebuild = row[11:]
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
        tables=_names.decode(tables),
        served_at=instant(served_at),
        rebuild=None if rebuild is None else _rebuilds.decode(rebuild),
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
    create: Truncating | None = None,
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
    rebuild = None if rows[0][3] is None else _rebuilds.decode(rows[0][3])
    if rebuild is not None and await _is_held(session, name, rebuild):
        return Projected(ending=Projecting.HELD)
    if create is not None:
        await _prepare(session, checkpoint, create, connection)
    if rows[0][2]:
        if truncate is None:
            await _empty(session, checkpoint)
        else:
            await truncate(connection)
    batch = Batch(session, gates.numbers[name], connection, apply)
    is_running = rebuild is not None and rebuild.is_running
    if rebuild is not None and is_running:
        batch.is_strict = rebuild.is_strict
        await batch.read_edits(checkpoint.name, page.events)
    await batch.apply([batch.as_edited(one) for one in page.events])
    handed_over = await batch.hand_over(name, turn, generation=generation, history=history)
    last = batch.applied[-1].event if batch.applied else None
    reached = batch.stopped_at or page.reached
    if rebuild is not None and is_running:
        is_over = (page.is_end and not batch.stopped_at) or reached >= rebuild.goal
        edited = [one.event.id for one in batch.applied if one.position.number in batch.edits]
        after_all = went_on(rebuild, edited, is_over=is_over, now=session.now)
        if after_all != rebuild:
            await session.fetch(_GO_ON, name, session.json(after_all))
    await session.fetch(
        _MOVE,
        *place,
        reached.time,
        reached.number,
        len(batch.applied),
        None if last is None else last.id,
        None if last is None else last.type,
        None if last is None else session.now,
    )
    return Projected(ending=Projecting.KEPT, handed_over=handed_over, reached=batch.stopped_at)


async def _is_held(session: Session, name: str, rebuild: Rebuild) -> bool:
    """Tell whether a rebuild was cancelled, or waits for a person because it is strict."""
    if rebuild.is_strict and rebuild.is_running:
        [(handed_over, _)] = await session.fetch(_WAITING, name)
        return bool(handed_over)
    return rebuild.is_cancelled
