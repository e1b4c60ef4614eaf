"""Claiming in SQL: which deliveries may start now, and the leases on them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec

from redrive.model.delivery import SUSPECT_AFTER, Kind, Lease, Leased
from redrive.model.event import Event
from redrive.policies.gate import Turnstile
from redrive.store import Allowance, Claim, ClaimRequest
from redrive.stores.codec import event_from
from redrive.stores.postgres.codec import KINDS
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.gating import Gatekeeper
from redrive.stores.postgres.lanes import free_late_lanes
from redrive.stores.postgres.settling import see_worker

__all__ = ["claim"]

_MOST_PROMOTED = 2_000

_OUTLOOK = """
SELECT EXISTS (
           SELECT FROM redrive.deliveries WHERE status = 0 AND NOT is_ready AND due <= $1
       ) AS is_time,
       EXISTS (SELECT FROM redrive.late_lanes) AS is_late,
       EXISTS (
           SELECT FROM redrive.deliveries
           WHERE status = 0 AND is_ready AND NOT is_behind AND crashes >= 2
       ) AS is_suspected
"""
_PROMOTE = """
UPDATE redrive.deliveries SET is_ready = true WHERE id IN (
    SELECT id FROM redrive.deliveries WHERE status = 0 AND NOT is_ready AND due <= $1
    ORDER BY due LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED
)
"""
_CANDIDATES = """
SELECT -priority, id, kind, due, destination FROM redrive.deliveries
WHERE destination = $1 AND generation = $2 AND kind = $3
  AND status = 0 AND is_ready AND NOT is_behind AND crashes < 2
  AND (deadline IS NULL OR deadline > $4)
ORDER BY coalesce(tenant, '') COLLATE "C", priority DESC, id LIMIT $5
FOR NO KEY UPDATE SKIP LOCKED
"""
_SUSPECTS = """
SELECT -priority, id, kind, due, destination FROM redrive.deliveries
WHERE destination = ANY ($1::integer[]) AND generation = ANY ($2::text[])
  AND status = 0 AND is_ready AND NOT is_behind AND crashes >= 2
  AND (deadline IS NULL OR deadline > $3)
ORDER BY priority DESC, id LIMIT 100
FOR NO KEY UPDATE SKIP LOCKED
"""
_NEXT_DUE = """
SELECT due FROM redrive.deliveries
WHERE status = 0 AND NOT is_ready AND NOT is_behind
  AND destination = ANY ($1::integer[]) AND generation = ANY ($2::text[])
ORDER BY due LIMIT 1
"""
_LEASE = """
UPDATE redrive.deliveries d
SET status = 1, token = token + 1, attempts = attempts + 1, worker = $1, lease_until = $2,
    is_alone = $3, breaker_generation = given.breaker_generation
FROM unnest($4::bigint[], $5::integer[]) WITH ORDINALITY AS given (id, breaker_generation, place)
JOIN redrive.events e ON true
WHERE d.id = given.id AND e.position = d.position
RETURNING given.place, d.id, d.token, d.destination, e.document, d.attempts, d.kind,
          d.enqueued_at, d.snoozes, d.crashes, d.last_crash_at, d.breaker_generation, d.payload
