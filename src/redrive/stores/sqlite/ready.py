"""What is ready, read in SQL: which tenants have due work, and the first of it.

The index has the tenant before the priority. One statement hops along it from tenant to tenant,
others read the first few deliveries of each; no backlog is ever read through.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import apsw
import msgspec

from redrive.claiming.ready import Candidate, Sort, TenantState
from redrive.stores.codec import json_text, micros
from redrive.stores.sqlite.tenants import STATE, read_states, tenant_states

__all__ = ["SqliteReady"]

_FEW = 3
_OTHERS = 2

# A bound value beside a partial index makes SQLite prepare the statement anew each time, in case
# the value decides whether the index applies; behind a plus sign it is not looked at.
_READY = """
    destination = +:destination AND generation = value ->> 0 AND kind = value ->> 1
    AND status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2
"""
_NEXT = f"""(
    SELECT min(found) FROM (
        SELECT (
            SELECT ifnull(tenant, '') FROM redrive_deliveries
            WHERE {_READY} AND ifnull(tenant, '') {{condition}}
            ORDER BY ifnull(tenant, '') LIMIT 1
        ) AS found
        FROM json_each(:sorts)
    )
)"""
_TENANTS = f"""
WITH RECURSIVE turns (tenant, place) AS (
    SELECT {_NEXT.format(condition=">= +:start")}, 1
    UNION ALL
    SELECT {_NEXT.format(condition="> turns.tenant")}, place + 1
    FROM turns WHERE tenant IS NOT NULL AND place < +:most
)
SELECT json_group_array({STATE})
FROM turns LEFT JOIN redrive_tenants past
    ON past.destination = +:destination AND past.tenant = turns.tenant
WHERE turns.tenant IS NOT NULL
"""
_SURVEY = f"""
SELECT json_group_array(
    CASE
    WHEN EXISTS (SELECT 1 FROM redrive_deliveries WHERE {_READY} AND ifnull(tenant, '') > +:tenant)
      OR EXISTS (SELECT 1 FROM redrive_deliveries WHERE {_READY} AND ifnull(tenant, '') < +:tenant)
    THEN 2 ELSE EXISTS (SELECT 1 FROM redrive_deliveries WHERE {_READY}) END
)
FROM json_each(:sorts)
"""
"""For each sort: 0 if there is no work, 1 if only of this tenant, 2 if there is of others."""

_WAITING = """
    destination = +:destination AND status = 0 AND is_ready = 0
    AND ifnull(tenant, '')
"""
_NEXT_WAITING = f"""(
    SELECT ifnull(tenant, '') FROM redrive_deliveries WHERE {_WAITING} {{condition}}
    ORDER BY ifnull(tenant, '') LIMIT 1
)"""
_PROMOTE = f"""
WITH RECURSIVE turns (tenant, place) AS (
    SELECT {_NEXT_WAITING.format(condition=">= +:start")}, 1
    UNION ALL
    SELECT {_NEXT_WAITING.format(condition="> turns.tenant")}, place + 1
    FROM turns WHERE tenant IS NOT NULL AND place < +:most
)
UPDATE redrive_deliveries SET is_ready = 1 WHERE id IN (
    SELECT value FROM turns CROSS JOIN json_each((
        SELECT json_group_array(id) FROM (
            SELECT id FROM redrive_deliveries WHERE {_WAITING} = turns.tenant AND due <= +:now
            ORDER BY due LIMIT +:turn
        )
    ))
)
"""
_LINE = """
    SELECT json_group_array(json_array(-priority, id, kind, due, destination)) FROM (
        SELECT priority, id, kind, due, destination FROM redrive_deliveries
        WHERE {ready} AND ifnull(tenant, '') = {tenant}
          AND (deadline IS NULL OR deadline > +:now)
        ORDER BY priority DESC, id LIMIT +:limit
    )
"""
_ONE_LINE = _LINE.format(
    ready=_READY.replace("value ->> 0", "+:generation").replace("value ->> 1", "+:kind"),
    tenant="+:tenant",
)
_LINES = f"""
SELECT '[' || group_concat(({_LINE.format(ready=_READY, tenant="value ->> 2")})) || ']'
FROM json_each(:lines)
"""

_survey = msgspec.json.Decoder(list[int])
_line = msgspec.json.Decoder(list[Candidate])
_lines = msgspec.json.Decoder(list[list[Candidate]])


class SqliteReady:
    """`Ready`; nothing here ever waits."""

    def __init__(self, connection: apsw.Connection, destination: int, *, now: datetime) -> None:
        self._connection = connection
        self._destination = destination
        self._moment = micros(now)

    async def promote(self, *, start: str, most: int, turn: int) -> None:
        for first in (start, ""):
            self._ask(_PROMOTE, start=first, most=most, turn=turn, now=self._moment)

    async def survey(self, sorts: Sequence[Sort], *, tenant: str) -> tuple[list[Sort], bool]:
        found = _survey.decode(self._ask(_SURVEY, sorts=json_text(sorts), tenant=tenant))
        kept = [sort for sort, whose in zip(sorts, found, strict=True) if whose]
        return kept, _OTHERS in found

    async def state_of(self, tenant: str) -> TenantState:
        return tenant_states(self._connection, self._destination, [tenant])[tenant]

    async def tenants(self, sorts: Sequence[Sort], *, start: str, most: int) -> list[TenantState]:
        found = self._ask(_TENANTS, sorts=json_text(sorts), start=start, most=most)
        return sorted(read_states(found), key=lambda one: one.tenant)

    async def lines(self, asked: Sequence[tuple[str, Sort, int]]) -> list[list[Candidate]]:
        if len(asked) > _FEW:
            return self._many_lines(asked)
        return [
            _line.decode(
                self._ask(
                    _ONE_LINE,
                    generation=generation,
                    kind=kind,
                    tenant=tenant,
                    now=self._moment,
                    limit=limit,
                )
            )
            for tenant, (generation, kind), limit in asked
        ]

    def _many_lines(self, asked: Sequence[tuple[str, Sort, int]]) -> list[list[Candidate]]:
        """Read many lines with one statement for each limit: SQLite has no limit for each row."""
        limits = [limit for _, _, limit in asked]
        lines = [(*sort, tenant) for tenant, sort, _ in asked]
        if limits.count(limits[0]) == len(limits):
            return self._lines(lines, limits[0])
        found: list[list[Candidate]] = [[]] * len(asked)
        for limit in dict.fromkeys(limits):
            places = [place for place, one in enumerate(limits) if one == limit]
            some = self._lines([lines[place] for place in places], limit)
            for place, line in zip(places, some, strict=True):
                found[place] = line
        return found

    def _lines(self, lines: list[tuple[str, int, str]], limit: int) -> list[list[Candidate]]:
        rows = self._ask(_LINES, lines=json_text(lines), now=self._moment, limit=limit)
        return _lines.decode(rows)

    def _ask(self, statement: str, **values: str | int) -> Any:  # noqa: ANN401 - what was selected
        values["destination"] = self._destination
        return self._connection.execute(statement, values).get
