"""Claiming in SQL: which deliveries may start now, and the leases on them.

Whoever claims holds the locks on the gates, so nobody else claims from the same destinations. What
a person changes meanwhile is noticed when the leases are written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from redrive.claiming.fair_selection import all_sorts, open_sorts
from redrive.claiming.ready import SOON, Candidate, TenantState
from redrive.model.delivery import Leased
from redrive.policies.breaker import last_probed
from redrive.store import Claim, ClaimRequest
from redrive.stores.codec import maybe_from_micros, micros
from redrive.stores.postgres.codec import columns, numbers
from redrive.stores.postgres.core import Core
from redrive.stores.postgres.facts import Facts
from redrive.stores.postgres.gating import known_gate, lock_gates
from redrive.stores.postgres.lanes import free_late_lanes, line_up_chosen
from redrive.stores.postgres.ready import (
    FRESH,
    Ahead,
    Found,
    PostgresReady,
    ReadyQuery,
    query_ready,
    states_of,
)
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.postgres.single_statement.claim import ClaimStatement
from redrive.stores.sql.claiming import Choice
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.lanes import HELD_LANES
from redrive.stores.sql.leases import see_worker

__all__ = ["ClaimsRole"]

_BETWEEN_POLLS_SECONDS = 1.25
"""An idle worker polls every second: what one poll has found serves the duties until the next.

With room for a poll that is a little late, or duties would ask the same beside it.
"""

_SUSPECTS = """
SELECT -priority, id, kind, due, destination, coalesce(tenant, '') FROM redrive.deliveries
WHERE destination = ANY ($1::integer[]) AND generation = ANY ($2::text[])
  AND status = 0 AND is_ready AND NOT is_behind AND crashes >= 2
  AND (deadline IS NULL OR deadline > $3)
ORDER BY priority DESC, id LIMIT 100
"""
# In the order of the index and with a limit, so that it is a look at the first of each.
_MORE = """
SELECT DISTINCT given.destination
FROM unnest($1::integer[]) AS given (destination)
CROSS JOIN unnest($2::text[]) AS g (generation)
CROSS JOIN generate_series(0, 3) AS k (kind)
CROSS JOIN LATERAL (
    SELECT FROM redrive.deliveries d
    WHERE d.destination = given.destination AND d.generation = g.generation AND d.kind = k.kind
      AND d.status = 0 AND d.is_ready AND NOT d.is_behind AND d.crashes < 2
      AND (d.deadline IS NULL OR d.deadline > $3)
    ORDER BY coalesce(d.tenant, '') COLLATE "C", (-d.priority), d.id LIMIT 1
) first
"""
_LEASE = """
WITH seen AS (
    INSERT INTO redrive.workers (id, seen_at) VALUES ($1, $2)
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
), free AS MATERIALIZED (
    SELECT d.id, given.breaker_generation, given.place, d.position,
           coalesce(octet_length(d.payload), 0) AS bytes
    FROM unnest((SELECT $5::text::bigint[]), (SELECT $6::text::integer[]))
        WITH ORDINALITY AS given (id, breaker_generation, place)
    JOIN redrive.deliveries d ON d.id = given.id
    WHERE d.status = 0 AND d.is_ready AND NOT d.is_behind
    FOR NO KEY UPDATE OF d SKIP LOCKED
), room AS MATERIALIZED (
    SELECT count(*) = cardinality($5::text::bigint[])
       AND (count(*) <= 1 OR sum(octet_length(e.document) + free.bytes) <= $16) AS is_enough
    FROM free JOIN redrive.events e ON e.position = free.position
), charged AS (
    UPDATE redrive.gates g SET document = given.document
    FROM unnest((SELECT $7::integer[]), (SELECT $8::text[])) AS given (destination, document)
    WHERE g.destination = given.destination AND (SELECT is_enough FROM room)
), served AS (
    INSERT INTO redrive.tenants AS past
        (destination, tenant, round, processed, consecutive, tokens, refilled_at, served_at)
    SELECT *, $2 FROM unnest(
        (SELECT $9::integer[]), (SELECT $10::text[]), (SELECT $11::bigint[]),
        (SELECT $12::bigint[]), (SELECT $13::integer[]), (SELECT $14::double precision[]),
        (SELECT $15::timestamptz[])
    ) WHERE (SELECT is_enough FROM room)
    ON CONFLICT (destination, tenant) DO UPDATE SET
        served_at = excluded.served_at, round = excluded.round,
        processed = past.processed + excluded.processed, consecutive = excluded.consecutive,
        tokens = excluded.tokens, refilled_at = excluded.refilled_at
)
UPDATE redrive.deliveries d
SET status = 1, token = token + 1, attempts = attempts + 1, worker = $1, lease_until = $3,
    is_alone = $4, kind = kind % 3, breaker_generation = free.breaker_generation
