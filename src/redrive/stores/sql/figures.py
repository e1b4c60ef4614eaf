"""The store in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from redrive.model.settlement import FailureReason
from redrive.store import (
    MOST_COUNTED,
    DestinationFigures,
    DueWork,
    Figures,
    LetterFigures,
    Serving,
    WorkerFigures,
    Workload,
)
from redrive.stores.codec import destination_from
from redrive.stores.sql.registering import others
from redrive.stores.sql.session import Either, Session, instant
from redrive.stores.sql.store import PRESENT, SqlStore

__all__ = ["FiguresRole", "read_figures"]

_MOST_TENANTS = 10
_NOTHING = (0, 0, 0, 0, 0, 0, 0, 0, 0, None, None)

# The first of a lane that PostgreSQL has put off is behind nobody: the next claim frees it.
_IS_BEHIND = Either(
    sqlite="is_behind",
    postgres="""(is_behind AND id NOT IN (
           SELECT head.id FROM redrive.late_lanes late CROSS JOIN LATERAL (
               SELECT id FROM redrive.deliveries
               WHERE destination = late.destination AND lane = late.lane
                 AND status <> 2 AND resolution IS NULL
               ORDER BY id LIMIT 1
           ) AS head
           WHERE (late.destination, late.lane) NOT IN (
               SELECT destination, lane FROM redrive.deliveries
               WHERE status = 1 AND lane IS NOT NULL
           )
       ))""",
)
_COUNT = _IS_BEHIND.within("""
SELECT destination,
       count(*) FILTER (WHERE status = 0),
       count(*) FILTER (WHERE status = 0 AND due > $1),
       count(*) FILTER (WHERE status = 0 AND due > $1 AND kind = 1),
       count(*) FILTER (WHERE status = 0 AND {}),
       count(*) FILTER (WHERE status = 0 AND NOT {} AND due <= $1),
       count(*) FILTER (WHERE status = 1),
       count(*) FILTER (WHERE status = 2),
       count(*) FILTER (WHERE status = 3 AND resolution IS NULL),
       count(*) FILTER (WHERE status = 3 AND resolution IS NOT NULL),
       min(due) FILTER (WHERE status = 0 AND NOT {} AND due <= $1),
       min(settled_at) FILTER (WHERE status = 3 AND resolution IS NULL)
FROM redrive.deliveries GROUP BY destination
""")
_DESTINATIONS = """
SELECT id, document, pruned, removed_at IS NOT NULL FROM redrive.destinations
ORDER BY name COLLATE "C"
"""
_UNROUTED = Either(
    sqlite="SELECT value FROM redrive_counters WHERE name = 'unrouted'",
    postgres="SELECT count(*) FROM redrive.events WHERE destinations = '{}'",
)
_SERVING = Either(
    sqlite="""CASE WHEN w.destinations IS NOT NULL THEN json_object(
        'destinations', json(w.destinations), 'generations', json(w.generations)
    ) || '' END""",
    postgres="w.serving",
)
_WORKERS = """
SELECT w.id, w.seen_at, (
    SELECT count(*) FROM redrive.deliveries d WHERE d.status = 1 AND d.worker = w.id
) AS in_flight, {} AS serving
FROM redrive.workers w ORDER BY w.id COLLATE "C"
"""
_READY = "status = 0 AND is_ready = true AND is_behind = false AND crashes < 2"
# Each part reads a small index, so that it costs little however long the history.
_ADDED_UP = """
SELECT t.name, due.generation, {number} AS number FROM (
    {ready}
    UNION ALL
    SELECT destination, generation, count(*) FROM redrive.deliveries
    WHERE status = 0 AND is_ready = true AND is_behind = false AND crashes >= 2
    GROUP BY destination, generation
    UNION ALL
    SELECT destination, generation, count(*) FROM (
        SELECT destination, generation FROM redrive.deliveries
        WHERE status = 0 AND is_ready = false AND due <= {now} AND is_behind = false
        ORDER BY due {most}
    ) AS waiting GROUP BY destination, generation
) AS due JOIN redrive.destinations t ON t.id = due.destination
GROUP BY t.name, due.generation ORDER BY t.name COLLATE "C", due.generation COLLATE "C"
"""
_DUE = _ADDED_UP.format(
    number="sum(due.number)::bigint",
    ready=f"""
    SELECT destination, generation, count(*) AS number FROM redrive.deliveries
    WHERE {_READY} GROUP BY destination, generation""",
    now="$1",
    most="",
)
_NEXT_GENERATION = f"""
    SELECT d.generation FROM redrive.deliveries d
    WHERE d.destination = {{line}} AND {_READY} {{after}} ORDER BY d.generation LIMIT 1
