"""Checkpoints of projections: one for each partition, and what is still unread behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.model.event import EventId
from redrive.model.position import LogPosition
from redrive.store import MOST_LAG, Checkpoint, ProjectionFigures, Rebuild
from redrive.stores.projecting import by_projection, serving, together
from redrive.stores.sql.log import SPREAD, end_of_log
from redrive.stores.sql.session import Either, Session, instant

__all__ = [
    "COLUMNS",
    "SEEN",
    "WAITING",
    "all_projections",
    "checkpoint_from",
    "checkpoints",
    "has_unread",
    "in_partitions",
    "rebuild_from",
    "rebuilds",
]

COLUMNS = """projection, version, log_partition, began_time, began_number, time, number,
       event::text, type, applied_at, count, worker, types, is_reset, tables, served_at,
       rebuild"""
_ALL = f"""
SELECT {COLUMNS} FROM redrive.checkpoints ORDER BY projection, version, log_partition
"""
_OF_EVENT = Either(*(one.replace("{}", "coalesce(key, id::text)") for one in SPREAD))
# The last column counts what was looked at, of whichever partition.
_LAG = Either(
    sqlite="""
SELECT type, count(*) FILTER (WHERE {}), min(position) FILTER (WHERE {}), count(*) FROM (
    SELECT key, id, type, position FROM redrive_events WHERE position > ?2
    ORDER BY position LIMIT ?3
) GROUP BY type
""",
    postgres="""
SELECT type, count(*) FILTER (WHERE {}), min(position) FILTER (WHERE {}), count(*) FROM (
    SELECT key, id, type, position FROM redrive.events WHERE (xid, position) > ($1, $2)
    ORDER BY xid, position LIMIT $3
) AS unread GROUP BY type
""",
)
_UNREAD = Either(
    sqlite="""
SELECT type, count(*) FILTER (WHERE {}), count(*) FROM (
    SELECT key, id, type FROM redrive_events WHERE position > ?2 AND position <= ?4
    ORDER BY position LIMIT ?5
) GROUP BY type
""",
    postgres="""
SELECT type, count(*) FILTER (WHERE {}), count(*) FROM (
    SELECT key, id, type FROM redrive.events
    WHERE (xid, position) > ($1, $2) AND (xid, position) <= ($3, $4)
    ORDER BY xid, position LIMIT $5
) AS unread GROUP BY type
""",
)
_SHARES = Either(
    sqlite=f"""
SELECT type, {_OF_EVENT.sqlite} % ?5 AS part, count(*) FROM redrive_events
WHERE position > ?2 AND position <= ?4 GROUP BY type, part
""",
    postgres=f"""
SELECT type, {_OF_EVENT.postgres} % $5::integer AS part, count(*) FROM redrive.events
WHERE (xid, position) > ($1, $2) AND (xid, position) <= ($3, $4) GROUP BY type, part
""",
)
_DOCUMENT = (
    "SELECT convert_to(document, 'UTF8'), id::text, type FROM redrive.events WHERE position = $1"
)
WAITING = """
SELECT count(*), count(DISTINCT d.lane)
FROM redrive.deliveries d JOIN redrive.destinations t ON t.id = d.destination
WHERE t.name = $1 AND d.status <> 2 AND d.resolution IS NULL
"""
_WAITING_BY_PARTITION = Either(
    *(one.replace("{}", "coalesce(e.key, e.id::text)") for one in SPREAD)
).within("""
SELECT {} % $2::integer AS part, count(*), count(DISTINCT d.lane)
FROM redrive.deliveries d JOIN redrive.destinations t ON t.id = d.destination
JOIN redrive.events e ON e.position = d.position
WHERE t.name = $1 AND d.status <> 2 AND d.resolution IS NULL GROUP BY part
""")
SEEN = "SELECT seen_at FROM redrive.workers WHERE id = $1"
_rebuilds = msgspec.json.Decoder(Rebuild)
_names = msgspec.json.Decoder(tuple[str, ...])
_ALL_OF_IT = 2**62


def _counting(statement: Either, first: int) -> tuple[Either, Either]:
    """Return a statement that counts everything, and one that counts what is of a partition.

    That takes its number, and how many there are, as values from a `first` one on.
    """
    mine = f"% ${first + 1}::integer = ${first}::integer"
    return (
        Either(
            *(one.replace(" FILTER (WHERE {})", "").replace("key, id, ", "") for one in statement)
        ),
        Either(
            *(
                one.replace("{}", f"{spread} {mine}")
                for one, spread in zip(statement, _OF_EVENT, strict=True)
            )
        ),
    )


_LAGS, _UNREADS = _counting(_LAG, 4), _counting(_UNREAD, 6)


async def checkpoints(session: Session) -> list[Checkpoint]:
    """Return the checkpoint of each partition of all projections, in order."""
    return in_partitions([checkpoint_from(row) for row in await session.fetch(_ALL)])


def in_partitions(found: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Have each checkpoint tell of how many it is one."""
    return [
        one if len(of_one) == 1 else replace(one, partitions=len(of_one))
        for of_one in by_projection(found)
        for one in of_one
    ]


