"""The gates of destinations in SQL: kept as documents, changed by the policy in a transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from redrive.claiming import passage as passages
from redrive.model.audit import REDRIVE, Actor
from redrive.model.gate import BreakerChange, GateFigures
from redrive.policies import outage
from redrive.policies.breaker import forced_open, reset
from redrive.store import Report, Reported
from redrive.stores.gatekeeping import GateBook
from redrive.stores.postgres.auditing import record
from redrive.stores.postgres.codec import columns
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.facts import KnownGate

__all__ = [
    "GateRepository",
    "begin_check",
    "figures",
    "open_breaker",
    "pause",
    "report",
    "reset_breaker",
    "resume",
]

_READ = """
SELECT t.name, t.id, t.document, g.document, clock_timestamp()
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
# One part per partial index, in its order: nobody reads through the history of what was removed.
_TENANT = "coalesce(tenant, '') COLLATE \"C\""
_UNSETTLED = (
    (
        "status = 0 AND is_ready AND NOT is_behind AND crashes < 2",
        f"destination, generation, kind, {_TENANT}, (-priority), id",
    ),
    (
        "status = 0 AND is_ready AND NOT is_behind AND crashes >= 2",
        "destination, generation, priority DESC, id",
    ),
    ("status = 0 AND NOT is_ready", f"destination, {_TENANT}, due"),
    ("lane IS NOT NULL AND status <> 2 AND resolution IS NULL", "destination, lane, id"),
    ("status = 1", "lease_until"),
    ("status = 3 AND resolution IS NULL", "destination, settled_at, id"),
)
_IS_UNSETTLED = " OR ".join(
    f"""coalesce((
        SELECT true FROM redrive.deliveries
        WHERE destination = t.id AND {which} ORDER BY {order} LIMIT 1
    ), false)"""
    for which, order in _UNSETTLED
)
_LISTED = f"""
SELECT name FROM redrive.destinations t WHERE removed_at IS NULL OR {_IS_UNSETTLED}
ORDER BY name COLLATE "C"
"""
_WRITE = """
UPDATE redrive.gates g SET document = given.document
FROM unnest($1::integer[], $2::text[]) AS given (destination, document)
WHERE g.destination = given.destination
"""


class GateRepository(GateBook):
    """Reads gates once per transaction, and writes back those that have changed.

    Whoever means to change them locks them, always in the same order.
    """

    def __init__(self, link: Link, rows: Sequence[Sequence[Any]], *, now: datetime) -> None:
        super().__init__(rows, now=now)
        self.now = now
        self._link = link

    @classmethod
    async def read(
        cls,
        link: Link,
        *,
        now: datetime | None,
        only: Collection[str] | None = None,
        locks: bool = True,
    ) -> GateRepository:
        """Read the gates of these destinations, or of all; without an instant, the present too."""
        names = None if only is None else sorted(only)
        statement = f"{_READ} FOR UPDATE OF g" if locks else _READ
        rows = await link.fetch(statement, names)
        if now is None:
            now = rows[0][4] if rows else await link.value("SELECT clock_timestamp()")
        return cls(link, [row[:4] for row in rows], now=now)

    async def passage(self, destination: str) -> passages.Passage:
        """Bring a gate up to the present, and return what it lets through."""
        gate, limits = self.gate(destination), self.limits(destination)
        in_flight = probing = 0
        if self.counts_leases(destination):
            [(in_flight, probing)] = await self._link.fetch(
                _LEASED, gate.breaker.generation, self._now, self.numbers[destination]
            )
        gate, passage = passages.passage(
            gate,
            limits,
            in_flight=in_flight,
            probing=probing,
            now=self._now,
            is_blocked=await self._is_blocked(destination),
        )
        self.put(destination, gate)
        return passage

    def known(self, destination: str, passage: passages.Passage, *, has_tenants: bool) -> KnownGate:
        """Return what to remember of a gate that was just asked, as it is left."""
        gate, documents = self.gate(destination), self.documents(destination)
        keeps_order, counts_leases = self.keeps_order(destination), self.counts_leases(destination)
        is_plain = (
            not (keeps_order or counts_leases or has_tenants)
            and not gate.rotation.tenant
            and self.fairness(destination).rate_of("") is None
            and passages.is_plain(gate, passage, self.limits(destination), now=self._now)
        )
        return KnownGate(
            number=self.numbers[destination],
            description=self._documents[destination][0],
            gate=documents[1] if documents and is_plain else None,
            breaker=gate.breaker,
            reopened_at=gate.reopened_at,
            keeps_order=keeps_order,
            counts_leases=counts_leases,
            read_at=self._now,
        )

    async def shedding(self, destination: str) -> outage.Shedding | None:
        """Return what is not to wait at a gate now, if anything."""
        gate, limits = self.gate(destination), self.limits(destination)
        why = outage.what_to_drop(gate, limits, now=self._now)
        return None if why is None or await self._is_blocked(destination) else why

    async def _is_blocked(self, destination: str) -> bool:
        if not self.blocks(destination):
            return False
        return await self._link.value(_BLOCKED, self.numbers[destination]) is not None

    async def write(self) -> tuple[BreakerChange, ...]:
        """Keep what has changed, and return how breakers did."""
        if changed := self.changed():
            await self._link.fetch(_WRITE, *columns(changed, 2))
        return self.changes()


