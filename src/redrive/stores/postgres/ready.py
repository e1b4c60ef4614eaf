"""What is ready, read in SQL: which tenants have due work, and the first of it.

The index has the tenant before the priority. A recursive statement hops along it from tenant to
tenant and brings the first deliveries of each along; no backlog is ever read through. Each
statement costs a trip to the server, so the first query is about all destinations of a claim, and
what came along unasked is kept until it is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from redrive.claiming.ready import NOBODY, Candidate, Sort, TenantState
from redrive.stores.codec import maybe_micros, micros
from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.pool import Link
from redrive.stores.postgres.scan_bounds import Reading

__all__ = [
    "FRESH",
    "NEXT_DUE",
    "Ahead",
    "Found",
    "PostgresReady",
    "ReadyQuery",
    "query_ready",
    "states_of",
]

# Arrays are given as `(SELECT $1::text[])`: of a bare one the planner sees the length and plans the
# statement anew each time, which takes longer than to carry it out.
_TENANT = """coalesce(d.tenant, '') COLLATE "C" """
_READY = """
    d.generation = s.generation AND d.kind = s.kind
    AND d.status = 0 AND d.is_ready AND NOT d.is_behind AND d.crashes < 2
"""
# A lower bound, where there is one: see `ScanBounds`.
_BEHIND = "(-d.priority, d.id) > (s.precedence, s.floor)"
# Sorted below and gathered above: three arrays cost less than a row for each delivery.
_LINE = f"""
    SELECT array_agg(-first.priority) AS precedences, array_agg(first.id) AS ids,
           array_agg(first.due) AS dues
    FROM (
        SELECT d.priority, d.id, d.due FROM redrive.deliveries d
        WHERE {{which}} AND {_READY} AND (d.deadline IS NULL OR d.deadline > {{now}})
        ORDER BY {_TENANT}, (-d.priority), d.id LIMIT {{limit}}
    ) first
"""
_PAST = """
    SELECT p.tokens, p.refilled_at FROM redrive.tenants p
    WHERE p.destination = {destination} AND p.tenant = {tenant} LIMIT 1
"""
_IS_PAUSED = """EXISTS (
    SELECT FROM redrive.tenant_pauses p
    WHERE p.tenant = {tenant} AND p.destination IN (0, {destination})
)"""
# In the order of the index and with a limit, or the planner might prefer to read the whole table:
# it cannot know that what is ready lies behind a long history.
_ANY = f"""coalesce((
    SELECT true FROM redrive.deliveries d
    WHERE d.destination = s.destination AND {_READY} AND {{condition}}
    ORDER BY {_TENANT}, (-d.priority), d.id LIMIT 1
), false)"""
# One look for each destination, at the first of it in the index. The condition is written as the
# index has it: else the planner may prefer to walk through what everybody has scheduled.
NEXT_DUE = """
    SELECT min(first.due)
    FROM unnest((SELECT {destinations}::integer[])) AS q (destination)
    CROSS JOIN unnest((SELECT {generations})) AS g (generation)
    CROSS JOIN LATERAL (
        SELECT d.due FROM redrive.deliveries d
        WHERE d.destination = q.destination AND d.generation = g.generation
          AND coalesce(d.status = 0 AND NOT d.is_ready AND NOT d.is_behind, false)
        ORDER BY d.due LIMIT 1
    ) AS first
"""
"""When something of some destinations and generations comes due next."""

_QUERY = f"""
WITH sorts AS MATERIALIZED (
    SELECT s.*,
           {_ANY.format(condition=f"{_TENANT} > s.tenant")}
               OR {_ANY.format(condition=f"{_TENANT} < s.tenant")}
               AS has_others
    FROM unnest(
        (SELECT $4::integer[]), (SELECT $5::text[]), (SELECT $6::smallint[]),
        (SELECT $7::text[]), (SELECT $8::integer[]), (SELECT $9::smallint[]),
        (SELECT $10::bigint[])
    )
        WITH ORDINALITY
            AS s (destination, generation, kind, tenant, most, precedence, floor, place)
), outlook AS MATERIALIZED (
    SELECT coalesce((
               SELECT due <= $1 FROM redrive.deliveries WHERE status = 0 AND NOT is_ready
               ORDER BY due LIMIT 1
           ), false) AS is_time,
           EXISTS (SELECT FROM redrive.late_lanes) AS is_late,
           EXISTS (SELECT FROM redrive.route_changes WHERE NOT is_done AND begins_order)
               OR EXISTS (SELECT FROM redrive.late_events) AS is_changing,
           coalesce((
               SELECT true FROM redrive.deliveries
               WHERE status = 0 AND is_ready AND NOT is_behind AND crashes >= 2
               ORDER BY destination, generation, priority DESC, id LIMIT 1
           ), false) AS is_suspected,
           ({NEXT_DUE.format(destinations="$2", generations="$3::text[]")}) AS next_due,
           (SELECT value FROM redrive.counters WHERE name = 'routes_version') AS routes_version
)
SELECT o.is_time, o.is_late, o.is_changing, o.is_suspected, o.next_due, o.routes_version,
       s.has_others,
       s.has_others OR line.ids IS NOT NULL
           OR {_ANY.format(condition=f"{_TENANT} = s.tenant AND {_BEHIND}")} AS is_filled,
       past.tokens, past.refilled_at,
       {_IS_PAUSED.format(tenant="s.tenant", destination="s.destination")} AS is_paused,
       line.precedences, line.ids, line.dues
