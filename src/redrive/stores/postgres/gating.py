"""The gates of destinations in SQL: kept as documents, changed by the policy in a transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache

import msgspec

from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.destination import Destination, Order
from redrive.model.gate import BreakerChange, BreakerState, Gate, GateFigures, HalfOpen, Open, Pause
from redrive.model.limits import Limits
from redrive.policies import gate as policy
from redrive.policies.breaker import forced_open, reset
from redrive.store import Report
from redrive.stores.codec import json_text
from redrive.stores.postgres.auditing import record
from redrive.stores.postgres.connection import Link

__all__ = ["Gatekeeper", "figures", "open_breaker", "pause", "report", "reset_breaker", "resume"]

_gates = msgspec.json.Decoder(Gate)
_destinations = msgspec.json.Decoder(Destination)

_READ = """
SELECT t.name, t.id, t.document, g.document
FROM redrive.destinations t JOIN redrive.gates g ON g.destination = t.id
WHERE $1::text[] IS NULL OR t.name = ANY ($1)
ORDER BY t.id
"""
_LEASED = """
SELECT count(*), count(*) FILTER (WHERE breaker_generation = $1) FROM redrive.deliveries
WHERE status = 1 AND lease_until > $2 AND destination = $3
"""
_BLOCKED = """
SELECT 1 FROM redrive.deliveries
WHERE destination = $1 AND lane IS NOT NULL AND status = 3 AND resolution IS NULL LIMIT 1
"""
_WRITE = """
UPDATE redrive.gates g SET document = given.document
FROM unnest($1::integer[], $2::text[]) AS given (destination, document)
WHERE g.destination = given.destination
"""


class Gatekeeper:
    """Reads gates once per transaction, and writes back those that have changed.

    Whoever means to change them locks them, always in the same order.
    """

    def __init__(self, link: Link, rows: Sequence[Sequence[object]], *, now: datetime) -> None:
        self._link = link
        self._now = now
        self.numbers: dict[str, int] = {}
        self._destinations: dict[str, Destination] = {}
        self._before: dict[str, Gate] = {}
        self._after: dict[str, Gate] = {}
        for name, number, destination, gate in rows:
            self.numbers[name] = number
            self._destinations[name] = _read_destination(destination)
            self._before[name] = self._after[name] = _gates.decode(gate)

    @classmethod
    async def read(
        cls, link: Link, *, now: datetime, only: Collection[str] | None = None, locks: bool = True
    ) -> Gatekeeper:
        """Read the gates of these destinations, or of all."""
        names = None if only is None else sorted(only)
        statement = f"{_READ} FOR UPDATE OF g" if locks else _READ
        return cls(link, await link.fetch(statement, names), now=now)

    def gate(self, destination: str) -> Gate:
        """Return a gate as it stands."""
        if destination not in self._after:
            raise not_found(destination, sorted(self.numbers), what="destination")
        return self._after[destination]

    def limits(self, destination: str) -> Limits:
        """Return what is kept to at the gate."""
        return self._destinations[destination].limits

    def put(self, destination: str, gate: Gate) -> None:
        """Change a gate."""
        self._after[destination] = gate

    async def passage(self, destination: str) -> policy.Passage:
        """Bring a gate up to the present, and return what it lets through."""
        gate, limits = self.gate(destination), self.limits(destination)
        in_flight = probing = 0
        is_probing = isinstance(gate.breaker, HalfOpen | Open)
        if limits.concurrency is not None or is_probing:
            [(in_flight, probing)] = await self._link.fetch(
                _LEASED, gate.breaker.generation, self._now, self.numbers[destination]
            )
        gate, passage = policy.passage(
            gate,
            limits,
            in_flight=in_flight,
            probing=probing,
            now=self._now,
            is_blocked=await self._is_blocked(destination),
        )
        self._after[destination] = gate
        return passage

    async def _is_blocked(self, destination: str) -> bool:
        if self._destinations[destination].order is not Order.BLOCK:
            return False
        return await self._link.value(_BLOCKED, self.numbers[destination]) is not None

    async def write(self) -> tuple[BreakerChange, ...]:
        """Keep what has changed, and return how breakers did."""
        changed = [name for name, gate in self._after.items() if gate != self._before[name]]
        if changed:
            await self._link.fetch(
                _WRITE,
                [self.numbers[name] for name in changed],
                [json_text(self._after[name]) for name in changed],
            )
        return tuple(
            BreakerChange(
                destination=name,
                before=self._before[name].breaker,
                after=self._after[name].breaker,
            )
            for name in changed
            if self._before[name].breaker.generation != self._after[name].breaker.generation
        )


async def report(
    link: Link,
    batch: Sequence[Report],
    *,
    chance: float,
    now: datetime,
    also: Collection[str] = (),
) -> Sequence[BreakerChange]:
    """Carry out `Gates.report`; `also` are gates that this transaction will lock later."""
    names = {one.destination for one in batch}
    keeper = await Gatekeeper.read(link, now=now, only=names.union(also))
    for one in batch:
        gate = keeper.gate(one.destination)
        if one.is_success is not None:
            gate = policy.reported(
                gate,
                keeper.limits(one.destination),
                is_success=one.is_success,
                times=one.times,
                generation=one.generation,
                now=now,
                chance=chance,
            )
        if one.slow_for is not None:
            gate = policy.slowed(gate, until=now + one.slow_for)
        keeper.put(one.destination, gate)
    return await keeper.write()


async def figures(link: Link, *, now: datetime) -> Sequence[GateFigures]:
    """Carry out `Gates.gates`."""
    keeper = await Gatekeeper.read(link, now=now, locks=False)
    found = []
    for name in sorted(keeper.numbers):
        passage = await keeper.passage(name)
        found.append(
            GateFigures(
                destination=name,
                gate=keeper.gate(name),
                limits=keeper.limits(name),
                hold=passage.holds[0] if passage.holds else None,
                until=passage.again_at,
            )
        )
    return found


async def pause(link: Link, destination: str, *, actor: Actor, now: datetime) -> bool:
    """Carry out `Gates.pause`."""
    keeper = await Gatekeeper.read(link, now=now)
    gate = keeper.gate(destination)
    if gate.pause is not None:
        return False
    keeper.put(destination, policy.paused(gate, Pause(by=actor.by, why=actor.why, at=now)))
    await keeper.write()
    await record(link, "pause", (), actor, now=now, count=1, detail=destination)
    return True


async def resume(link: Link, destination: str, *, actor: Actor, now: datetime) -> bool:
    """Carry out `Gates.resume`."""
    keeper = await Gatekeeper.read(link, now=now)
    gate = keeper.gate(destination)
    if gate.pause is None:
        return False
    keeper.put(destination, policy.resumed(gate, now=now))
    await keeper.write()
    await record(link, "resume", (), actor, now=now, count=1, detail=destination)
    return True


async def open_breaker(
    link: Link, destination: str, *, until: datetime | None, actor: Actor, now: datetime
) -> BreakerChange:
    """Carry out `Gates.open_breaker`."""
    keeper = await Gatekeeper.read(link, now=now)
    state = forced_open(keeper.gate(destination).breaker, until=until, now=now)
    return await _force(link, keeper, destination, state, "open_breaker", actor=actor, now=now)


async def reset_breaker(
    link: Link, destination: str, *, actor: Actor, now: datetime
) -> BreakerChange:
    """Carry out `Gates.reset_breaker`."""
    keeper = await Gatekeeper.read(link, now=now)
    state = reset(keeper.gate(destination).breaker, now=now)
    return await _force(link, keeper, destination, state, "reset_breaker", actor=actor, now=now)


async def _force(
    link: Link,
    keeper: Gatekeeper,
    destination: str,
    state: BreakerState,
    action: str,
    *,
    actor: Actor,
    now: datetime,
) -> BreakerChange:
    before = keeper.gate(destination)
    keeper.put(destination, policy.with_breaker(before, state, now=now))
    await keeper.write()
    await record(link, action, (), actor, now=now, count=1, detail=destination)
    return BreakerChange(destination=destination, before=before.breaker, after=state)


@lru_cache(maxsize=1024)
def _read_destination(document: str) -> Destination:
    return _destinations.decode(document)