"""
# From one generation to the next, and of each only so many: a backlog may be of any length.
_DUE_AT_LEAST = f"""
WITH RECURSIVE lines (destination, generation) AS (
    SELECT t.id, ({_NEXT_GENERATION.format(line="t.id", after="")}) FROM redrive.destinations t
    UNION ALL
    SELECT l.destination, ({
    _NEXT_GENERATION.format(line="l.destination", after="AND d.generation > l.generation")
}) FROM lines l WHERE l.generation IS NOT NULL
)
""" + _ADDED_UP.format(
    number=f"least(sum(due.number), {MOST_COUNTED})::bigint",
    ready=f"""
    SELECT l.destination, l.generation, (
        SELECT count(*) FROM (
            SELECT FROM redrive.deliveries d
            WHERE d.destination = l.destination AND d.generation = l.generation AND {_READY}
            LIMIT {MOST_COUNTED}
        ) AS first
    ) AS number
    FROM lines l WHERE l.generation IS NOT NULL""",
    now="present.now",
    most=f"LIMIT {MOST_COUNTED}",
)
_WORKLOAD = _SERVING.within(f"""
SELECT present.now, (
    SELECT json_agg(json_build_array(name, generation, number))::text
    FROM ({_DUE_AT_LEAST}) AS due
), (
    SELECT json_agg(json_build_array(id, seen_at, in_flight, serving))::text
    FROM ({_WORKERS}) AS workers
)
FROM {PRESENT}
""")
_LETTERS = """
SELECT reason, tenant, count(*), min(settled_at) FROM redrive.deliveries
WHERE status = 3 AND resolution IS NULL GROUP BY reason, tenant
"""
_LATELY = """
SELECT count(*) FROM redrive.deliveries
WHERE status = 3 AND settled_at > $1 AND resolution IS NULL
"""

_serving = msgspec.json.Decoder(Serving)
_due_lines = msgspec.json.Decoder(list[tuple[str, str, int]])
_worker_lines = msgspec.json.Decoder(list[tuple[str, datetime | int, int, str | None]])


class FiguresRole(SqlStore):
    """The figures of `Inspection`."""

    async def figures(self) -> Figures:
        return await self._read(lambda session, _: read_figures(session))

    async def workload(self) -> Workload:
        [(now, due, workers)] = await self._query(_WORKLOAD)
        return Workload(
            now=instant(now),
            due=_due(_due_lines.decode(due or "[]")),
            workers=_workers(_worker_lines.decode(workers or "[]"), others={}),
        )


async def read_figures(session: Session) -> Figures:
    """Count everything; reads every delivery."""
    counts = {row[0]: row[1:] for row in await session.fetch(_COUNT, session.now)}
    known = await session.fetch(_DESTINATIONS)
    counters = dict(await session.fetch("SELECT name, value FROM redrive.counters"))
    return Figures(
        now=session.now,
        events=await session.value("SELECT count(*) FROM redrive.events"),
        unrouted=await session.value(_UNROUTED),
        refused_settlements=counters["refused_settlements"],
        deleted=counters["deleted"],
        destinations=tuple(
            _figures_of(document, counts.get(number, _NOTHING), pruned, is_removed=is_removed)
            for number, document, pruned, is_removed in known
            if number in counts or not is_removed
        ),
        workers=_workers(
            await session.fetch(_SERVING.within(_WORKERS)), others=await others(session)
        ),
        pruned=sum(pruned for _, _, pruned, _ in known),
        pruned_resolved=counters["pruned_resolved"],
        pruned_events=counters["pruned_events"],
        exported=counters["exported"],
        due=_due(await session.fetch(_DUE, session.now)),
        letters=await _letters(session),
    )


def _figures_of(
    document: str, counted: Sequence[Any], pruned: int, *, is_removed: bool
) -> DestinationFigures:
    destination = destination_from(document)
    pending, waiting, retrying, behind, due, in_flight, delivered, failed, resolved = counted[:9]
    oldest_due, oldest_failed = counted[9:]
    return DestinationFigures(
        name=destination.name,
        patterns=destination.patterns,
        pending=pending,
        waiting=waiting,
        retrying=retrying,
        behind=behind,
        due=due,
        in_flight=in_flight,
        delivered=delivered,
        failed=failed,
        resolved=resolved,
        oldest_due=instant(oldest_due),
        pruned=pruned,
        oldest_failed=instant(oldest_failed),
        keep=destination.dead_letters,
        is_removed=bool(is_removed),
    )


def _workers(
    rows: Iterable[Sequence[Any]], *, others: Mapping[str, tuple[str, ...]]
) -> tuple[WorkerFigures, ...]:
    return tuple(
        WorkerFigures(
            id=worker,
            seen_at=instant(seen_at),
            in_flight=in_flight,
            serving=None if serving is None else _serving.decode(serving),
            others=others.get(worker, ()),
        )
        for worker, seen_at, in_flight, serving in rows
    )


def _due(rows: Iterable[Sequence[Any]]) -> tuple[DueWork, ...]:
    return tuple(
        DueWork(destination=destination, generation=generation, count=number)
        for destination, generation, number in rows
    )


async def _letters(session: Session) -> LetterFigures:
    reasons: Counter[FailureReason] = Counter()
    tenants: Counter[str] = Counter()
    oldest: list[Any] = []
    for reason, tenant, number, first in await session.fetch(_LETTERS):
        reasons[FailureReason(reason)] += number
        oldest.append(first)
        if tenant is not None:
            tenants[tenant] += number
    span = LetterFigures().span
    return LetterFigures(
        count=reasons.total(),
        oldest=instant(min(oldest, default=None)),
        lately=await session.value(_LATELY, session.now - span),
        span=span,
        by_reason=tuple(sorted(reasons.items(), key=_most_first)),
        by_tenant=tuple(sorted(tenants.items(), key=_most_first)[:_MOST_TENANTS]),
    )


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    name, number = counted
    return -number, name
