"""The gates of destinations: kept as documents, changed by the policy in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec

from redrive.claiming import passage as passages
from redrive.claiming.sharing import SharedBucket, held
from redrive.errors import not_found
from redrive.model.audit import REDRIVE, Actor
from redrive.model.destination import Destination, Order
from redrive.model.fairness import Fairness
from redrive.model.gate import (
    BreakerChange,
    BreakerState,
    Gate,
    GateFigures,
    HalfOpen,
    Open,
    Override,
    Pause,
)
from redrive.model.limits import Limits
from redrive.policies import gate as policy
from redrive.policies import outage
from redrive.policies.breaker import forced_open, reset
from redrive.store import Report, Reported
from redrive.stores.codec import destination_from, json_text
from redrive.stores.sql.audit import record
from redrive.stores.sql.session import Either, Session
from redrive.stores.sql.sharing import read_shared
from redrive.stores.sql.store import SqlStore, surveying, writing

__all__ = ["GateRepository", "GatesRole", "add_gates", "read_overrides"]

# In SQLite, a gate of an older release that never changed has no row.
_JOIN = Either(sqlite="LEFT JOIN", postgres="JOIN")
_ALL = _JOIN.within("""
SELECT t.name, t.id, t.document, g.document, clock_timestamp(), g.override
FROM redrive.destinations t {} redrive.gates g ON g.destination = t.id
""")
_SOME = Either(*(f"{one}WHERE t.name = ANY ($1::text[]) ORDER BY t.id" for one in _ALL))
_LOCK = Either(*(f"{one} FOR UPDATE OF g" for one in _SOME))
_LEASED = """
SELECT count(*), count(*) FILTER (WHERE breaker_generation = $1) FROM redrive.deliveries
WHERE status = 1 AND lease_until > $2 AND destination = $3
"""
_BLOCKED = """
SELECT 1 FROM redrive.deliveries
WHERE destination = $1 AND lane IS NOT NULL AND status = 3 AND resolution IS NULL LIMIT 1
"""
_ADD_GATES = """
INSERT INTO redrive.gates (destination, document)
SELECT id, '{}' FROM redrive.destinations WHERE name = ANY ($1::text[])
ON CONFLICT DO NOTHING
"""
_WRITE = """
INSERT INTO redrive.gates (destination, document)
SELECT destination, document
FROM json_to_recordset($1::json) AS given (destination integer, document text) WHERE true
ON CONFLICT (destination) DO UPDATE SET document = excluded.document
"""
_OVERRIDES = """
SELECT t.name, g.override FROM redrive.gates g JOIN redrive.destinations t ON t.id = g.destination
WHERE g.override_until > $1
"""

# One part per partial index, which SQLite is told and PostgreSQL finds by its order: nobody reads
# through the history of what was removed.
_TENANT = "coalesce(tenant, '') COLLATE \"C\""
_UNSETTLED = (
    (
        "ready",
        "status = 0 AND is_ready = true AND is_behind = false AND crashes < 2",
        f"destination, generation, kind, {_TENANT}, (-priority), id",
    ),
    (
        "suspects",
        "status = 0 AND is_ready = true AND is_behind = false AND crashes >= 2",
        "destination, generation, priority DESC, id",
    ),
    ("waiting_tenants", "status = 0 AND is_ready = false", f"destination, {_TENANT}, due"),
    (
        "lanes",
        "lane IS NOT NULL AND status <> 2 AND resolution IS NULL",
        "destination, lane, id",
    ),
    ("leases", "status = 1", "lease_until"),
    ("letters", "status = 3 AND resolution IS NULL", "destination, settled_at, id"),
)
_STAYS = Either(
    sqlite=" OR ".join(
        f"EXISTS (SELECT FROM redrive.deliveries INDEXED BY redrive_{index} "
        f"WHERE destination = t.id AND {which})"
        for index, which, _ in _UNSETTLED
    ),
    postgres=" OR ".join(
        "coalesce((SELECT true FROM redrive.deliveries "
        f"WHERE destination = t.id AND {which} ORDER BY {order} LIMIT 1), false)"
        for _, which, order in _UNSETTLED
    ),
).within("(removed_at IS NULL OR {})")
_LISTED, _SOME_LISTED = (
    _STAYS.within(f"""
