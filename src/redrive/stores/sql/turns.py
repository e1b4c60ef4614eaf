"""Turns: which worker reads for which partition of a projection."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from redrive.model.position import LOG_START, LogPosition
from redrive.store import Checkpoint, ReaderTurn
from redrive.stores.projecting import Owner, divided, to_take, versions_beside
from redrive.stores.sql.checkpoints import COLUMNS, checkpoint_from, checkpoints, rebuilds
from redrive.stores.sql.session import Session

__all__ = ["take_turn"]

_OWNERS = """
SELECT c.log_partition, c.worker, w.id IS NOT NULL, c.token FROM redrive.checkpoints c
LEFT JOIN redrive.workers w ON w.id = c.worker AND w.seen_at > $2
WHERE c.projection = $1 ORDER BY c.log_partition
"""
_BEGIN = """
INSERT INTO redrive.checkpoints
    (projection, version, log_partition, began_time, began_number, time, number, event, type,
     applied_at, count, types, is_reset, token, tables, served_at, rebuild)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8::uuid, $9, $10, $11, $12, $13, $14, $15, $16, $17)
"""
# Whoever applies a batch has the row locked, and so has the turn.
_FREE = """
SELECT c.token FROM redrive.checkpoints c
WHERE c.projection = $1 AND c.log_partition = $2 AND c.token = $3
FOR NO KEY UPDATE OF c SKIP LOCKED
"""
_ALL_FREE = """
SELECT c.log_partition, c.token FROM redrive.checkpoints c WHERE c.projection = $1
ORDER BY c.log_partition FOR NO KEY UPDATE OF c SKIP LOCKED
"""
_TAKE = f"""
UPDATE redrive.checkpoints SET worker = $3, token = token + 1, types = $4, tables = $5
WHERE projection = $1 AND log_partition = $2
RETURNING token, {COLUMNS}
"""


async def take_turn(
    session: Session,
    projection: str,
    *,
    worker: str,
    lease: timedelta,
    begin: LogPosition,
    types: Sequence[str],
    version: int,
    tables: Sequence[str],
    partitions: int,
    held: Collection[int],
) -> ReaderTurn | None:
    """Do what `Projections.take_turn` promises."""
    owners = await _owners(session, projection, lease)
    if len(owners) != partitions:
        await session.hold(projection)
        owners = await _owners(session, projection, lease)
    if not owners:
        new = Checkpoint(
            projection=projection,
            version=version,
            began=begin,
            position=begin,
            types=tuple(types),
        )
        await _begin(session, await _new(session, new, partitions))
        owners = await _owners(session, projection, lease)
    elif len(owners) != partitions:
        if not await _divide(session, projection, owners, worker, partitions):
            return None
        owners = await _owners(session, projection, lease)
    tokens = {one.partition: token for one, token in owners}
    for partition in to_take([one for one, _ in owners], worker, held):
        if not await session.fetch(_FREE, projection, partition, tokens[partition]):
            continue
        wanted, given = session.json(list(types)), session.json(list(tables))
        taken = await session.fetch(_TAKE, projection, partition, worker, wanted, given)
        [(token, *columns)] = taken
        checkpoint = replace(checkpoint_from(columns), partitions=partitions)
        return ReaderTurn(token=token, checkpoint=checkpoint)
    return None


_Owners = list[tuple[Owner, int]]


async def _owners(session: Session, projection: str, lease: timedelta) -> _Owners:
    """Return who has which partition, with the token of the turn."""
    rows = await session.fetch(_OWNERS, projection, session.now - lease)
    return [
        (Owner(partition, worker, bool(is_live)), token)
        for partition, worker, is_live, token in rows
    ]


async def _new(session: Session, new: Checkpoint, partitions: int) -> list[Checkpoint]:
    """Return the checkpoints of a new version; beside others it is being built."""
    parts = [replace(new, partition=one, partitions=partitions) for one in range(partitions)]
    if not versions_beside(new, await checkpoints(session)):
        return parts
    has_pruned = await session.value(
        "SELECT value FROM redrive.counters WHERE name = 'pruned_events'"
    )
    is_partial = new.began == LOG_START and bool(has_pruned)
    begun = await rebuilds(session, new, partitions)
    return [
        replace(part, rebuild=replace(rebuild, is_partial=is_partial))
        for part, rebuild in zip(parts, begun, strict=True)
    ]


async def _divide(
    session: Session, projection: str, owners: _Owners, worker: str, partitions: int
) -> bool:
    """Go on with another number of partitions, unless somebody else reads."""
    if any(one.is_live and one.worker != worker for one, _ in owners):
        return False
    locked = [tuple(row) for row in await session.fetch(_ALL_FREE, projection)]
    if locked != [(one.partition, token) for one, token in owners]:
        return False
    parts = [one for one in await checkpoints(session) if one.projection == projection]
    new = divided(parts, partitions)
    await session.fetch("DELETE FROM redrive.checkpoints WHERE projection = $1", projection)
    await _begin(session, new, token=max(token for _, token in owners) + 1)
    return True


async def _begin(session: Session, parts: Sequence[Checkpoint], *, token: int = 0) -> None:
    for one in parts:
        values: list[Any] = [one.projection, one.version, one.partition]
        values += [one.began.time, one.began.number, one.position.time, one.position.number]
        values += [one.event_id, one.event_type, one.applied_at, one.count]
        values += [session.json(list(one.types)), one.is_reset, token]
        values += [session.json(list(one.tables)), one.served_at]
        values.append(None if one.rebuild is None else session.json(one.rebuild))
        await session.fetch(_BEGIN, *values)
