"""Claiming in SQL: which deliveries may start now, and the leases on them.

Rows of a claim come back as one JSON document, and batches go in as one: each statement then
crosses between SQLite and Python once, not once per row, which matters because every crossing has
to win the interpreter's lock from the handlers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import apsw
import msgspec

from redrive.claiming.fair_selection import all_sorts
from redrive.claiming.ready import Candidate, TenantState
from redrive.model.delivery import Leased
from redrive.store import Claim, ClaimRequest
from redrive.stores.codec import json_text, micros
from redrive.stores.sql.claiming import Choice
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.leases import see_worker
from redrive.stores.sql.session import instant
from redrive.stores.sqlite.append import count
from redrive.stores.sqlite.connection import rows
from redrive.stores.sqlite.ready import SqliteReady
from redrive.stores.sqlite.session import SqliteSession
from redrive.stores.sqlite.tenants import keep_accounts, tenant_states

__all__ = ["claim"]

_SUSPECTS = """
SELECT json_group_array(
    json_array(-priority, id, kind, due, destination, ifnull(tenant, ''))
) FROM (
    SELECT priority, id, kind, due, destination, tenant FROM redrive_deliveries
    WHERE destination IN (SELECT value FROM json_each(?))
      AND generation IN (SELECT value FROM json_each(?))
      AND status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes >= 2
      AND (deadline IS NULL OR deadline > ?)
    ORDER BY priority DESC, id LIMIT 100
)
"""
_MORE = """
SELECT 1 FROM redrive_deliveries
WHERE destination = +:destination AND generation IN (SELECT value FROM json_each(:generations))
  AND status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2
  AND (deadline IS NULL OR deadline > +:now)
LIMIT 1
"""
_NEXT_DUE = """
SELECT min((
    SELECT due FROM redrive_deliveries
    WHERE destination = q.value AND generation = g.value
      AND status = 0 AND is_ready = 0 AND is_behind = 0
    ORDER BY due LIMIT 1
)) FROM json_each(?) AS q CROSS JOIN json_each(?) AS g
"""
_LEASE = """
UPDATE redrive_deliveries
SET status = 1, token = token + 1, attempts = attempts + 1, worker = ?, lease_until = ?,
    is_alone = ?, breaker_generation = ?
WHERE id IN (SELECT value FROM json_each(?))
"""
_LEASED = """
SELECT '[' || group_concat('[[' || d.id || ',' || d.token || '],' || json_quote(t.name) || ','
    || iif(d.payload IS NULL, e.document, json_set(e.document, '$.payload', json(d.payload)))
    || ',' || d.attempts || ',"'
    || CASE d.kind WHEN 0 THEN 'first' WHEN 1 THEN 'retry' ELSE 'replay' END || '",'
    || :now || ',' || format('%.6f', d.enqueued_at / 1e6) || ','
    || d.snoozes || ',' || d.crashes || ','
    || iif(d.last_crash_at IS NULL, 'null', format('%.6f', d.last_crash_at / 1e6)) || ','
    || :alone || ',' || d.breaker_generation || ',false,false,'
    || iif(d.cycles IS NULL, 0, json_array_length(d.cycles)) || ','
    || iif(d.deadline IS NULL, 'null', format('%.6f', d.deadline / 1e6)) || ','
    || json_quote(ifnull(d.rule, '')) || ']') || ']'
FROM json_each(:ids) CROSS JOIN redrive_deliveries d ON d.id = value
CROSS JOIN redrive_events e ON e.position = d.position
CROSS JOIN redrive_destinations t ON t.id = d.destination
"""
"""Each row is a `Leased` as JSON, in the order of its fields."""

_SIZES = """
SELECT json_group_array(octet_length(e.document) + ifnull(octet_length(d.payload), 0))
FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value
CROSS JOIN redrive_events e ON e.position = d.position
"""
_APART = """
SELECT d.id, d.token, d.destination, CAST(e.document AS BLOB), CAST(d.payload AS BLOB), d.attempts,
       d.kind, d.enqueued_at, d.snoozes, d.crashes, d.last_crash_at, d.breaker_generation,
       iif(d.cycles IS NULL, 0, json_array_length(d.cycles)), d.deadline, d.rule
