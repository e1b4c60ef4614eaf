"""Kept counts: how many there are of what, so that nobody has to count the tables.

Who stores, settles or removes something changes them in the same transaction: publishing and the
settling of what has arrived once for a whole batch, everything else by triggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redrive.errors import StoreError
from redrive.store import Miscount
from redrive.stores.sql.session import Either, Session
from redrive.stores.sql.store import SqlStore, reading, writing

__all__ = [
    "BEHIND",
    "DELIVERED",
    "FAILED",
    "GIVEN",
    "HAS_CHANGES",
    "RESOLVED",
    "RETRYING",
    "STATE",
    "UNDER_WAY",
    "UNROUTED",
    "WAITING",
    "CountsRole",
    "count_changes",
    "fold",
    "read_miscounts",
]

WAITING, BEHIND, RETRYING = 1, 2, 4
"""What the state of a delivery under way is made of."""
UNDER_WAY = range(8)
DELIVERED, FAILED, RESOLVED = 20, 30, 31
GIVEN, UNROUTED = 40, 41
"""The states of events; all of them are at destination 0."""

STATE = """CASE WHEN is_ready THEN 0 WHEN kind = 1 THEN 5 ELSE 1 END
    + CASE WHEN is_behind THEN 2 ELSE 0 END"""
"""The state of a delivery that is pending or in flight."""

_WORDS = {
    DELIVERED: "delivered",
    FAILED: "failed",
    RESOLVED: "resolved",
    GIVEN: "routed events",
    UNROUTED: "unrouted events",
}
_MOST_CHANGES = 20_000
"""So many changes are added up by whoever reads them, in case that no worker does."""

# One statement is one view: whatever others do meanwhile is in both counts, or in none.
_MISCOUNTS = """
SELECT b.destination, t.name, b.state, b.detail, b.tenant, b.kept, b.counted FROM (
    SELECT destination, state, detail, tenant, sum(kept)::bigint AS kept,
           sum(counted)::bigint AS counted
    FROM (
        SELECT destination, state, detail, tenant, number AS kept, 0 AS counted
        FROM redrive.kept_counts
        UNION ALL
        SELECT destination, state, detail, tenant, 0, number FROM redrive.recount
    ) AS either GROUP BY 1, 2, 3, 4 HAVING sum(kept) <> sum(counted)
) AS b LEFT JOIN redrive.destinations t ON t.id = b.destination
ORDER BY t.name COLLATE "C", b.state, b.detail, b.tenant
"""
_KEEP_OUT = Either(
    sqlite="SELECT 1",  # there is one writer
    postgres="LOCK TABLE redrive.counts IN EXCLUSIVE MODE",
)
_GIVEN = """json_to_recordset($1::json) AS given (
    destination integer, state smallint, detail text, tenant text, number bigint
)"""
_MEND = Either(
    sqlite="""
INSERT INTO redrive_counts (destination, state, detail, tenant, number)
SELECT destination, state, detail, tenant, number FROM {given} WHERE true
ON CONFLICT DO UPDATE SET number = number + excluded.number
""",
    postgres="""
INSERT INTO redrive.count_changes (destination, state, detail, tenant, number)
SELECT destination, state, detail, tenant, number FROM {given}
""",
)
_MENDED = Either(*(one.replace("{given}", _GIVEN) for one in _MEND))
_FORGET = "DELETE FROM redrive.counts WHERE number = 0"
_CHANGES = Either(
    sqlite="""
SELECT ifnull((SELECT max(id) FROM redrive_deliveries), 0)
    + ifnull((SELECT max(position) FROM redrive_events), 0)
    - (SELECT sum(value) FROM redrive_counters
       WHERE name IN ('counted_deliveries', 'counted_events'))
""",
    postgres="SELECT count(*) FROM redrive.count_changes",
)
HAS_CHANGES = Either(
    sqlite=f"({_CHANGES.sqlite}) > 10000",
    postgres="""(
    EXISTS (SELECT FROM redrive.count_changes)
    OR EXISTS (SELECT FROM redrive.deliveries WHERE counted IS NULL)
    OR EXISTS (SELECT FROM redrive.events WHERE counted IS NULL)
)""",
)
"""Whether there is something for housekeeping to bring into the counts."""


class CountsRole(SqlStore):
    """What `Checkup` asks of the counts, and their upkeep."""

    @reading
    async def miscounts(self, session: Session) -> Sequence[Miscount]:
        return await read_miscounts(session)

    @writing()
    async def recount(self, session: Session) -> Sequence[Miscount]:
        await session.fetch(_KEEP_OUT)
        wrong = await session.fetch(_MISCOUNTS)
        names = ("destination", "state", "detail", "tenant")
        rows = [
            dict(zip(names, (number, state, detail, tenant), strict=True))
            | {"number": counted - kept}
            for number, _, state, detail, tenant, kept, counted in wrong
        ]
        await session.fetch(_MENDED, session.records(rows))
        return [_miscount(row) for row in wrong]

    async def _fold_many(self, changes: int) -> None:
        """Add up the changes if there are many, so that they never grow without end."""
        if changes > _MOST_CHANGES:
            with suppress(StoreError):  # who comes next will try again
                await self._write(lambda session, _: fold(session))


async def read_miscounts(session: Session) -> Sequence[Miscount]:
    """Count everything, and return what is kept as another number."""
    return [_miscount(row) for row in await session.fetch(_MISCOUNTS)]


async def count_changes(session: Session) -> int:
    """Return how many changes are not added up yet."""
    return int(await session.value(_CHANGES))


async def fold(session: Session) -> None:
    """Add up what has changed, and forget what there is no more of."""
    await session.fold_counts()
    await session.fetch(_FORGET)


def _miscount(row: Sequence[Any]) -> Miscount:
    _, name, state, detail, tenant, kept, counted = row
    what = _WORDS.get(state, "pending or in flight")
    more = ", ".join(one for one in (detail, tenant) if one)
    return Miscount(
        destination=name,
        what=f"{what} ({more})" if more else what,
        kept=kept,
        counted=counted,
    )
