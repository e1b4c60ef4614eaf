"""Projections: turns, checkpoints, and batches of which what fails becomes deliveries."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from msgspec.structs import replace

from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.delivery import DeliveryId
from redrive.model.event import EventId
from redrive.model.position import LogPosition
from redrive.model.projection import partition_of
from redrive.store import (
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
from redrive.stores.projecting import (
    check_swap,
    left_behind,
    no_table,
    serving,
    serving_from,
    still_read,
    still_serving,
    still_used,
    to_read,
    versions_beside,
    went_on,
    whole,
)
from redrive.stores.sql.audit import record
from redrive.stores.sql.batches import Batch
from redrive.stores.sql.checkpoints import (
    COLUMNS,
    SEEN,
    WAITING,
    all_projections,
    checkpoint_from,
    checkpoints,
    in_partitions,
    rebuild_from,
    rebuilds,
)
from redrive.stores.sql.checkpoints import has_unread as _has_unread
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.removal import grow, remove
from redrive.stores.sql.session import Either, Session, instant
from redrive.stores.sql.store import PRESENT, SqlStore, reading, writing
from redrive.stores.sql.turns import take_turn
from redrive.stores.sql.views import BusyTablesError, quoted

__all__ = ["ProjectionsRole", "project"]

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
_REBUILD = """
UPDATE redrive.checkpoints SET rebuild = $3 WHERE projection = $1 AND log_partition = $2
"""
_CANCEL = """
UPDATE redrive.checkpoints SET rebuild = $3, worker = NULL, token = token + 1
WHERE projection = $1 AND log_partition = $2
"""
_SERVE = "UPDATE redrive.checkpoints SET served_at = $2 WHERE projection = $1"
_SERVE_FROM = f"{_SERVE} AND log_partition = $3"
# Who has more than one of them takes them in this order.
_HOLD = f"""
SELECT {COLUMNS} FROM redrive.checkpoints WHERE projection = ANY ($1::text[])
ORDER BY projection, log_partition FOR NO KEY UPDATE
"""
_HAS_BEGUN = """
SELECT 1 FROM redrive.checkpoints WHERE projection = $1 AND NOT is_reset LIMIT 1
"""
_RESET = """
UPDATE redrive.checkpoints
SET began_time = $2, began_number = $3, time = $2, number = $3, event = NULL, type = NULL,
    applied_at = NULL, count = 0, worker = NULL, token = token + 1, is_reset = true, rebuild = $4
WHERE projection = $1 AND log_partition = $5
"""
_HANDED_OVER = """
SELECT d.id FROM redrive.deliveries d JOIN redrive.destinations t ON t.id = d.destination
WHERE t.name = $1 ORDER BY d.id FOR UPDATE OF d
"""
_NEWS = Either(
    sqlite="""
SELECT projection, log_partition, token, EXISTS (SELECT 1 FROM redrive_events WHERE position > ?3)
FROM redrive_checkpoints
""",
    postgres=f"""