"""


class _Candidate(NamedTuple):
    """A delivery that may be claimed; they sort by priority, then in publish order."""

    precedence: int
    id: int
    kind: int
    due: datetime
    destination: int


async def claim(link: Link, request: ClaimRequest, *, now: datetime) -> Claim:
    """Carry out `DeliveryQueue.claim`."""
    [(is_time, is_late, is_suspected)] = await link.fetch(_OUTLOOK, now)
    if is_time:
        await link.fetch(_PROMOTE, now, _MOST_PROMOTED)
    if is_late:
        await free_late_lanes(link)
    asked = {one.destination for one in request.allowances}
    keeper = await Gatekeeper.read(link, now=now, only=asked)
    turn = _Turn(link, keeper, request, now=now)
    suspects = await turn.suspects() if is_suspected or is_time else []
    if request.alone:
        chosen = await turn.choose_suspect(suspects)
    else:
        chosen = await turn.choose()
    deliveries = await _lease(link, chosen, keeper, request, now=now)
    return Claim(
        now=now,
        deliveries=deliveries,
        next_due=await turn.next_due(),
        suspects=len(suspects) - (len(deliveries) if request.alone else 0),
        changes=await keeper.write(),
    )


class _Turn:
    """One claim: what passes the gates, and in which order."""

    def __init__(
        self, link: Link, keeper: Gatekeeper, request: ClaimRequest, *, now: datetime
    ) -> None:
        self._link = link
        self._keeper = keeper
        self._request = request
        self._now = now
        self._allowances = {
            one.destination: one for one in request.allowances if one.destination in keeper.numbers
        }
        self._names = {number: name for name, number in keeper.numbers.items()}
        self._opening: list[datetime] = []

    async def suspects(self) -> list[_Candidate]:
        """Return the deliveries that may only run alone, if their gate lets them through now."""
        startable = [
            self._keeper.numbers[name] for name, one in self._allowances.items() if one.total > 0
        ]
        generations = list(self._request.generations)
        found = await self._link.fetch(_SUSPECTS, startable, generations, self._now)
        passing = []
        for row in found:
            one = _Candidate(*row)
            turnstile = await self._turnstile(self._names[one.destination], total=1)
            if _passing(turnstile, [one]):
                passing.append(one)
        return passing

    async def choose_suspect(self, suspects: list[_Candidate]) -> dict[str, list[int]]:
        """Return the first suspect, and charge its gate."""
        for one in suspects[:1]:
            name = self._names[one.destination]
            return {name: self._charge(name, await self._turnstile(name, total=1), [one])}
        return {}

    async def choose(self) -> dict[str, list[int]]:
        """Return what may start, by destination: higher priority first, then publish order."""
        chosen: dict[str, list[int]] = {}
        left = self._request.limit
        for name, allowance in self._allowances.items():
            total = allowance.total if left is None else min(allowance.total, left)
            if total <= 0:
                continue
            turnstile = await self._turnstile(name, total=total)
            found = await self._candidates(name, allowance, most=max(1, turnstile.left))
            chosen[name] = self._charge(name, turnstile, found)
            if left is not None:
                left -= len(chosen[name])
        return chosen

    async def next_due(self) -> datetime | None:
        """Return when something more may be claimed."""
        numbers = [self._keeper.numbers[name] for name in self._allowances]
        due = await self._link.value(_NEXT_DUE, numbers, list(self._request.generations))
        return min([*self._opening, *([] if due is None else [due])], default=None)

    async def _turnstile(self, name: str, *, total: int) -> Turnstile:
        passage = await self._keeper.passage(name)
        of_kind = self._allowances[name].of
        return Turnstile(self._keeper.gate(name), passage, total=total, of_kind=of_kind)

    def _charge(self, name: str, turnstile: Turnstile, found: list[_Candidate]) -> list[int]:
        """Return the ids of those that pass the gate, and charge it for them."""
        chosen = _passing(turnstile, found)
        if turnstile.again_at is not None and len(chosen) < len(found):
            self._opening.append(turnstile.again_at)
        self._keeper.put(name, turnstile.charged(self._keeper.limits(name), now=self._now))
        return [one.id for one in chosen]

    async def _candidates(self, name: str, allowance: Allowance, *, most: int) -> list[_Candidate]:
        found: list[_Candidate] = []
        for number, kind in enumerate(KINDS):
            limit = min(allowance.of(kind), most)
            if limit <= 0:
                continue
            for generation in self._request.generations:
                rows = await self._link.fetch(
                    _CANDIDATES, self._keeper.numbers[name], generation, number, self._now, limit
                )
                found += [_Candidate(*row) for row in rows]
        found.sort()
        return found


def _passing(turnstile: Turnstile, found: list[_Candidate]) -> list[_Candidate]:
    reopened_at = turnstile.gate.reopened_at
    if reopened_at is None and all(KINDS[one.kind] is Kind.FIRST for one in found):
        return found[: turnstile.lets_first(len(found))]
    return [
        one
        for one in found
        if turnstile.lets(
            KINDS[one.kind], was_held=reopened_at is not None and one.due <= reopened_at
        )
    ]


async def _lease(
    link: Link,
    chosen: dict[str, list[int]],
    keeper: Gatekeeper,
    request: ClaimRequest,
    *,
    now: datetime,
) -> tuple[Leased, ...]:
    ids: list[int] = []
    generations: list[int] = []
    for name, numbers in chosen.items():
        ids += numbers
        generations += [keeper.gate(name).breaker.generation] * len(numbers)
    if not ids:
        return ()
    await see_worker(link, request.worker, now)
    rows = await link.fetch(
        _LEASE, request.worker, now + request.lease, request.alone, ids, generations
    )
    names = {number: name for name, number in keeper.numbers.items()}
    return tuple(
        Leased(
            lease=Lease(number, token),
            destination=names[destination],
            event=_carrying(event_from(document), payload),
            attempt=attempts,
            kind=KINDS[kind],
            claimed_at=now,
            enqueued_at=enqueued_at,
            snoozes=snoozes,
            crashes=crashes,
            last_crash_at=last_crash_at,
            is_alone=request.alone,
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
        ) in sorted(rows)
    )


def _carrying(event: Event[msgspec.Raw], payload: str | None) -> Event[msgspec.Raw]:
    if payload is None:
        return event
    return msgspec.structs.replace(event, payload=msgspec.Raw(payload.encode()))


assert SUSPECT_AFTER == 2, "the partial indexes and queries above say 2"  # noqa: S101, PLR2004