FROM free JOIN redrive.events e ON true
WHERE d.id = free.id AND e.position = d.position AND (SELECT is_enough FROM room)
RETURNING free.place, d.id, d.token, d.destination, e.document, d.payload, d.attempts, d.kind,
          d.enqueued_at, d.snoozes, d.crashes, d.last_crash_at, d.breaker_generation,
          coalesce(jsonb_array_length(d.cycles), 0), d.deadline, d.rule
"""
_FREE = """
SELECT d.id FROM unnest($1::text::bigint[]) AS given (id)
JOIN redrive.deliveries d ON d.id = given.id JOIN redrive.events e ON e.position = d.position
WHERE d.status = 0 AND d.is_ready AND NOT d.is_behind
FOR NO KEY UPDATE OF d SKIP LOCKED
"""
_SIZES = """
SELECT octet_length(e.document) + coalesce(octet_length(d.payload), 0)
FROM unnest($1::text::bigint[]) WITH ORDINALITY AS given (id, place)
JOIN redrive.deliveries d ON d.id = given.id JOIN redrive.events e ON e.position = d.position
ORDER BY given.place
"""
_ACCOUNT = 7


class ClaimsRole(Core):
    """The claims of `DeliveryQueue`."""

    async def claim(self, request: ClaimRequest) -> Claim:
        facts = self.facts
        self._look_anew()
        self._expect_turns_within(request.lease)
        facts.served = frozenset(one.destination for one in request.allowances)
        beside = self._beside.copy()
        claimed = await self._claim(request)
        rest = _rest(request, claimed)
        if beside and rest is not None:
            # A drain must not take the store for empty while a lane is being freed.
            await asyncio.wait(beside)
            claimed = _joined(claimed, await self._claim(rest))
        facts.is_idle = not claimed.deliveries
        facts.is_busy = bool(claimed.deliveries) and _rest(request, claimed) is None
        return claimed

    async def _claim(self, request: ClaimRequest) -> Claim:
        claimed = await self._claim_in_one_statement(request)
        if claimed is None:
            self.facts.went("claim", "steps")
            claimed = await self._share(lambda session: self._claim_in_steps(session, request))
        return claimed

    async def _claim_in_one_statement(self, request: ClaimRequest) -> Claim | None:
        """Claim fresh work, or find that there is nothing; `None` if there is more to decide."""
        facts = self.facts
        if self._is_shared or (statement := ClaimStatement.of(facts, request)) is None:
            return None
        await facts.bounds.follow(self._ask)
        began = self._clock.monotonic()
        rows = await self._statement(
            statement.text,
            *statement.values(self._given_now),
            within=facts.patience,
            changes=not statement.is_of_idle,
        )
        claimed, duties = statement.read(rows)
        if claimed is None:
            return None
        facts.went("claim", "statement")
        if claimed.deliveries:
            facts.changed()
        elif duties is not None:
            self._keep_duties(duties, since=began, lasts=_BETWEEN_POLLS_SECONDS)
        return claimed

    async def _ask(self, statement: str) -> list[Any]:
        return await self._statement(statement, within=self.facts.patience, changes=False)

    async def _claim_in_steps(self, session: PostgresSession, request: ClaimRequest) -> Claim:
        now = self._given_now
        asked = {one.destination for one in request.allowances}
        limit, held = request.limit, frozenset[int]()
        while True:
            gates = await lock_gates(session, asked, now=now)
            now = session.now
            limited = msgspec.structs.replace(request, limit=limit)
            choice = _PostgresChoice(session, gates, limited, facts=self.facts, held=held)
            await choice.hold_shared()
            ahead = await choice.query()
            suspects = await choice.suspects() if ahead.is_suspected else []
            if request.alone:
                await choice.choose_suspect(suspects)
            else:
                await choice.choose()
            if ahead.is_changing and await choice.line_up():
                held = choice.held
                continue
            deliveries = await choice.lease()
            if deliveries or choice.is_empty:
                break
            if (fitting := await choice.fitting()) is not None:
                limit = fitting
            else:
                held = await choice.find_held()
        if limit != request.limit:
            choice.ask_soon()
        await self.facts.bounds.follow(session.fetch)
        choice.tell(self.facts)
        return Claim(
            now=now,
            deliveries=deliveries,
            next_due=await choice.next_due(ahead.next_due),
            suspects=len(suspects) - (len(deliveries) if request.alone else 0),
            changes=gates.changes(),
            routes_version=ahead.routes_version,
            shut=choice.shut(),
            is_held=choice.is_held,
        )


class _PostgresChoice(Choice):
    def __init__(
        self,
        session: PostgresSession,
        gates: GateRepository,
        request: ClaimRequest,
        *,
        facts: Facts,
        held: frozenset[int],
    ) -> None:
        super().__init__(gates, request, sorts=all_sorts(request.generations, kinds=FRESH + 1))
        self._session = session
        self._bounds = facts.bounds.reading()
        self._is_known = request.worker == facts.worker
        self._generations = list(request.generations)
        self._queries: dict[str, ReadyQuery] = {}
        self._found: Mapping[int, Found] = {}
        self.held = held
        """What would have been chosen, and somebody else has a hold of."""
        self.is_held = False
        """Whether somebody else has a hold of something that is due."""
        if held:
            self._leave_held()

    async def query(self) -> Ahead:
        """Make ready what has come due, and query what there is."""
        if not self._request.alone:
            await self._aim()
        ahead = await self._query_ready()
        if not ahead.is_time and not ahead.is_late:
            return ahead
        # First what may wait for others: two claims that wait for what the other has made ready
        # would never end.
        if ahead.is_late:
            await free_late_lanes(self._session)
        if ahead.is_time:
            self._is_flooded = await self._session.promote()
        return await self._held_back(await self._query_ready())

    async def _held_back(self, ahead: Ahead) -> Ahead:
        """Take note of what somebody has a hold of, and ask for it soon instead of at once."""
        asked = list(self._numbers.values())
        if not self._is_flooded and ahead.next_due is not None and ahead.next_due <= self._now:
            self.is_held = True
            ahead = ahead._replace(next_due=self._now + SOON)
        elif ahead.is_late and await self._session.value(HELD_LANES, self._now, asked):
            self.is_held = True
        return ahead

    async def _query_ready(self) -> Ahead:
        ahead = await query_ready(
            self._session,
            self._queries.values(),
            asked=list(self._numbers.values()),
            generations=self._generations,
            bounds=self._bounds,
            now=self._now,
        )
        self._found = ahead.found
        return ahead

    async def _aim(self) -> None:
        """Say what to query: of each destination, as much as the gate may let through."""
        for name, allowance in self._allowances.items():
            total = min(allowance.total, self._request.limit)
            turnstile = await self._turnstile(name, total=total)
            is_open = turnstile.left > 0
            self._queries[name] = ReadyQuery(
                destination=self._numbers[name],
                sorts=open_sorts(self._sorts, turnstile) if is_open else [],
                tenant=turnstile.gate.rotation.tenant or "",
                most=turnstile.left + 1 + len(last_probed(turnstile.gate.breaker)) + len(self.held),
            )

    def _ready(self, name: str) -> PostgresReady:
        return PostgresReady(
            self._session,
            self._queries[name],
            self._found.get(self._numbers[name]),
            turn=self._gates.fairness(name).turn,
            bounds=self._bounds,
            held=self.held,
            now=self._now,
        )

    async def _read_suspects(self, destinations: Sequence[int]) -> list[Candidate]:
        given = list(destinations), self._generations, self._now
        return [
            Candidate(precedence, number, kind, micros(due), destination, tenant)
            for precedence, number, kind, due, destination, tenant in await self._session.fetch(
                _SUSPECTS, *given
            )
            if number not in self.held
        ]

    async def _read_states(
        self, whose: Collection[tuple[int, str]]
    ) -> Mapping[tuple[int, str], TenantState]:
        return await states_of(self._session, whose)

    async def _read_sizes(self, ids: Sequence[int]) -> Sequence[int]:
        return [size for (size,) in await self._session.fetch(_SIZES, numbers(ids))]

    async def _filled(self, destinations: Sequence[int]) -> Sequence[int]:
        given = list(destinations), self._generations, self._now
        return [number for (number,) in await self._session.fetch(_MORE, *given)]

    async def line_up(self) -> bool:
        """Put what was chosen into its lane, if it lacks one; tell whether to choose again."""
        count, busy = await line_up_chosen(self._session, [number for number, _ in self._chosen])
        self.held |= busy
        return count > 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was chosen."""
        return not self._chosen

    async def find_held(self) -> frozenset[int]:
        """Take hold of what was chosen; returns what somebody else has a hold of instead."""
        chosen = [number for number, _ in self._chosen]
        free = {number for (number,) in await self._session.fetch(_FREE, numbers(chosen))}
        return self.held.union(number for number in chosen if number not in free)

    def tell(self, facts: Facts) -> None:
        """Remember how the gates were left, and that the worker is on record."""
        facts.worker = self._request.worker
        for name, passage in self._passages.items():
            found = self._found.get(self._numbers[name])
            has_tenants = found is None or found.has_others
            facts.gates[name] = known_gate(self._gates, name, passage, has_tenants=has_tenants)

    async def lease(self) -> tuple[Leased, ...]:
        """Lease what was chosen, and write down what it has cost.

        It does nothing if that is too large, or if somebody has a hold of some of it: what a person
        is just changing is left out, without waiting for it, and must not be charged to anybody.
        """
        if not self._chosen:
            await self._gates.write()
            if not self._is_known:
                await see_worker(self._session, self._request.worker)
            return ()
        served = [
            (number, *account, maybe_from_micros(refilled_at))
            for number, (*account, refilled_at) in self._accounts
        ]
        rows = await self._session.fetch(
            _LEASE,
            self._request.worker,
            self._now,
            self._now + self._request.lease,
            self._request.alone,
            numbers(number for number, _ in self._chosen),
            numbers(generation for _, generation in self._chosen),
            *columns(self._gates.changed(), 2),
            *columns(served, _ACCOUNT),
            self._request.most_bytes,
        )
        rows.sort(key=itemgetter(0))
        return tuple(self._marked(self._leased(row[1:])) for row in rows)

    def _leave_held(self) -> None:
        self.is_held = True
        self.ask_soon()


def _rest(request: ClaimRequest, claimed: Claim) -> ClaimRequest | None:
    """Return what is left to ask for after a claim, if anything is."""
    got = Counter(one.destination for one in claimed.deliveries)
    limit = request.limit - got.total()
    allowances = tuple(
        msgspec.structs.replace(one, total=one.total - got[one.destination])
        for one in request.allowances
        if one.total > got[one.destination]
    )
    if not allowances or limit == 0 or request.alone:
        return None
    return msgspec.structs.replace(request, allowances=allowances, limit=limit)


def _joined(first: Claim, second: Claim) -> Claim:
    return msgspec.structs.replace(
        second,
        deliveries=first.deliveries + second.deliveries,
        changes=first.changes + second.changes,
    )
