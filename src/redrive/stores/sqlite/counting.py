"""The SQLite store in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import apsw
import msgspec

from redrive.model.destination import Destination
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
from redrive.stores.codec import destination_from, from_micros, maybe_from_micros, micros
from redrive.stores.sql.registering import others
from redrive.stores.sqlite.append import count
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.session import SqliteSession, finish

__all__ = ["figures", "workload"]

_names = msgspec.json.Decoder(tuple[str, ...])
_MOST_TENANTS = 10
_NOTHING = (0, 0, 0, 0, 0, 0, 0, 0, 0, None, None)

_COUNT = """
SELECT destination,
       sum(status = 0), sum(status = 0 AND due > :now), sum(status = 0 AND due > :now AND kind = 1),
       sum(status = 0 AND is_behind), sum(status = 0 AND NOT is_behind AND due <= :now),
       sum(status = 1), sum(status = 2), sum(status = 3 AND resolution IS NULL),
       sum(status = 3 AND resolution IS NOT NULL),
       min(CASE WHEN status = 0 AND NOT is_behind AND due <= :now THEN due END),
       min(CASE WHEN status = 3 AND resolution IS NULL THEN settled_at END)
FROM redrive_deliveries GROUP BY destination
"""
_DESTINATIONS = """
SELECT id, document, pruned, removed_at IS NOT NULL FROM redrive_destinations ORDER BY name
"""
_WORKERS = """
SELECT w.id, w.seen_at, (
    SELECT count(*) FROM redrive_deliveries d WHERE d.status = 1 AND d.worker = w.id
), w.destinations, w.generations
FROM redrive_workers w ORDER BY w.id
"""
_READY = "status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2"
# Each part reads a small index, so that it costs little however long the history.
_ADDED_UP = """
SELECT t.name, due.generation, {number} FROM (
    {ready}
    UNION ALL
    SELECT destination, generation, count(*) FROM redrive_deliveries
    WHERE status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes >= 2
    GROUP BY destination, generation
    UNION ALL
    SELECT destination, generation, count(*) FROM (
        SELECT destination, generation FROM redrive_deliveries
        WHERE status = 0 AND is_ready = 0 AND due <= :now AND is_behind = 0
        ORDER BY due LIMIT {most}
    ) AS waiting GROUP BY destination, generation
) AS due JOIN redrive_destinations t ON t.id = due.destination
GROUP BY t.name, due.generation ORDER BY t.name, due.generation
"""
_DUE = _ADDED_UP.format(
    number="sum(due.number)",
    ready=f"""
    SELECT destination, generation, count(*) AS number FROM redrive_deliveries
    WHERE {_READY} GROUP BY destination, generation""",
    most=-1,
)
_NEXT_GENERATION = f"""
    SELECT d.generation FROM redrive_deliveries d
    WHERE d.destination = {{line}} AND {_READY} {{after}} ORDER BY d.generation LIMIT 1
