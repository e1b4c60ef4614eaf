"""Claiming in SQL: which deliveries may start now, and the leases on them.

Whoever claims holds the locks on the gates, so nobody else claims from the same destinations. What
a person changes meanwhile is noticed when the leases are written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec

from redrive.claiming.fair_selection import FairSelection, all_sorts, open_sorts, place_among
from redrive.claiming.passage import Passage
from redrive.claiming.ready import KINDS, SOON, Candidate, TenantState, accounts, fitting
from redrive.claiming.round_robin import Line, Share, serve
from redrive.claiming.turnstile import Turnstile
from redrive.model.delivery import SUSPECT_AFTER, Lease, Leased
from redrive.model.gate import Gate
from redrive.policies.breaker import last_probed
from redrive.policies.gate import marked, passed
from redrive.store import Claim, ClaimRequest
from redrive.stores.codec import carrying, event_from, maybe_from_micros, micros
from redrive.stores.postgres.codec import columns, numbers
from redrive.stores.postgres.core import Core
from redrive.stores.postgres.facts import Facts
from redrive.stores.postgres.gating import known_gate, lock_gates
from redrive.stores.postgres.lanes import free_late_lanes, line_up_chosen
from redrive.stores.postgres.ready import (
    FRESH,
    Ahead,
    PostgresReady,
    ReadyQuery,
    query_ready,
    states_of,
)
from redrive.stores.postgres.session import PostgresSession
from redrive.stores.postgres.single_statement.claim import ClaimStatement
from redrive.stores.sql.gates import GateRepository
from redrive.stores.sql.leases import see_worker

__all__ = ["ClaimsRole"]

_MOST_PROMOTED = 2_000
_BETWEEN_POLLS_SECONDS = 1.25
"""An idle worker polls every second: what one poll has found serves the duties until the next.

With room for a poll that is a little late, or duties would ask the same beside it.
"""

_PROMOTE = """
WITH promoted AS (
    UPDATE redrive.deliveries SET is_ready = true WHERE id IN (
        SELECT id FROM redrive.deliveries WHERE status = 0 AND NOT is_ready AND due <= $1
        ORDER BY due LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
    )
    RETURNING id
)
SELECT count(*) FROM promoted
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
    SELECT count(*) <= 1 OR sum(octet_length(e.document) + free.bytes) <= $16 AS is_enough
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
RETURNING free.place, d.id, d.token, d.destination, e.document, d.attempts, d.kind,
          d.enqueued_at, d.snoozes, d.crashes, d.last_crash_at, d.breaker_generation, d.payload
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
        self._notifications.clear()
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
            claimed = await self._share(lambda link: self._claim_in_steps(link, request))
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

    async def _claim_in_steps(self, link: PostgresSession, request: ClaimRequest) -> Claim:
        now = self._given_now
        asked = {one.destination for one in request.allowances}
        limit, is_limited = request.limit, False
        while True:
            keeper = await lock_gates(link, asked, now=now)
            now = link.now
            limited = msgspec.structs.replace(request, limit=limit)
            claiming = _Claiming(link, keeper, limited, facts=self.facts, now=now)
            ahead = await claiming.query()
            suspects = await claiming.suspects() if ahead.is_suspected else []
            if request.alone:
                await claiming.choose_suspect(suspects)
            else:
                await claiming.choose(ahead)
            if ahead.is_changing and await claiming.line_up():
                continue
            deliveries = await claiming.lease(is_limited=is_limited)
            fitting = None if deliveries else await claiming.fitting()
            if fitting is None:
                break
            limit, is_limited = fitting, True
        await self.facts.bounds.follow(link.fetch)
        claiming.tell(self.facts, ahead)
        return Claim(
            now=now,
            deliveries=deliveries,
            next_due=await claiming.next_due(ahead),
            suspects=len(suspects) - (len(deliveries) if request.alone else 0),
            changes=keeper.changes(),
            routes_version=ahead.routes_version,
        )