async def all_projections(session: Session) -> list[ProjectionFigures]:
    """Return how all projections are, by name."""
    known = await checkpoints(session)
    serves = serving(known)
    return [
        together(await _figures(session, of_one, is_serving=of_one[0].projection in serves))
        for of_one in by_projection(known)
    ]


async def has_unread(session: Session, checkpoint: Checkpoint, end: LogPosition) -> bool:
    """Tell whether a partition wants something up to a position that it has not read."""
    place = checkpoint.position
    unread = await session.fetch(
        *_of(checkpoint, _UNREADS, place.time, place.number, end.time, end.number, MOST_LAG)
    )
    is_far = sum(looked_at for _, _, looked_at in unread) == MOST_LAG
    return is_far or any(count and checkpoint.wants(kind) for kind, count, _ in unread)


async def rebuilds(session: Session, checkpoint: Checkpoint, partitions: int) -> list[Rebuild]:
    """Return the rebuild of each partition from where one stands, up to the end of the log."""
    place, goal = checkpoint.position, await end_of_log(session)
    stretch = (place.time, place.number, goal.time, goal.number)
    totals = [0] * partitions
    if partitions == 1:
        found = await session.fetch(_UNREADS[0], *stretch, _ALL_OF_IT)
        totals[0] = sum(count for kind, count, _ in found if checkpoint.wants(kind))
    else:
        for kind, part, count in await session.fetch(_SHARES, *stretch, partitions):
            totals[part] += count if checkpoint.wants(kind) else 0
    return [Rebuild(begun_at=session.now, goal=goal, total=total) for total in totals]


async def _figures(
    session: Session, of_one: Sequence[Checkpoint], *, is_serving: bool
) -> list[ProjectionFigures]:
    """Return how each partition of a projection is."""
    name, waiting = of_one[0].projection, {}
    if len(of_one) == 1:
        [waiting[0]] = await session.fetch(WAITING, name)
    else:
        rows = await session.fetch(_WAITING_BY_PARTITION, name, len(of_one))
        waiting = {part: counts for part, *counts in rows}
    return [
        await _part(session, one, waiting.get(one.partition, (0, 0)), is_serving=is_serving)
        for one in of_one
    ]


async def _part(
    session: Session, checkpoint: Checkpoint, waiting: Sequence[int], *, is_serving: bool
) -> ProjectionFigures:
    place = checkpoint.position
    unread = await session.fetch(*_of(checkpoint, _LAGS, place.time, place.number, MOST_LAG))
    wanted = [row for row in unread if row[1] and checkpoint.wants(row[0])]
    oldest_at = None
    if wanted:
        [document] = await session.fetch(_DOCUMENT, min(first for _, _, first, _ in wanted))
        oldest_at = session.codec.event(*document, is_strict=False).published_at
    handed_over, parked = waiting
    return ProjectionFigures(
        checkpoint=checkpoint,
        now=session.now,
        lag={kind: count for kind, count, _, _ in sorted(wanted)},
        is_at_least=sum(looked_at for *_, looked_at in unread) == MOST_LAG,
        oldest_at=oldest_at,
        handed_over=handed_over,
        parked_keys=parked,
        seen_at=instant(await session.value(SEEN, checkpoint.worker)),
        is_serving=is_serving,
    )


def _of(checkpoint: Checkpoint, statements: tuple[Either, Either], *values: object) -> list[Any]:
    """Choose the statement that counts what is of a partition, with all that it is given."""
    if checkpoint.partitions == 1:
        return [statements[0], *values]
    return [statements[1], *values, checkpoint.partition, checkpoint.partitions]


def rebuild_from(column: str | None) -> Rebuild | None:
    """Read how a read model is made anew, if it is."""
    return None if column is None else _rebuilds.decode(column)


def checkpoint_from(row: Sequence[Any]) -> Checkpoint:
    """Read the `COLUMNS` of a checkpoint; of how many it is one, its row does not tell."""
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
        rebuild=rebuild_from(rebuild),
    )