SELECT projection, log_partition, token, EXISTS (
    SELECT FROM redrive.events WHERE (xid, position) > ($2, $3) AND xid < redrive.log_end()
) FROM {PRESENT} CROSS JOIN redrive.checkpoints
""",
)
_IS_PAST = Either(
    sqlite="c.number >= e.position", postgres="(c.time, c.number) >= (e.xid, e.position)"
).within("""
SELECT e.key, e.id::text, {} AND NOT EXISTS (
    SELECT FROM redrive.deliveries d JOIN redrive.destinations t ON t.id = d.destination
    WHERE d.position = e.position AND t.name = $1 AND d.status <> 2 AND d.resolution IS NULL
) FROM redrive.checkpoints c CROSS JOIN redrive.events e
WHERE c.projection = $1 AND e.id = $2::uuid ORDER BY c.log_partition
""")


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
        partitions: int = 1,
        held: Collection[int] = (),
    ) -> ReaderTurn | None:
        return await take_turn(
            session,
            projection,
            worker=worker,
            lease=lease,
            begin=begin,
            types=types,
            version=version,
            tables=tables,
            partitions=partitions,
            held=held,
        )

    async def log_news(self, after: LogPosition) -> LogNews:
        rows = await self._query(_NEWS, after.time, after.number)
        return LogNews(
            has_more=any(row[3] for row in rows),
            tokens={(name, partition): token for name, partition, token, _ in rows},
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
        parts = await _lock(session, projection)
        anew = replace(whole(parts), position=to)
        for number, begun in enumerate(await rebuilds(session, anew, len(parts))):
            rebuild = session.json(replace(begun, rate=rate, is_strict=is_strict))
            await session.fetch(_RESET, projection, to.time, to.number, rebuild, number)
        gone = await _clear(session, projection)
        detail = f"{projection} behind {to}"
        await record(session, "reset_projection", (), actor, count=gone, detail=detail)
        return gone

    @writing(notifies=True)
    async def cancel_rebuild(self, session: Session, projection: str, *, actor: Actor) -> bool:
        parts = await _lock(session, projection)
        rebuild = whole(parts).rebuild
        if rebuild is None or not rebuild.is_running:
            return False
        for one in parts:
            if one.rebuild is not None:
                cancelled = session.json(replace(one.rebuild, is_cancelled=True))
                await session.fetch(_CANCEL, projection, one.partition, cancelled)
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
        known = await checkpoints(session)
        serves = serving(known)
        name = next(one.name for one in known if one.projection == projection)
        names = {one.projection for one in known if one.name == name}
        held = await _hold(session, sorted(names))
        parts = [one for one in held if one.projection == projection]
        others = [one for one in held if one.projection in serves]
        checkpoint = whole(parts)
        current = check_swap(checkpoint, whole(others) if others else None)
        for one, end in to_read(parts, others, through):
            if one.is_reset or await _has_unread(session, one, end):
                return Swapping.BEHIND
        if checkpoint.rebuild is not None and checkpoint.rebuild.is_partial:
            return Swapping.PARTIAL
        [(handed_over, _)] = await session.fetch(WAITING, projection)
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
        parts = await _lock(session, projection)
        known = await checkpoints(session)
        checkpoint = whole(parts)
        others = versions_beside(checkpoint, known)
        if others and projection in serving(known):
            raise still_serving(checkpoint)
        for worker in sorted({one.worker for one in parts if one.worker}):
            seen_at = instant(await session.value(SEEN, worker))
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
        if not rows:
            return True
        key, stored_id, _ = rows[0]
        return bool(rows[partition_of(key, stored_id, len(rows))][2])


async def _make_ready(
    session: Session,
    checkpoint: Checkpoint,
    create: Truncating | None,
    truncate: Truncating | None,
    connection: object,
    *,
    is_reset: bool,
) -> None:
    """See to it that there are tables, and that they are empty after a reset."""
    if checkpoint.partitions > 1 and (create is not None or is_reset):
        # One of them makes, or empties, the tables, before any other writes to them.
        await session.hold(checkpoint.projection)
        is_reset = is_reset and not await session.fetch(_HAS_BEGUN, checkpoint.projection)
    if create is not None:
        await _prepare(session, checkpoint, create, connection)
    if is_reset:
        if truncate is None:
            await _empty(session, checkpoint)
        else:
            await truncate(connection)


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
    known = await checkpoints(session)
    if checkpoint.projection not in serving(known):
        return
    if checkpoint.served_at is None or await session.missing_tables(checkpoint.tables):
        await session.point_views(checkpoint.tables, checkpoint.version)
        since = serving_from(session.now, versions_beside(checkpoint, known))
        await session.fetch(_SERVE_FROM, checkpoint.projection, since, checkpoint.partition)


async def _empty(session: Session, checkpoint: Checkpoint) -> None:
    """Empty the tables of a read model; who reads it goes on with what was there."""
    for one in checkpoint.own_tables:
        await session.fetch(f"DELETE FROM {quoted(one)}")


async def _lock(session: Session, projection: str) -> list[Checkpoint]:
    """Keep readers from a projection, and return its partitions."""
    parts = await _hold(session, [projection])
    if not parts:
        names = list(dict.fromkeys(one.projection for one in await checkpoints(session)))
        raise not_found(projection, names, what="projection")
    return parts


async def _hold(session: Session, names: list[str]) -> list[Checkpoint]:
    """Keep readers from projections, and return the partitions of all of them."""
    return in_partitions([checkpoint_from(row) for row in await session.fetch(_HOLD, names)])


async def _clear(session: Session, projection: str) -> int:
    """Remove what a projection has handed over, and return how much that was."""
    gone = [DeliveryId(number) for (number,) in await session.fetch(_HANDED_OVER, projection)]
    await remove(session, gone)
    await session.fetch("DELETE FROM redrive.inbox WHERE handler = $1", projection)
    if gone:
        await grow(session, "deleted", len(gone))
    return len(gone)


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
    rebuild = rebuild_from(rows[0][3])
    if rebuild is not None and await _is_held(session, name, rebuild):
        return Projected(ending=Projecting.HELD)
    await _make_ready(session, checkpoint, create, truncate, connection, is_reset=rows[0][2])
    batch = Batch(session, gates.numbers[name], connection, apply)
    is_running = rebuild is not None and rebuild.is_running
    if rebuild is not None and is_running:
        batch.is_strict = rebuild.is_strict
        await batch.read_edits(checkpoint.name, page.events)
    whole = [one for one in page.events if one.event.erased is None]
    await batch.apply(batch.as_edited(whole))
    handed_over = await batch.hand_over(name, turn, generation=generation, history=history)
    last = batch.applied[-1].event if batch.applied else None
    reached = batch.stopped_at or page.reached
    if rebuild is not None and is_running:
        is_over = (page.is_end and not batch.stopped_at) or reached >= rebuild.goal
        edited = [one.event.id for one in batch.applied if one.position.number in batch.edits]
        erased = len(page.events) - len(whole)
        after_all = went_on(rebuild, edited, erased=erased, is_over=is_over, now=session.now)
        if after_all != rebuild:
            await session.fetch(_REBUILD, name, checkpoint.partition, session.json(after_all))
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
        [(handed_over, _)] = await session.fetch(WAITING, name)
        return bool(handed_over)
    return rebuild.is_cancelled