FROM json_each(?) CROSS JOIN redrive_deliveries d ON d.id = value
CROSS JOIN redrive_events e ON e.position = d.position
"""

_sizes = msgspec.json.Decoder(list[int])
_candidates = msgspec.json.Decoder(list[Candidate])
# Instants come as seconds with six decimals, which only a decoder that is not strict reads.
_leased = msgspec.json.Decoder(tuple[Leased, ...], strict=False)


async def claim(session: SqliteSession, request: ClaimRequest) -> Claim:
    """Lease what may start now, and say when to ask again."""
    is_flooded = await session.make_ready()
    asked = [one.destination for one in request.allowances]
    limit = request.limit
    while True:
        gates = await GateRepository.lock(session, asked)
        limited = msgspec.structs.replace(request, limit=limit)
        choice = _SqliteChoice(session, gates, limited, is_flooded=is_flooded)
        await choice.hold_shared()
        suspects = await choice.suspects()
        if request.alone:
            await choice.choose_suspect(suspects)
        else:
            await choice.choose()
        most = await choice.fitting()
        if most is None:
            break
        limit = most
    if limit != request.limit:
        choice.ask_soon()
    deliveries = await choice.lease()
    return Claim(
        now=session.now,
        deliveries=deliveries,
        next_due=await choice.next_due(choice.waiting()),
        suspects=len(suspects) - len(deliveries if request.alone else ()),
        changes=await gates.write(),
        routes_version=count(session.connection, "routes_version"),
        shut=choice.shut(),
    )


class _SqliteChoice(Choice):
    def __init__(
        self,
        session: SqliteSession,
        gates: GateRepository,
        request: ClaimRequest,
        *,
        is_flooded: bool,
    ) -> None:
        sorts = all_sorts(request.generations)
        super().__init__(gates, request, sorts=sorts, is_flooded=is_flooded)
        self._session = session
        self._connection = session.connection
        self._moment = micros(session.now)
        self._generations = json_text(request.generations)

    def _ready(self, name: str) -> SqliteReady:
        return SqliteReady(self._connection, self._numbers[name], now=self._now)

    async def _read_suspects(self, destinations: Sequence[int]) -> list[Candidate]:
        given = (json_text(destinations), self._generations, self._moment)
        return _candidates.decode(self._connection.execute(_SUSPECTS, given).get)

    async def _read_states(
        self, whose: Collection[tuple[int, str]]
    ) -> Mapping[tuple[int, str], TenantState]:
        return {
            (number, tenant): tenant_states(self._connection, number, [tenant])[tenant]
            for number, tenant in whose
        }

    async def _read_sizes(self, ids: Sequence[int]) -> Sequence[int]:
        return _sizes.decode(self._connection.execute(_SIZES, (json_text(ids),)).get)

    async def _filled(self, destinations: Sequence[int]) -> Sequence[int]:
        given = {"generations": self._generations, "now": self._moment}
        return [
            number
            for number in destinations
            if self._connection.execute(_MORE, {**given, "destination": number}).get is not None
        ]

    def waiting(self) -> datetime | None:
        """Return when the first of what is not ready is due."""
        given = (json_text(list(self._numbers.values())), self._generations)
        due: datetime | None = instant(self._connection.execute(_NEXT_DUE, given).get)
        return due

    async def lease(self) -> tuple[Leased, ...]:
        """Lease what was chosen, and write down what tenants were given."""
        if self._accounts:
            keep_accounts(self._connection, self._accounts, now=self._now)
        if not self._chosen:
            return ()
        request, until = self._request, micros(self._now + self._request.lease)
        by_generation: dict[int, list[int]] = {}
        for number, generation in self._chosen:
            by_generation.setdefault(generation, []).append(number)
        for generation, some in by_generation.items():
            self._connection.execute(
                _LEASE, (request.worker, until, request.alone, generation, json_text(some))
            )
        await see_worker(self._session, request.worker)
        return tuple(self._marked(one) for one in self._read_leased())

    def _read_leased(self) -> Sequence[Leased]:
        now = f"{self._moment // 1_000_000}.{self._moment % 1_000_000:06}"
        ids = json_text([number for number, _ in self._chosen])
        if self._session.codec.is_sealing:
            return [self._leased(row) for row in rows(self._connection, _APART, (ids,))]
        given = {"ids": ids, "now": now, "alone": json_text(self._request.alone)}
        try:
            return _leased.decode(self._connection.execute(_LEASED, given).get)
        except (ValueError, RecursionError, apsw.SQLError):
            # One of them cannot be read, and is to fail alone.
            return [self._leased(row) for row in rows(self._connection, _APART, (ids,))]
