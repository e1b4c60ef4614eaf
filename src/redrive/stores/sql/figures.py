"""The store in numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
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
from redrive.stores.sql.counts import (
    BEHIND,
    DELIVERED,
    FAILED,
    GIVEN,
    RESOLVED,
    RETRYING,
    STATE,
    UNDER_WAY,
    UNROUTED,
    WAITING,
    CountsRole,
    count_changes,
)
from redrive.stores.sql.registering import others
from redrive.stores.sql.session import Either, Session, instant
from redrive.stores.sql.store import PRESENT

__all__ = ["FiguresRole", "read_figures"]

_MOST_TENANTS = 10
_MOST_COME_DUE = 10_000
"""How much of what has come due, and no worker has made ready yet, is told from what waits."""
_LINES_LOOKED_AT = 100
_ROWS_LOOKED_AT = 100
"""How many lines, and of each how many deliveries, are looked at for what is due for longest."""

_DESTINATIONS = """
SELECT t.id, t.document, t.pruned, t.removed_at IS NOT NULL, (
    SELECT min(d.settled_at) FROM redrive.deliveries d
    WHERE d.destination = t.id AND d.status = 3 AND d.resolution IS NULL
) FROM redrive.destinations t ORDER BY t.name COLLATE "C"
"""
_KEPT = "SELECT destination, state, detail, tenant, number FROM redrive.kept_counts"
_IN_FLIGHT = f"""
SELECT destination, {STATE}, generation, count(*) FROM redrive.deliveries WHERE status = 1
GROUP BY 1, 2, 3
"""
_COME_DUE = f"""
SELECT destination, state, generation, count(*), min(due) FROM (
    SELECT destination, {STATE} AS state, generation, due FROM redrive.deliveries
    WHERE status = 0 AND is_ready = false AND due <= $1 ORDER BY due LIMIT {_MOST_COME_DUE}
) AS late GROUP BY 1, 2, 3
"""
# The first of a lane that PostgreSQL has put off is behind nobody: the next claim frees it. As an
# array, so that only they are read, whatever statistics say of what is behind others.
_PUT_OFF = Either(
    sqlite="SELECT 1 WHERE $1 IS NULL",
    postgres="""
SELECT destination, CASE WHEN is_ready OR due <= $1 THEN 0 WHEN kind = 1 THEN 5 ELSE 1 END,
       generation, count(*), min(due)
FROM redrive.deliveries WHERE status + 0 = 0 AND is_behind AND id = ANY (ARRAY(
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
)) GROUP BY 1, 2, 3
""",
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
# Of each line, a tenant's of one generation and kind, those that go first; and from line to line.
_NEXT_LINE = f"""
    SELECT d.id FROM redrive.deliveries d{{index}}
    WHERE d.destination = {{destination}} AND {{after}} AND {_READY}
    ORDER BY {{order}} LIMIT 1