FROM outlook o LEFT JOIN sorts s ON true
LEFT JOIN LATERAL ({_PAST.format(tenant="s.tenant", destination="s.destination")}) past ON true
LEFT JOIN LATERAL ({
    _LINE.format(
        which=f"NOT s.has_others AND d.destination = s.destination AND {_TENANT} = s.tenant "
        f"AND {_BEHIND}",
        now="$1",
        limit="s.most",
    )
}) line ON true
ORDER BY s.place
"""
_NEXT = f"""(
    SELECT min(next.tenant) FROM sorts s CROSS JOIN LATERAL (
        SELECT {_TENANT} AS tenant FROM redrive.deliveries d
        WHERE d.destination = $1 AND {_READY} AND {_TENANT} {{condition}}
        ORDER BY {_TENANT} LIMIT 1
    ) next
)"""
# A row without a tenant ends a lap. The second lap, if one is wanted, ends at the first tenant. The
# fewer they are, the more each of them may get.
_TENANTS = f"""
WITH RECURSIVE sorts AS MATERIALIZED (
    SELECT * FROM unnest((SELECT $2::text[]), (SELECT $3::smallint[]))
        WITH ORDINALITY AS s (generation, kind, place)
), turns (tenant, place, lap) AS (
    SELECT {_NEXT.format(condition=">= (SELECT $4::text)")}, 1, 1
    UNION ALL
    SELECT CASE
               WHEN turns.tenant IS NULL
               THEN {_NEXT.format(condition="<= (SELECT $4::text)")}
               WHEN turns.lap = 1
               THEN {_NEXT.format(condition="> turns.tenant")}
               ELSE {_NEXT.format(condition=f"> turns.tenant AND {_TENANT} <= (SELECT $4::text)")}
           END,
           place + (tenant IS NOT NULL)::integer,
           lap + (tenant IS NULL)::integer
    FROM turns
    WHERE CASE
              WHEN tenant IS NULL THEN lap = 1 AND $8
              ELSE place < $5
          END
), found AS (
    SELECT *, ($5 - 1 + count(*) OVER ()) / count(*) OVER () * $7 + 1 AS most
    FROM turns WHERE tenant IS NOT NULL
)
SELECT t.tenant, t.lap, past.tokens, past.refilled_at,
       {_IS_PAUSED.format(tenant="t.tenant", destination="$1")} AS is_paused,
       t.most, s.place, line.precedences, line.ids, line.dues
FROM found t CROSS JOIN sorts s
LEFT JOIN LATERAL ({_PAST.format(tenant="t.tenant", destination="$1")}) past ON true
LEFT JOIN LATERAL ({
    _LINE.format(
        which=f"d.destination = $1 AND {_TENANT} = t.tenant",
        now="$6",
        limit="t.most",
    )
}) line ON true
ORDER BY t.lap, t.place, s.place
"""
_LINES = f"""
SELECT line.precedences, line.ids, line.dues
FROM unnest(
    (SELECT $2::text[]), (SELECT $3::smallint[]), (SELECT $4::text[]), (SELECT $5::integer[]),
    (SELECT $6::smallint[]), (SELECT $7::bigint[])
)
    WITH ORDINALITY AS s (generation, kind, tenant, most, precedence, floor, place)