class _Claiming:
    """One claim: what passes the gates, and in which order."""

    def __init__(
        self,
        link: PostgresSession,
        keeper: GateRepository,
        request: ClaimRequest,
        *,
        facts: Facts,
        now: datetime,
    ) -> None:
        self._link = link
        self._bounds = facts.bounds.reading()
        self._is_known = request.worker == facts.worker
        self._keeper = keeper
        self._request = request
        self._now = now
        self._allowances = {
            one.destination: one for one in request.allowances if one.destination in keeper.numbers
        }
        self._names = {number: name for name, number in keeper.numbers.items()}
        self._sorts = all_sorts(request.generations, kinds=FRESH + 1)
        self._passages: dict[str, Passage] = {}
        self._is_flooded = False
        self._queries: dict[str, ReadyQuery] = {}
        self._chosen: list[tuple[int, int]] = []
        self._accounts: list[tuple[object, ...]] = []
        self._states: dict[tuple[int, str], TenantState] = {}
        self._openings: list[datetime] = []
        self._shut: dict[int, datetime] = {}
        self._before: dict[str, Gate] = {}

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
            await free_late_lanes(self._link)
        if ahead.is_time:
            promoted = await self._link.value(_PROMOTE, self._now, _MOST_PROMOTED)
            self._is_flooded = promoted == _MOST_PROMOTED
        return await self._query_ready()

    async def _query_ready(self) -> Ahead:
        return await query_ready(
            self._link,
            self._queries.values(),
            asked=[self._keeper.numbers[name] for name in self._allowances],
            generations=self._request.generations,
            bounds=self._bounds,
            now=self._now,
        )

    async def _aim(self) -> None:
        """Say what to query: of each destination, as much as the gate may let through."""
        sorts, limit = self._sorts, self._request.limit
        for name, allowance in self._allowances.items():
            total = min(allowance.total, limit)
            turnstile = await self._turnstile(name, total=total)
            is_open = turnstile.left > 0
            self._queries[name] = ReadyQuery(
                destination=self._keeper.numbers[name],
                sorts=open_sorts(sorts, turnstile) if is_open else [],
                tenant=turnstile.gate.rotation.tenant or "",
                most=turnstile.left + 1 + len(last_probed(turnstile.gate.breaker)),
            )

    async def suspects(self) -> list[Candidate]:
        """Return the deliveries that may only run alone, if their gate lets them through now."""
        startable = [
            self._keeper.numbers[name] for name, one in self._allowances.items() if one.total > 0
        ]
        generations = list(self._request.generations)
        rows = await self._link.fetch(_SUSPECTS, startable, generations, self._now)
        found = [
            Candidate(precedence, number, kind, micros(due), destination, tenant)
            for precedence, number, kind, due, destination, tenant in rows
        ]
        self._states = await states_of(self._link, [(one.destination, one.tenant) for one in found])
        return [one for one in found if await self._may_start_alone(one)]

    async def choose_suspect(self, suspects: list[Candidate]) -> None:
        """Choose the first suspect, and charge its gate and its tenant."""
        if not suspects:
            return
        one = min(suspects, key=self._last_probed)
        name = self._names[one.destination]
        turnstile = await self._turnstile(name, total=1)
        line = Line(
            tenant=one.tenant,
            turn=self._keeper.fairness(name).turn_of(one.tenant),
            work=[one],
            tokens=self._tokens(one),
        )
        serving = serve(
            [line],
            turnstile.gate.rotation,
            room=1,
            admit=lambda one: turnstile.admit(KINDS[one.kind], was_held=_was_held(one, turnstile)),
        )
        state = self._states[one.destination, one.tenant]
        self._charge(name, turnstile, serving, {one.tenant: state})

    async def choose(self, ahead: Ahead) -> None:
        """Choose what may start: tenants in turn, each by priority and age."""
        left = self._request.limit
        for name, allowance in self._allowances.items():
            total = min(allowance.total, left)
            if total <= 0:
                continue
            number, fairness = self._keeper.numbers[name], self._keeper.fairness(name)
            selection = FairSelection(
                PostgresReady(
                    self._link,
                    self._queries[name],
                    ahead.found.get(number),
                    turn=fairness.turn,
                    bounds=self._bounds,
                    now=self._now,
                ),
                fairness,
                sorts=self._sorts,
                turnstile=await self._turnstile(name, total=total),
                is_flooded=self._is_flooded,
                now=self._now,
            )
            serving = await selection.serve()
            if selection.again_at is not None:
                self._openings.append(selection.again_at)
            self._charge(name, selection.turnstile, serving, selection.states())
            left -= len(serving.chosen)

    async def line_up(self) -> bool:
        """Put what was chosen into its lane, if it lacks one; tell whether to choose again."""
        count, busy = await line_up_chosen(self._link, [number for number, _ in self._chosen])
        if busy:
            self._chosen = [one for one in self._chosen if one[0] not in busy]
            self._openings.append(self._now + SOON)
        return count > len(busy)

    async def next_due(self, ahead: Ahead) -> datetime | None:
        """Return when something more may be claimed, after what was chosen is leased."""
        if self._shut:
            rows = await self._link.fetch(
                _MORE, list(self._shut), list(self._request.generations), self._now
            )
            self._openings += [self._shut[number] for (number,) in rows]
        if ahead.next_due is not None:
            self._openings.append(ahead.next_due)
        return min(self._openings, default=None)

    async def _turnstile(self, name: str, *, total: int) -> Turnstile:
        if name not in self._passages:
            self._passages[name] = await self._keeper.passage(name)
        gate = self._keeper.gate(name)
        return Turnstile(gate, self._passages[name], total=total)

    def _charge(
        self,
        name: str,
        turnstile: Turnstile,
        serving: Share[Candidate],
        states: Mapping[str, TenantState],
    ) -> None:
        """Choose those who were served, and charge gate and tenants for them."""
        number, fairness = self._keeper.numbers[name], self._keeper.fairness(name)
        if turnstile.again_at is not None:
            self._shut[number] = turnstile.again_at
        gate = turnstile.charged(self._keeper.limits(name), now=self._now)
        if serving.rotation != gate.rotation:
            gate = msgspec.structs.replace(gate, rotation=serving.rotation)
        self._keeper.put(name, gate)
        self._before[name] = gate
        self._keeper.put(name, passed(gate, [one.id for one in serving.chosen], now=self._now))
        self._chosen += [(one.id, gate.breaker.generation) for one in serving.chosen]
        self._accounts += [
            (number, *account, maybe_from_micros(refilled_at))
            for *account, refilled_at in accounts(fairness, serving.served, states, now=self._now)
        ]

    async def _may_start_alone(self, one: Candidate) -> bool:
        turnstile = await self._turnstile(self._names[one.destination], total=1)
        is_let = turnstile.admit(KINDS[one.kind], was_held=_was_held(one, turnstile))
        return is_let and self._tokens(one) > 0

    def _last_probed(self, one: Candidate) -> int:
        state = self._keeper.gate(self._names[one.destination]).breaker
        return place_among(last_probed(state), one.id)

    def _tokens(self, one: Candidate) -> int:
        fairness = self._keeper.fairness(self._names[one.destination])
        return self._states[one.destination, one.tenant].affordable(fairness, now=self._now)

    def tell(self, facts: Facts, ahead: Ahead) -> None:
        """Remember how the gates were left, and that the worker is on record."""
        facts.worker = self._request.worker
        for name, passage in self._passages.items():
            found = ahead.found.get(self._keeper.numbers[name])
            has_tenants = found is None or found.has_others
            facts.gates[name] = known_gate(self._keeper, name, passage, has_tenants=has_tenants)

    async def fitting(self) -> int | None:
        """Return how many of the chosen there is room for, if nothing was leased for lack of it."""
        ids = numbers(number for number, _ in self._chosen)
        sizes = [row[0] for row in await self._link.fetch(_SIZES, ids)] if self._chosen else []
        most_bytes = self._request.most_bytes
        is_too_much = len(sizes) > 1 and sum(sizes) > most_bytes
        return fitting(sizes, most_bytes) if is_too_much else None

    async def lease(self, *, is_limited: bool) -> tuple[Leased, ...]:
        """Lease what was chosen, and write down what it has cost; nothing if it is too large.

        What a person is just changing is left out, without waiting for it; there may be other work
        in its place, so the worker is to ask again soon, as when what it may take `is_limited`.
        """
        if not self._chosen:
            await self._keeper.write()
            if not self._is_known:
                await see_worker(self._link, self._request.worker)
            return ()
        rows = await self._link.fetch(
            _LEASE,
            self._request.worker,
            self._now,
            self._now + self._request.lease,
            self._request.alone,
            numbers(number for number, _ in self._chosen),
            numbers(generation for _, generation in self._chosen),
            *columns(self._keeper.changed(), 2),
            *columns(self._accounts, _ACCOUNT),
            self._request.most_bytes,
        )
        if is_limited or len(rows) < len(self._chosen):
            self._openings.append(self._now + SOON)
        leased = [
            Leased(
                lease=Lease(number, token),
                destination=self._names[destination],
                event=carrying(event_from(document), payload),
                attempt=attempts,
                kind=KINDS[kind],
                claimed_at=self._now,
                enqueued_at=enqueued_at,
                snoozes=snoozes,
                crashes=crashes,
                last_crash_at=last_crash_at,
                is_alone=self._request.alone,
                breaker_generation=breaker_generation,
            )
            for (
                _,
                number,
                token,
                destination,
                document,
                attempts,
                kind,
                enqueued_at,
                snoozes,
                crashes,
                last_crash_at,
                breaker_generation,
                payload,
            ) in sorted(rows, key=itemgetter(0))
        ]
        return tuple(marked(one, self._before[one.destination]) for one in leased)


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


def _was_held(one: Candidate, turnstile: Turnstile) -> bool:
    reopened_at = turnstile.gate.reopened_at
    return reopened_at is not None and one.due <= micros(reopened_at)


assert SUSPECT_AFTER == 2, "the partial indexes and queries above say 2"  # noqa: S101, PLR2004