async def report(
    link: Link,
    batch: Sequence[Report],
    *,
    chance: float,
    now: datetime | None,
    also: Collection[str] = (),
) -> Reported:
    """Carry out `Gates.report`; `also` are gates that this transaction will lock later."""
    names = {one.destination for one in batch}
    keeper = await GateRepository.read(link, now=now, only=names.union(also))
    paused = []
    for one in batch:
        if keeper.hear(one, chance=chance):
            paused.append(one.destination)
            actor = Actor(REDRIVE, one.pause)
            await record(link, "pause", (), actor, now=keeper.now, count=1, detail=one.destination)
    breakers = keeper.breakers(one.destination for one in batch)
    return Reported(changes=await keeper.write(), paused=tuple(paused), breakers=breakers)


async def begin_check(
    link: Link, destination: str, *, every: timedelta, lease: timedelta, now: datetime
) -> int | None:
    """Carry out `Gates.begin_check`."""
    keeper = await GateRepository.read(link, now=now, only=[destination])
    generation = keeper.begin_check(destination, every=every, lease=lease)
    await keeper.write()
    return generation


async def figures(link: Link, *, now: datetime) -> Sequence[GateFigures]:
    """Carry out `Gates.gates`."""
    keeper = await GateRepository.read(link, now=now, locks=False)
    return [
        keeper.figures(name, await keeper.passage(name)) for (name,) in await link.fetch(_LISTED)
    ]


async def pause(link: Link, destination: str, *, actor: Actor, now: datetime) -> bool:
    """Carry out `Gates.pause`."""
    keeper = await GateRepository.read(link, now=now)
    is_new = keeper.pause(destination, actor)
    if is_new:
        await keeper.write()
        await record(link, "pause", (), actor, now=now, count=1, detail=destination)
    return is_new


async def resume(link: Link, destination: str, *, actor: Actor, now: datetime) -> bool:
    """Carry out `Gates.resume`."""
    keeper = await GateRepository.read(link, now=now)
    was_paused = keeper.resume(destination)
    if was_paused:
        await keeper.write()
        await record(link, "resume", (), actor, now=now, count=1, detail=destination)
    return was_paused


async def open_breaker(
    link: Link, destination: str, *, until: datetime | None, actor: Actor, now: datetime
) -> BreakerChange:
    """Carry out `Gates.open_breaker`."""
    keeper = await GateRepository.read(link, now=now)
    state = forced_open(keeper.gate(destination).breaker, until=until, now=now)
    change = keeper.force(destination, state)
    await keeper.write()
    await record(link, "open_breaker", (), actor, now=now, count=1, detail=destination)
    return change


async def reset_breaker(
    link: Link, destination: str, *, actor: Actor, now: datetime
) -> BreakerChange:
    """Carry out `Gates.reset_breaker`."""
    keeper = await GateRepository.read(link, now=now)
    change = keeper.force(destination, reset(keeper.gate(destination).breaker, now=now))
    await keeper.write()
    await record(link, "reset_breaker", (), actor, now=now, count=1, detail=destination)
    return change