LEFT JOIN LATERAL ({
    _LINE.format(
        which=f"d.destination = $1 AND {_TENANT} = s.tenant AND {_BEHIND}",
        now="$8",
        limit="s.most",
    )
}) line ON true
ORDER BY s.place
"""
_WAITING = f"d.destination = $1 AND d.status = 0 AND NOT d.is_ready AND {_TENANT}"
_NEXT_WAITING = f"""(
    SELECT {_TENANT} FROM redrive.deliveries d WHERE {_WAITING} {{condition}}
    ORDER BY {_TENANT} LIMIT 1
)"""
_PROMOTE = f"""
WITH RECURSIVE turns (tenant, place) AS (
    SELECT {_NEXT_WAITING.format(condition=">= $2")}, 1
    UNION ALL
    SELECT {_NEXT_WAITING.format(condition="> turns.tenant")}, place + 1
    FROM turns WHERE tenant IS NOT NULL AND place < $3
)
UPDATE redrive.deliveries SET is_ready = true WHERE id IN (
    SELECT next.id FROM turns CROSS JOIN LATERAL (
        SELECT d.id FROM redrive.deliveries d WHERE {_WAITING} = turns.tenant AND d.due <= $4
        ORDER BY d.due LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED
    ) next
)
"""
_STATES = f"""
SELECT s.destination, s.tenant, past.tokens, past.refilled_at,
       {_IS_PAUSED.format(tenant="s.tenant", destination="s.destination")}
