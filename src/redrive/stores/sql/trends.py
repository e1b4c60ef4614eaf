"""Trends: a worker adds rows, and what is old is taken out and put back as fewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from redrive.model.trend import Measure
from redrive.store import KeptTrends
from redrive.stores.sql.session import Either, Session, instant
from redrive.stores.sql.store import SqlStore, reading, writing
from redrive.stores.trending import (
    LONGEST_ROW,
    TIERS,
    Row,
    block_of,
    floor,
    packed,
    points_of,
    rolled_up,
    with_all,
)

__all__ = ["TrendsRole"]

_ADD = Either(sqlite="unhex(given.body)", postgres="decode(given.body, 'hex')").within("""
INSERT INTO redrive.trends (tier, block, starts_at, body)
SELECT given.tier, given.block, given.starts_at, {} FROM json_to_recordset($1::json) AS given (
    tier smallint, block smallint, starts_at timestamptz, body text
)
""")
_READ = """
SELECT tier, block, starts_at, body FROM redrive.trends
WHERE block = ANY ($1::smallint[]) AND starts_at > $2
"""
_DUE = """
SELECT id, tier, block, starts_at FROM redrive.trends WHERE tier = $1 AND starts_at <= $2
ORDER BY starts_at LIMIT $3
"""
_ADDED_TO = """
SELECT t.id FROM json_to_recordset($1::json) AS given (
    tier smallint, block smallint, starts_at timestamptz
) JOIN redrive.trends t USING (tier, block, starts_at)
"""
# Who takes a row out has it: another who rolls up at the same time does not get it any more.
_TAKE = """
DELETE FROM redrive.trends WHERE id = ANY ($1::bigint[])
RETURNING id, tier, block, starts_at, body
"""


class TrendsRole(SqlStore):
    """`Trends`."""

    @writing()
    async def add_trends(self, session: Session, measures: Mapping[str, Measure]) -> None:
        now = session.now
        await _add(
            session, packed(0, [(name, now, one) for name, one in with_all(measures).items()])
        )

    @reading
    async def trends(
        self, session: Session, names: Sequence[str], *, back: timedelta
    ) -> KeptTrends:
        since = session.now - back
        blocks = sorted({block_of(one) for one in names})
        rows = await session.fetch(_READ, blocks, since - LONGEST_ROW)
        found = [Row(tier, block, instant(at), body) for tier, block, at, body in rows]
        return KeptTrends(now=session.now, points=points_of(found, names, since=since))

    @writing()
    async def roll_up_trends(self, session: Session, *, limit: int = 500) -> int:
        due: dict[int, Row] = {}
        for tier, (_, length, kept) in enumerate(TIERS):
            until = session.now - timedelta(seconds=length + kept)
            for number, *row in await session.fetch(_DUE, tier, until, limit - len(due)):
                due[number] = Row(row[0], row[1], instant(row[2]), b"")
        if not due:
            return 0
        targets = {
            (row.tier + 1, row.block, floor(row.start, TIERS[row.tier + 1].row))
            for row in due.values()
            if row.tier + 1 < len(TIERS)
        }
        given = [
            {"tier": tier, "block": block, "starts_at": start}
            for tier, block, start in sorted(targets)
        ]
        added_to = await session.fetch(_ADDED_TO, session.records(given))
        wanted = sorted({*due, *(number for (number,) in added_to)})
        taken = {
            number: Row(tier, block, instant(at), body)
            for number, tier, block, at, body in await session.fetch(_TAKE, wanted)
        }
        old = [row for number, row in taken.items() if number in due]
        await _add(session, rolled_up(old, [one for n, one in taken.items() if n not in due]))
        return len(due)


async def _add(session: Session, rows: Sequence[Row]) -> None:
    given = [
        {"tier": row.tier, "block": row.block, "starts_at": row.start, "body": row.body.hex()}
        for row in rows
    ]
    await session.fetch(_ADD, session.records(given))