"""
# From one generation to the next, and of each only so many: a backlog may be of any length.
_DUE_AT_LEAST = f"""
WITH RECURSIVE lines (destination, generation) AS (
    SELECT t.id, ({_NEXT_GENERATION.format(line="t.id", after="")}) FROM redrive_destinations t
    UNION ALL
    SELECT l.destination, ({
    _NEXT_GENERATION.format(line="l.destination", after="AND d.generation > l.generation")
}) FROM lines l WHERE l.generation IS NOT NULL
)
""" + _ADDED_UP.format(
    number=f"min(sum(due.number), {MOST_COUNTED})",
    ready=f"""
    SELECT l.destination, l.generation, (
        SELECT count(*) FROM (
            SELECT 1 FROM redrive_deliveries d
            WHERE d.destination = l.destination AND d.generation = l.generation AND {_READY}
            LIMIT {MOST_COUNTED}
        )
    ) AS number
    FROM lines l WHERE l.generation IS NOT NULL""",
    most=MOST_COUNTED,
)
_LETTERS = """
SELECT reason, tenant, count(*), min(settled_at) FROM redrive_deliveries
WHERE status = 3 AND resolution IS NULL GROUP BY reason, tenant
"""
_LATELY = """
SELECT count(*) FROM redrive_deliveries WHERE status = 3 AND settled_at > ? AND resolution IS NULL
"""


def figures(connection: apsw.Connection, *, now: datetime) -> Figures:
    """Carry out `Inspection.figures`."""
    counts = {row[0]: row[1:] for row in rows(connection, _COUNT, {"now": micros(now)})}
    known = rows(connection, _DESTINATIONS)
    return Figures(
        now=now,
        events=connection.execute("SELECT count(*) FROM redrive_events").get,
        unrouted=count(connection, "unrouted"),
        refused_settlements=count(connection, "refused_settlements"),
        deleted=count(connection, "deleted"),
        destinations=tuple(
            _figures_of(
                destination_from(document),
                counts.get(number, _NOTHING),
                pruned=pruned,
                is_removed=bool(is_removed),
            )
            for number, document, pruned, is_removed in known
            if number in counts or not is_removed
        ),
        workers=_workers(connection, others=finish(others(SqliteSession(connection, now)))),
        pruned=sum(pruned for _, _, pruned, _ in known),
        pruned_resolved=count(connection, "pruned_resolved"),
        pruned_events=count(connection, "pruned_events"),
        exported=count(connection, "exported"),
        due=_due(connection, _DUE, now=now),
        letters=_letters(connection, now=now),
    )


def workload(connection: apsw.Connection, *, now: datetime) -> Workload:
    """Carry out `Inspection.workload`."""
    due = _due(connection, _DUE_AT_LEAST, now=now)
    return Workload(now=now, due=due, workers=_workers(connection))


def _figures_of(
    destination: Destination,
    counted: tuple[int, int, int, int, int, int, int, int, int, int | None, int | None],
    *,
    pruned: int,
    is_removed: bool,
) -> DestinationFigures:
    (pending, waiting, retrying, behind, due, in_flight, delivered, failed, resolved) = counted[:9]
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
        oldest_due=maybe_from_micros(oldest_due),
        pruned=pruned,
        oldest_failed=maybe_from_micros(oldest_failed),
        keep=destination.dead_letters,
        is_removed=is_removed,
    )


def _workers(
    connection: apsw.Connection, *, others: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[WorkerFigures, ...]:
    return tuple(
        WorkerFigures(
            id=worker,
            seen_at=from_micros(seen_at),
            in_flight=in_flight,
            serving=None
            if destinations is None
            else Serving(
                destinations=_names.decode(destinations), generations=_names.decode(generations)
            ),
            others=(others or {}).get(worker, ()),
        )
        for worker, seen_at, in_flight, destinations, generations in rows(connection, _WORKERS)
    )


def _due(connection: apsw.Connection, counted: str, *, now: datetime) -> tuple[DueWork, ...]:
    return tuple(
        DueWork(destination=destination, generation=generation, count=number)
        for destination, generation, number in rows(connection, counted, {"now": micros(now)})
    )


def _letters(connection: apsw.Connection, *, now: datetime) -> LetterFigures:
    reasons: Counter[FailureReason] = Counter()
    tenants: Counter[str] = Counter()
    oldest = None
    for reason, tenant, number, first in rows(connection, _LETTERS):
        reasons[FailureReason(reason)] += number
        oldest = first if oldest is None else min(oldest, first)
        if tenant is not None:
            tenants[tenant] += number
    span = LetterFigures().span
    return LetterFigures(
        count=reasons.total(),
        oldest=maybe_from_micros(oldest),
        lately=connection.execute(_LATELY, (micros(now - span),)).get,
        span=span,
        by_reason=tuple(sorted(reasons.items(), key=_most_first)),
        by_tenant=tuple(sorted(tenants.items(), key=_most_first)[:_MOST_TENANTS]),
    )


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    name, number = counted
    return -number, name
