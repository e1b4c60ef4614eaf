"""Finding work: who has something that may start, without asking everybody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.claiming.ready import SOON
from redrive.store import Work
from redrive.stores.sql.lanes import HELD_LANES
from redrive.stores.sql.session import Either, instant
from redrive.stores.sql.store import PRESENT, SqlStore

__all__ = ["FindingRole"]

_READY = "status = 0 AND is_ready = true AND is_behind = false AND crashes < 2"
_SUSPECT = "status = 0 AND is_ready = true AND is_behind = false AND crashes >= 2"
_READY_ORDER = """, generation, kind, coalesce(tenant, '') COLLATE "C", (-priority), id"""
_SUSPECT_ORDER = ", generation, priority DESC, id"
# In the order of each index and with a limit, so that it is a look at the first of each.
_HOP = f"""(
    SELECT min(destination) FROM (
        SELECT (
            SELECT destination FROM redrive.deliveries{{ready}}
            WHERE destination > {{after}} AND {_READY}
            ORDER BY destination{{ready_order}} LIMIT 1
        ) AS destination
        UNION ALL
        SELECT (
            SELECT destination FROM redrive.deliveries{{suspects}}
            WHERE destination > {{after}} AND {_SUSPECT}
            ORDER BY destination{{suspect_order}} LIMIT 1
        )
    ) AS next
)"""
_HAS = """coalesce((
        SELECT true FROM redrive.deliveries{index}
        WHERE destination = t.id AND generation = g.generation AND {which}
        ORDER BY destination{order} LIMIT 1
    ), false)"""
_LAP = f"""
WITH RECURSIVE lap (destination, place) AS (
    SELECT {{first}}, 1
    UNION ALL
    SELECT {{next}}, lap.place + 1
    FROM lap WHERE lap.destination IS NOT NULL AND lap.place < $4
)
SELECT present.now, (
           SELECT due FROM redrive.deliveries WHERE status = 0 AND is_ready = false
           ORDER BY due LIMIT 1
       ), {{is_late}},
       (SELECT value FROM redrive.counters WHERE name = 'routes_version'),
       lap.destination, t.name, gate.document, EXISTS (
           SELECT FROM {{generations}} WHERE {{ready}} OR {{suspect}}
       )
FROM {PRESENT} LEFT JOIN lap ON lap.destination IS NOT NULL
LEFT JOIN redrive.destinations t ON t.id = lap.destination
LEFT JOIN redrive.gates gate ON gate.destination = lap.destination
ORDER BY lap.place
"""


def _lap(*, is_late: str, generations: str, ready: str, suspects: str, orders: bool) -> str:
    ready_order, suspect_order = (_READY_ORDER, _SUSPECT_ORDER) if orders else ("", "")
    hop = {
        "ready": ready,
        "ready_order": ready_order,
        "suspects": suspects,
        "suspect_order": suspect_order,
    }
    return _LAP.format(
        first=_HOP.format(after="+$3::integer", **hop),
        next=_HOP.format(after="lap.destination", **hop),
        is_late=is_late,
        generations=generations,
        ready=_HAS.format(index=ready, which=_READY, order=ready_order),
        suspect=_HAS.format(index=suspects, which=_SUSPECT, order=suspect_order),
    )


# SQLite is told the index, and PostgreSQL finds it by its order.
_FIND = Either(
    sqlite=_lap(
        is_late="false",
        generations="(SELECT value AS generation FROM json_each($2)) AS g",
        ready=" INDEXED BY redrive_ready",
        suspects=" INDEXED BY redrive_suspects",
        orders=False,
    ),
    postgres=_lap(
        is_late="EXISTS (SELECT FROM redrive.late_lanes)",
        generations="unnest((SELECT $2::text[])) AS g (generation)",
        ready="",
        suspects="",
        orders=True,
    ),
)


class FindingRole(SqlStore):
    """`DeliveryQueue.find_work`."""

    async def find_work(self, generations: Sequence[str], *, after: int, limit: int) -> Work:
        self._look_anew()
        given = list(generations), after, limit
        rows = await self._query(_FIND, *given, is_prompt=True)
        is_late, is_flooded = rows[0][2], False
        if is_late or _has_come_due(rows):
            is_flooded = await self._write(lambda one, _: one.make_ready(), is_prompt=True)
            rows = await self._query(_FIND, *given, is_prompt=True)
        work = _work(rows, limit=limit)
        if _has_come_due(rows) and not is_flooded:  # somebody is just changing it
            work = msgspec.structs.replace(work, next_due=work.now + SOON, is_held=True)
        elif rows[0][2] and await self._query(HELD_LANES, None, is_prompt=True):
            work = msgspec.structs.replace(work, is_held=True)
        return work


def _has_come_due(rows: Sequence[Sequence[Any]]) -> bool:
    now, due = rows[0][:2]
    return due is not None and instant(due) <= instant(now)


def _work(rows: Sequence[Sequence[Any]], *, limit: int) -> Work:
    now, due, _, routes_version = rows[0][:4]
    found = [row[4:] for row in rows if row[4] is not None]
    return Work(
        now=instant(now),
        destinations=tuple((name, mark or "") for _, name, mark, is_ours in found if is_ours),
        after=found[-1][0] if len(found) == limit else None,
        next_due=instant(due),
        routes_version=routes_version,
    )