SELECT name FROM redrive.destinations t WHERE {which}{{}} ORDER BY name COLLATE "C"
""")
    for which in ("", "name = ANY ($1::text[]) AND ")
)

_gates = msgspec.json.Decoder(Gate)
_overrides = msgspec.json.Decoder(Override)
_NEW = Gate()


class GatesRole(SqlStore):
    """`Gates`."""

    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        async def job(session: Session, _: datetime) -> Reported:
            gates = await GateRepository.lock(session, {one.destination for one in batch})
            return await gates.hear(batch, chance=chance)

        reported = await self._write(job)
        if reported.changes or any(one.call for one in batch):
            self._notify()
        return reported

    @writing()
    async def begin_check(
        self, session: Session, destination: str, *, every: timedelta, lease: timedelta
    ) -> int | None:
        gates = await GateRepository.lock_one(session, destination)
        gate, may_check = outage.lease_check(
            gates.gate(destination), every=every, lease=lease, now=session.now
        )
        gates.put(destination, gate)
        await gates.write()
        return gate.breaker.generation if may_check else None

    @surveying
    async def gates(
        self, session: Session, destinations: Sequence[str] | None = None
    ) -> Sequence[GateFigures]:
        gates = await GateRepository.read(session, destinations)
        await gates.look_at_shared()
        found = (
            await session.fetch(_LISTED)
            if destinations is None
            else await session.fetch(_SOME_LISTED, list(destinations))
        )
        return [await gates.figures(name) for (name,) in found]

    @writing()
    async def pause(self, session: Session, destination: str, *, actor: Actor) -> bool:
        gates = await GateRepository.lock_one(session, destination)
        gate = gates.gate(destination)
        if gate.pause is not None:
            return False
        pause = Pause(by=actor.by, why=actor.why, at=session.now)
        gates.put(destination, policy.paused(gate, pause))
        await gates.write()
        await record(session, "pause", (), actor, count=1, detail=destination)
        return True

    @writing(notifies=True)
    async def resume(self, session: Session, destination: str, *, actor: Actor) -> bool:
        gates = await GateRepository.lock_one(session, destination)
        gate = gates.gate(destination)
        if gate.pause is None:
            return False
        gates.put(destination, policy.resumed(gate, now=session.now))
        await gates.write()
        await record(session, "resume", (), actor, count=1, detail=destination)
        return True

    @writing()
    async def open_breaker(
        self, session: Session, destination: str, *, until: datetime | None, actor: Actor
    ) -> BreakerChange:
        change = await _force(
            session, destination, lambda state: forced_open(state, until=until, now=session.now)
        )
        await record(session, "open_breaker", (), actor, count=1, detail=destination)
        return change

    @writing(notifies=True)
    async def reset_breaker(
        self, session: Session, destination: str, *, actor: Actor
    ) -> BreakerChange:
        change = await _force(session, destination, lambda state: reset(state, now=session.now))
        await record(session, "reset_breaker", (), actor, count=1, detail=destination)
        return change


class GateRepository:
    """The gates of one transaction, by their destination's name; those that change are written.

    Whoever means to change them locks them, always in the same order.
    """

    def __init__(self, session: Session, rows: Sequence[Sequence[Any]]) -> None:
        self.session = session
        self.read_at: datetime | None = rows[0][4] if rows else None
        """When they were read, by the clock of a server."""
        self.numbers: dict[str, int] = {}
        self._destinations: dict[str, Destination] = {}
        self._documents: dict[str, tuple[str, str]] = {}
        self._before: dict[str, Gate] = {}
        self._after: dict[str, Gate] = {}
        self._overrides: dict[str, Override] = {}
        self._shared: dict[str, SharedBucket] = {}
        for name, number, destination, gate, _, override in rows:
            self.numbers[name] = number
            self._documents[name] = (destination, gate)
            self._destinations[name] = destination_from(destination)
            self._before[name] = self._after[name] = _NEW if gate is None else _gates.decode(gate)
            if override is not None:
                self._overrides[name] = _overrides.decode(override)

    @classmethod
    async def read(cls, session: Session, names: Collection[str] | None = None) -> Self:
        """Read the gates of some destinations, or of all, to look at them."""
        if names is None:
            return cls(session, await session.fetch(_ALL))
        return cls(session, await session.fetch(_SOME, sorted(names)))

    @classmethod
    async def lock(cls, session: Session, names: Collection[str]) -> Self:
        """Read the gates of some destinations, to change them."""
        return cls(session, await session.fetch(_LOCK, sorted(names)))

    @classmethod
    async def lock_one(cls, session: Session, name: str) -> Self:
        """Read the gate of a destination that somebody has named, to change it."""
        gates = await cls.lock(session, [name])
        if name not in gates.numbers:
            (await cls.read(session)).gate(name)
        return gates

    def gate(self, destination: str) -> Gate:
        """Return a gate as it stands."""
        if destination not in self._after:
            raise not_found(destination, sorted(self.numbers), what="destination")
        return self._after[destination]

    def declared(self, destination: str) -> Destination:
        """Return a destination as it is in force."""
        return self._destinations[destination]

    def description(self, destination: str) -> str:
        """Return the document of a destination as it was read."""
        return self._documents[destination][0]

    def documents(self, destination: str) -> tuple[str, str] | None:
        """Return a destination and its gate as they were read, unless the gate has changed."""
        is_same = self._after[destination] == self._before[destination]
        return self._documents[destination] if is_same else None

    def limits(self, destination: str) -> Limits:
        """Return what is kept to at the gate now."""
        override = self.override(destination)
        declared = self._destinations[destination].limits
        return declared if override is None else override.over(declared)

    def override(self, destination: str) -> Override | None:
        """Return what a person has set above the declared limits, if that has not ended."""
        override = self._overrides.get(destination)
        return override if override and self.session.now < override.until else None

    def fairness(self, destination: str) -> Fairness:
        """Return how its tenants share a destination."""
        return self._destinations[destination].fairness

    def keeps_order(self, destination: str) -> bool:
        """Tell whether the events of a key wait for each other."""
        return self._destinations[destination].order is not Order.NONE

    def counts_leases(self, destination: str) -> bool:
        """Tell whether what the gate lets through depends on how much is in flight."""
        is_probing = isinstance(self.gate(destination).breaker, HalfOpen | Open)
        return is_probing or self.limits(destination).concurrency is not None

    def put(self, destination: str, gate: Gate) -> None:
        """Change a gate."""
        self._after[destination] = gate

    async def passage(self, destination: str) -> passages.Passage:
        """Bring a gate up to the present, and return what it lets through."""
        gate, now = self.gate(destination), self.session.now
        in_flight = probing = 0
        if self.counts_leases(destination):
            [(in_flight, probing)] = await self.session.fetch(
                _LEASED, gate.breaker.generation, now, self.numbers[destination]
            )
        gate, passage = passages.passage(
            gate,
            self.limits(destination),
            in_flight=in_flight,
            probing=probing,
            now=now,
            is_blocked=await self._is_blocked(destination),
        )
        self.put(destination, gate)
        return passages.ending(passage, self.override(destination))

    async def shedding(self, destination: str) -> outage.Shedding | None:
        """Return what is not to wait at a gate now, if anything."""
        gate, limits = self.gate(destination), self.limits(destination)
        why = outage.what_to_drop(gate, limits, now=self.session.now)
        return None if why is None or await self._is_blocked(destination) else why

    async def is_stopped(self, destination: str) -> bool:
        """Tell whether a person, or a dead letter, stops everything there."""
        is_paused = self.gate(destination).pause is not None
        return is_paused or await self._is_blocked(destination)

    async def _is_blocked(self, destination: str) -> bool:
        """Tell whether a dead letter of one key holds all others."""
        if self._destinations[destination].order is not Order.BLOCK:
            return False
        return await self.session.value(_BLOCKED, self.numbers[destination]) is not None

    async def hear(self, batch: Sequence[Report], *, chance: float) -> Reported:
        """Take in reports, and write what comes of them."""
        now = self.session.now
        reasons: dict[str, str] = {}
        for one in batch:
            name, before = one.destination, self.gate(one.destination)
            report = one
            if one.error and self.session.codec.is_sealing:
                report = msgspec.structs.replace(one, error=one.error.partition(":")[0])
            after = outage.after_report(before, self.limits(name), report, now=now, chance=chance)
            self.put(name, after)
            if after.pause is not before.pause and after.pause is not None:
                reasons[name] = after.pause.why
                actor = Actor(REDRIVE, after.pause.why)
                await record(self.session, "pause", (), actor, count=1, detail=name)
        breakers = {one.destination: self.gate(one.destination).breaker for one in batch}
        changes = await self.write()
        return Reported(changes=changes, paused=tuple(reasons), reasons=reasons, breakers=breakers)

    async def look_at_shared(self) -> None:
        """Read the rates that destinations share, for the figures."""
        shared = [one.limits.shared_rate for one in self._destinations.values()]
        if names := {one.name for one in shared if one is not None}:
            self._shared = await read_shared(self.session, names)

    async def figures(self, destination: str) -> GateFigures:
        """Return a gate as people see it."""
        passage, override = await self.passage(destination), self.override(destination)
        if (shared := self.limits(destination).shared_rate) is not None:
            bucket = self._shared[shared.name]
            passage = held(passage, bucket, shared.rate, now=self.session.now)
        return GateFigures(
            destination=destination,
            at=self.session.now,
            gate=self.gate(destination),
            limits=self.limits(destination),
            override=override,
            declared=self._destinations[destination].limits if override else None,
            hold=passage.holds[0] if passage.holds else None,
            holds=passage.holds,
            until=passage.again_at,
        )

    async def write(self) -> tuple[BreakerChange, ...]:
        """Keep what has changed, and return how breakers did."""
        if changed := self.changed():
            rows = [{"destination": number, "document": document} for number, document in changed]
            await self.session.fetch(_WRITE, self.session.records(rows))
        return self.changes()

    def changed(self) -> list[tuple[int, str]]:
        """Return the number and the document of each gate that has changed."""
        return [(self.numbers[name], json_text(self._after[name])) for name in self._changed()]

    def changes(self) -> tuple[BreakerChange, ...]:
        """Return how breakers have changed."""
        return tuple(
            BreakerChange(
                destination=name,
                before=self._before[name].breaker,
                after=self._after[name].breaker,
                failure=self._after[name].last_failure,
            )
            for name in self._changed()
            if self._before[name].breaker.generation != self._after[name].breaker.generation
        )

    def _changed(self) -> list[str]:
        return [name for name, gate in self._after.items() if gate != self._before[name]]


async def read_overrides(session: Session) -> dict[str, Override]:
    """Return what people have set above declared limits, by the destinations."""
    rows = await session.fetch(_OVERRIDES, session.now)
    return {name: _overrides.decode(document) for name, document in rows}


async def add_gates(session: Session, destinations: Sequence[str]) -> None:
    """Give destinations that are new their gates."""
    await session.fetch(_ADD_GATES, list(destinations))


async def _force(
    session: Session, destination: str, becomes: Callable[[BreakerState], BreakerState]
) -> BreakerChange:
    """Bring a breaker into a state by hand."""
    gates = await GateRepository.lock_one(session, destination)
    gate = gates.gate(destination)
    state = becomes(gate.breaker)
    gates.put(destination, policy.with_breaker(gate, state, now=session.now))
    await gates.write()
    return BreakerChange(
        destination=destination, before=gate.breaker, after=state, failure=gate.last_failure
    )