FROM unnest((SELECT $1::integer[]), (SELECT $2::text[])) AS s (destination, tenant)
LEFT JOIN LATERAL ({_PAST.format(tenant="s.tenant", destination="s.destination")}) past ON true
"""

FRESH = 3
"""The number of the kind that the fresh deliveries have: first attempts that never waited."""

_NO_BOUND = (-(2**15), 0)

Line = tuple[list[Candidate], int]
"""The first deliveries of a tenant and sort, and how many were asked for."""


class ReadyQuery(NamedTuple):
    """What to query first: the sorts of a destination, of the tenant that was served last."""

    destination: int
    sorts: list[Sort]
    tenant: str
    most: int


class Found:
    """What the first query has found of a destination."""

    def __init__(self) -> None:
        self.filled: list[Sort] = []
        self.has_others = False
        self.state = NOBODY
        self.lines: dict[tuple[str, Sort], Line] = {}


class Ahead(NamedTuple):
    """What lies ahead of a claim, and what the first query has found of each destination."""

    is_time: bool
    is_late: bool
    is_changing: bool
    """Whether what was published by older routes may lack its lane."""
    is_suspected: bool
    next_due: datetime | None
    routes_version: int
    found: dict[int, Found]


async def query_ready(
    link: Link,
    queries: Iterable[ReadyQuery],
    *,
    asked: Sequence[int],
    generations: Sequence[str],
    bounds: Reading,
    now: datetime,
) -> Ahead:
    """Query all destinations of a claim at once."""
    places = [(one, sort) for one in queries for sort in one.sorts]
    wanted = [
        (
            one.destination,
            *sort,
            one.tenant,
            one.most,
            *_bound(bounds, one.destination, sort, one.tenant),
        )
        for one, sort in places
    ]
    given = columns(wanted, 7)
    rows = await link.fetch(_QUERY, now, list(asked), list(generations), *given)
    found: dict[int, Found] = {}
    for (one, sort), row in zip(places, rows if places else (), strict=True):
        has_others, is_filled, tokens, refilled_at, is_paused, *line = row[6:]
        shown = found.setdefault(one.destination, Found())
        shown.has_others |= has_others
        shown.state = _state((one.tenant, tokens, refilled_at, is_paused))
        if is_filled:
            shown.filled.append(sort)
        if not has_others:
            known = _candidates(bounds, one.destination, sort, one.tenant, line)
            shown.lines[one.tenant, sort] = known, one.most
    is_time, is_late, is_changing, is_suspected, next_due, routes_version = rows[0][:6]
    return Ahead(is_time, is_late, is_changing, is_suspected, next_due, routes_version, found)


class PostgresReady:
    """`Ready`, with what the first query has found, but for what somebody else has a hold of."""

    def __init__(
        self,
        link: Link,
        first: ReadyQuery,
        found: Found | None,
        *,
        turn: int,
        bounds: Reading,
        held: Collection[int],
        now: datetime,
    ) -> None:
        self._held = held
        self._link = link
        self._bounds = bounds
        self._first = first
        self._found = found
        self._turn = turn
        self._now = now
        self._lines: dict[tuple[str, Sort], Line] = {} if found is None else found.lines
        self._second_lap: list[TenantState] | None = None
        self._is_new = True

    async def promote(self, *, start: str, most: int, turn: int) -> None:
        for first in dict.fromkeys((start, "")):
            await self._link.fetch(_PROMOTE, self._first.destination, first, most, self._now, turn)
        self._found = None

    async def survey(self, sorts: Sequence[Sort], *, tenant: str) -> tuple[list[Sort], bool]:
        if self._found is None:
            first = self._first._replace(sorts=list(sorts), tenant=tenant)
            ahead = await query_ready(
                self._link, [first], asked=(), generations=(), bounds=self._bounds, now=self._now
            )
            self._found = ahead.found.get(first.destination, Found())
            self._lines = self._found.lines
        return self._found.filled, self._found.has_others

    async def state_of(self, tenant: str) -> TenantState:
        if self._found is not None and self._found.state.tenant == tenant:
            return self._found.state
        states = await states_of(self._link, [(self._first.destination, tenant)])
        return states[self._first.destination, tenant]

    async def tenants(self, sorts: Sequence[Sort], *, start: str, most: int) -> list[TenantState]:
        lap, self._second_lap = self._second_lap, None
        if not start and lap is not None:
            return lap[:most]
        rows = await self._link.fetch(
            _TENANTS,
            self._first.destination,
            *_columns(sorts),
            start,
            most,
            self._now,
            self._turn,
            self._is_new,
        )
        laps: dict[int, dict[str, TenantState]] = {1: {}, 2: {}}
        for tenant, lap_number, tokens, refilled_at, is_paused, limit, place, *line in rows:
            laps[lap_number][tenant] = _state((tenant, tokens, refilled_at, is_paused))
            sort = sorts[place - 1]
            known = _candidates(self._bounds, self._first.destination, sort, tenant, line)
            self._lines[tenant, sort] = known, limit
        if self._is_new and len(laps[1]) < most:
            self._second_lap = list(laps[2].values())
        self._is_new = False
        return list(laps[1].values())

    async def lines(self, asked: Sequence[tuple[str, Sort, int]]) -> list[list[Candidate]]:
        more = len(self._held)
        wanted = [(tenant, sort, limit + more) for tenant, sort, limit in asked]
        unknown = [one for one in wanted if not self._is_known(*one)]
        if unknown:
            number = self._first.destination
            given = [
                (*sort, tenant, limit, *_bound(self._bounds, number, sort, tenant))
                for tenant, sort, limit in unknown
            ]
            rows = await self._link.fetch(_LINES, number, *columns(given, 6), self._now)
            for (tenant, sort, limit), line in zip(unknown, rows, strict=True):
                known = _candidates(self._bounds, number, sort, tenant, line)
                self._lines[tenant, sort] = known, limit
        return [self._free(self._lines[tenant, sort][0])[:limit] for tenant, sort, limit in asked]

    def _free(self, line: list[Candidate]) -> list[Candidate]:
        return [one for one in line if one.id not in self._held] if self._held else line

    def _is_known(self, tenant: str, sort: Sort, limit: int) -> bool:
        if (tenant, sort) not in self._lines:
            return False
        known, most = self._lines[tenant, sort]
        return limit <= most or len(known) < most


async def states_of(
    link: Link, whose: Iterable[tuple[int, str]]
) -> dict[tuple[int, str], TenantState]:
    """Return what is kept of some tenants, each at a destination."""
    rows = await link.fetch(_STATES, *columns(sorted(set(whose)), 2))
    return {(number, state[0]): _state(state) for number, *state in rows}


def _state(row: Sequence[Any]) -> TenantState:
    tenant, tokens, refilled_at, is_paused = row
    return TenantState(tenant, tokens, maybe_micros(refilled_at), int(is_paused))


def _bound(bounds: Reading, destination: int, sort: Sort, tenant: str) -> tuple[int, int]:
    """Return behind which precedence and number the deliveries of a tenant and sort begin."""
    generation, kind = sort
    return (0, bounds.below((destination, generation, tenant))) if kind == FRESH else _NO_BOUND


def _candidates(
    bounds: Reading, destination: int, sort: Sort, tenant: str, line: Sequence[Any]
) -> list[Candidate]:
    precedences, ids, dues = line
    generation, kind = sort
    if kind == FRESH:
        bounds.saw((destination, generation, tenant), ids or ())
    if ids is None:
        return []
    return [
        Candidate(precedence, number, kind, micros(due), destination)
        for precedence, number, due in zip(precedences, ids, dues, strict=True)
    ]


def _columns(sorts: Sequence[Sort]) -> tuple[list[str], list[int]]:
    return [generation for generation, _ in sorts], [kind for _, kind in sorts]