"""
_OLDEST_DUE = """
WITH RECURSIVE lines (destination, head, place) AS (
    SELECT t.id, ({first}), 1 FROM redrive.destinations t WHERE t.id = ANY ($1::integer[])
    UNION ALL
    SELECT l.destination, coalesce(({next_tenant}), ({next_kind}), ({next_generation})), l.place + 1
    FROM lines l JOIN redrive.deliveries h ON h.id = l.head WHERE l.place < $2
)
SELECT l.destination, min((
    SELECT min(due) FROM (
        SELECT d.due FROM redrive.deliveries d{index}
        WHERE d.destination = l.destination AND d.generation = h.generation AND d.kind = h.kind
          AND {of_line} AND {ready}
        ORDER BY {order} LIMIT $3
    ) AS foremost
)) FROM lines l JOIN redrive.deliveries h ON h.id = l.head GROUP BY l.destination
UNION ALL
SELECT destination, min(due) FROM redrive.deliveries
WHERE status = 0 AND is_ready = true AND is_behind = false AND crashes >= 2 GROUP BY destination
"""


def _oldest_due(*, index: str, tenant: str, priority: str) -> str:
    order = f"d.generation, d.kind, {tenant.format('d')}, {priority}, d.id"
    beginning = "d.generation = h.generation AND"
    after = {
        "next_tenant": f"{beginning} d.kind = h.kind AND {tenant.format('d')} > "
        + tenant.format("h"),
        "next_kind": f"{beginning} d.kind > h.kind",
        "next_generation": "d.generation > h.generation",
    }
    hops = {
        name: _NEXT_LINE.format(
            index=index, destination="l.destination", after=condition, order=order
        )
        for name, condition in after.items()
    }
    first = _NEXT_LINE.format(index=index, destination="t.id", after="true", order=order)
    of_line = f"{tenant.format('d')} = {tenant.format('h')}"
    return _OLDEST_DUE.format(
        first=first, index=index, of_line=of_line, ready=_READY, order=order, **hops
    )


# SQLite is told the index, and PostgreSQL finds it by its order.
_LONGEST_DUE = Either(
    sqlite=_oldest_due(
        index=" INDEXED BY redrive_ready",
        tenant="ifnull({}.tenant, '')",
        priority="d.priority DESC",
    ),
    postgres=_oldest_due(
        index="", tenant="coalesce({}.tenant, '') COLLATE \"C\"", priority="(-d.priority)"
    ),
)
# Of a span with an end PostgreSQL expects little; of one without, a third of all letters there are.
_LATELY = """
SELECT count(*) FROM redrive.deliveries
WHERE status = 3 AND settled_at > $1 AND settled_at < $2 AND resolution IS NULL
"""

_serving = msgspec.json.Decoder(Serving)
_due_lines = msgspec.json.Decoder(list[tuple[str, str, int]])
_worker_lines = msgspec.json.Decoder(list[tuple[str, datetime | int, int, str | None]])


class FiguresRole(CountsRole):
    """The figures of `Inspection`."""

    async def figures(self) -> Figures:
        figures, changes = await self._read(lambda session, _: _read(session), is_wide=True)
        await self._fold_many(changes)
        return figures

    async def workload(self) -> Workload:
        [(now, due, workers)] = await self._query(_WORKLOAD)
        return Workload(
            now=instant(now),
            due=_due(_due_lines.decode(due or "[]")),
            workers=_workers(_worker_lines.decode(workers or "[]"), others={}),
        )


async def _read(session: Session) -> tuple[Figures, int]:
    """Read the figures, and how many changes of the counts are to be added up."""
    return await read_figures(session), await count_changes(session)


async def read_figures(session: Session) -> Figures:
    """Read what is kept of the counts, and look at the little that they do not tell."""
    counted = await _read_counted(session)
    known = await session.fetch(_DESTINATIONS)
    counters = dict(await session.fetch("SELECT name, value FROM redrive.counters"))
    events = counted.pop(0, _Counted())
    names = {number: destination_from(document).name for number, document, *_ in known}
    return Figures(
        now=session.now,
        events=events.of[GIVEN] + events.of[UNROUTED],
        unrouted=events.of[UNROUTED],
        refused_settlements=counters["refused_settlements"],
        deleted=counters["deleted"],
        destinations=tuple(
            _figures_of(
                counted.get(number, _Counted()), document, pruned, instant(oldest), is_removed=gone
            )
            for number, document, pruned, gone, oldest in known
            if number in counted or not gone
        ),
        workers=_workers(
            await session.fetch(_SERVING.within(_WORKERS)), others=await others(session)
        ),
        pruned=sum(pruned for _, _, pruned, _, _ in known),
        pruned_resolved=counters["pruned_resolved"],
        pruned_events=counters["pruned_events"],
        exported=counters["exported"],
        due=tuple(
            DueWork(destination=names[number], generation=generation, count=count)
            for number, one in sorted(counted.items(), key=lambda one: names[one[0]])
            for generation, count in sorted(one.due.items())
            if count
        ),
        letters=await _letters(session, counted, [instant(oldest) for *_, oldest in known]),
    )


class _Counted:
    """What is counted of one destination."""

    def __init__(self) -> None:
        self.of: defaultdict[int, int] = defaultdict(int)
        """How many are in which state; `in_flight` are in none."""
        self.due: defaultdict[str, int] = defaultdict(int)
        """How many of each generation could start now."""
        self.in_flight = 0
        self.reasons: defaultdict[FailureReason, int] = defaultdict(int)
        self.tenants: defaultdict[str, int] = defaultdict(int)
        self.oldest_due: datetime | None = None

    def add(self, state: int, detail: str, number: int, tenant: str = "") -> None:
        """Count deliveries in a state."""
        self.of[state] += number
        if state == 0:
            self.due[detail] += number
        elif state == FAILED:
            self.reasons[FailureReason(detail)] += number
            if tenant:
                self.tenants[tenant] += number

    def move(self, state: int, to: int, detail: str, number: int) -> None:
        """Count deliveries in another state than that which was kept of them."""
        self.add(state, detail, -number)
        self.add(to, detail, number)

    def see_due(self, due: datetime | None) -> None:
        """Take note of when something that could start came due."""
        if due is not None and (self.oldest_due is None or due < self.oldest_due):
            self.oldest_due = due

    def pending(self, part: int = 0) -> int:
        """Return how many are pending, or in which state some part is set."""
        return sum(
            number
            for state, number in self.of.items()
            if state in UNDER_WAY and state & part == part
        )


async def _read_counted(session: Session) -> dict[int, _Counted]:
    """Return what is counted of each destination, and at 0 the events."""
    counted: defaultdict[int, _Counted] = defaultdict(_Counted)
    for destination, state, detail, tenant, number in await session.fetch(_KEPT):
        counted[destination].add(state, detail, number, tenant)
    for destination, state, generation, number in await session.fetch(_IN_FLIGHT):
        counted[destination].add(state, generation, -number)
        counted[destination].in_flight += number
    for destination, state, generation, number, due in await session.fetch(_COME_DUE, session.now):
        counted[destination].move(state, state & BEHIND, generation, number)
        if not state & BEHIND:
            counted[destination].see_due(instant(due))
    for destination, state, generation, number, due in await session.fetch(_PUT_OFF, session.now):
        counted[destination].move(state | BEHIND, state, generation, number)
        if state == 0:
            counted[destination].see_due(instant(due))
    if busy := [number for number, one in counted.items() if one.of[0]]:
        lines = max(4, _LINES_LOOKED_AT // len(busy))
        rows = max(5, _LINES_LOOKED_AT * _ROWS_LOOKED_AT // (lines * len(busy)))
        for number, due in await session.fetch(_LONGEST_DUE, busy, lines, rows):
            counted[number].see_due(instant(due))
    return counted


def _figures_of(
    one: _Counted, document: str, pruned: int, oldest: datetime | None, *, is_removed: bool
) -> DestinationFigures:
    destination = destination_from(document)
    return DestinationFigures(
        name=destination.name,
        patterns=destination.patterns,
        pending=one.pending(),
        waiting=one.pending(WAITING),
        retrying=one.pending(RETRYING),
        behind=one.pending(BEHIND),
        due=one.of[0],
        in_flight=one.in_flight,
        delivered=one.of[DELIVERED],
        failed=one.of[FAILED],
        resolved=one.of[RESOLVED],
        oldest_due=one.oldest_due,
        pruned=pruned,
        oldest_failed=oldest,
        keep=destination.dead_letters,
        is_removed=bool(is_removed),
        is_disabled=destination.is_disabled,
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


async def _letters(
    session: Session, counted: Mapping[int, _Counted], oldest: Iterable[datetime | None]
) -> LetterFigures:
    reasons: Counter[FailureReason] = Counter()
    tenants: Counter[str] = Counter()
    for one in counted.values():
        if one.reasons:
            reasons.update(one.reasons)
            tenants.update(one.tenants)
    span = LetterFigures().span
    return LetterFigures(
        count=reasons.total(),
        oldest=min((one for one in oldest if one is not None), default=None),
        lately=await session.value(_LATELY, session.now - span, session.now + span),
        span=span,
        by_reason=tuple(sorted(reasons.items(), key=_most_first)),
        by_tenant=tuple(sorted(tenants.items(), key=_most_first)[:_MOST_TENANTS]),
    )


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    name, number = counted
    return -number, name
