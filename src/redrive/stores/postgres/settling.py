"""Settling: what happens to a lease after its claim, in one statement or in steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta

from redrive.model.delivery import Delivery, Lease
from redrive.store import FORGOTTEN_AFTER, Blame, Overdue, Serving, Settled, ShedBlame
from redrive.stores.codec import json_text
from redrive.stores.postgres.codec import numbers
from redrive.stores.postgres.core import Core
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.postgres.single_statement.settle import SETTLE, is_simple
from redrive.stores.sql.intervention import expire
from redrive.stores.sql.leases import LeasesRole, leases_from, overdue, settle
from redrive.stores.sql.shedding import shed

__all__ = ["SettlementsRole"]

_EXTEND = """
UPDATE redrive.deliveries d SET lease_until = present.now + $2::interval
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) AS present
CROSS JOIN unnest($3::bigint[], $4::bigint[]) AS given (id, token)
WHERE d.id = given.id AND d.token = given.token AND d.status + 0 = 1
  AND d.lease_until > present.now
RETURNING d.id, d.token
"""
_BEAT = """
WITH present AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now
), heard AS (
    INSERT INTO redrive.workers AS known (id, seen_at, serving)
    SELECT $2, present.now, $3 FROM present
    ON CONFLICT (id) DO UPDATE
    SET seen_at = excluded.seen_at, serving = coalesce(excluded.serving, known.serving)
), forgotten AS (
    DELETE FROM redrive.workers w USING present
    WHERE w.seen_at < present.now - $4::interval AND w.id <> $2
)
UPDATE redrive.deliveries d SET lease_until = present.now + $5::interval
FROM present CROSS JOIN unnest((SELECT $6::bigint[]), (SELECT $7::bigint[])) AS given (id, token)
WHERE d.id = given.id AND d.token = given.token AND d.status + 0 = 1
  AND d.lease_until > present.now
RETURNING d.id, d.token
"""


class SettlementsRole(Core, LeasesRole):
    """`DeliveryQueue`, but for claims."""

    async def settle(self, batch: Sequence[Settled]) -> Sequence[Lease]:
        facts = self.facts
        is_beside = not self._is_shared and not facts.awaits_settlements and is_simple(batch)
        if is_beside and not facts.keeps_order:
            batch = await self._settle_in_one_statement(batch)
            if not batch:
                facts.went("settle", "statement")
                return ()
        facts.went("settle", "steps")
        refused, frees = await self._settle_in_steps(batch, is_beside=is_beside)
        if frees:
            self._notifications.notify_seldom()
        return refused

    async def _settle_in_steps(
        self, batch: Sequence[Settled], *, is_beside: bool
    ) -> tuple[Sequence[Lease], bool]:
        """Settle before the claim of the same turn, or beside it if it need not see this."""

        async def job(session: PostgresSession) -> tuple[Sequence[Lease], bool]:
            session.present = self._given_now
            if not is_simple(batch):
                session.now = session.present = await self._now(session)
            return await settle(session, batch, history=self._history)

        if not is_beside:
            return await self._share(job)
        end = asyncio.get_running_loop().create_future()
        self._beside.add(end)
        try:
            return await self._run(job, within=self.facts.patience)
        finally:
            self._beside.discard(end)
            end.set_result(None)

    async def _settle_in_one_statement(self, batch: Sequence[Settled]) -> Sequence[Settled]:
        """Settle what can be; returns the rest."""
        leases = _in_order(one.lease for one in batch)
        rows = await self._statement(
            SETTLE,
            self._given_now,
            numbers(one.delivery_id for one in leases),
            numbers(one.token for one in leases),
            within=self.facts.patience,
        )
        left = {number for (number,) in rows}
        return [one for one in batch if one.lease.delivery_id in left]

    async def heartbeat(
        self,
        worker: str,
        leases: Sequence[Lease],
        *,
        lease: timedelta,
        serving: Serving | None = None,
    ) -> Sequence[Lease]:
        told = None if serving is None else json_text(serving)
        rows = await self._statement(
            _BEAT,
            *(self._given_now, worker, told, FORGOTTEN_AFTER, lease),
            *_columns(_in_order(leases)),
            # So that there is time for another, on a connection that answers.
            within=lease.total_seconds() / 3,
        )
        kept = leases_from(rows)
        return [one for one in leases if one not in kept]

    async def extend(self, leases: Sequence[Lease], *, lease: timedelta) -> Sequence[Lease]:
        rows = await self._statement(
            _EXTEND,
            *(self._given_now, lease, *_columns(_in_order(leases))),
            within=lease.total_seconds() / 3,
        )
        kept = leases_from(rows)
        return [one for one in leases if one not in kept]

    async def overdue(self, *, limit: int = 100) -> Sequence[Overdue]:
        if not (await self._duties()).has_overdue:
            return ()
        return await self._read(lambda session, _: overdue(session, limit=limit), is_prompt=True)

    async def expire(self, *, blame: Blame, limit: int = 100) -> Sequence[Delivery]:
        if not (await self._duties()).has_expired:
            return ()
        return await self._write(
            lambda session, _: expire(session, blame=blame, limit=limit), is_prompt=True
        )

    async def shed(self, *, blame: ShedBlame, limit: int = 100) -> Sequence[Delivery]:
        if not (await self._duties()).may_shed:
            return ()
        dropped = await self._write(
            lambda session, _: shed(session, blame=blame, limit=limit), is_prompt=True
        )
        if dropped:
            self._notifications.notify()
        return dropped


def _columns(leases: Sequence[Lease]) -> tuple[list[int], list[int]]:
    return [one.delivery_id for one in leases], [one.token for one in leases]


def _in_order(leases: Iterable[Lease]) -> list[Lease]:
    """Lock rows in id order, as every other writer does, so that two never deadlock."""
    return sorted(leases, key=lambda one: one.delivery_id)
