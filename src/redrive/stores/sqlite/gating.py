"""The gates of destinations in SQL: kept as documents, changed by the policy in a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

import apsw
import msgspec

from redrive.errors import not_found
from redrive.model.audit import REDRIVE, Actor
from redrive.model.destination import Destination, Order
from redrive.model.fairness import Fairness
from redrive.model.gate import BreakerChange, BreakerState, Gate, GateFigures, HalfOpen, Open, Pause
from redrive.model.limits import Limits
from redrive.policies import gate as policy
from redrive.policies import outage
from redrive.policies.breaker import forced_open, reset
from redrive.store import Report, Reported
from redrive.stores.codec import json_text, micros
from redrive.stores.sqlite.auditing import record
from redrive.stores.sqlite.connection import rows

__all__ = [
    "Gatekeeper",
    "begin_check",
    "figures",
    "open_breaker",
    "pause",
    "report",
    "reset_breaker",
    "resume",
]

_gates = msgspec.json.Decoder(Gate)
_destinations = msgspec.json.Decoder(Destination)

_READ = """
SELECT t.name, t.id, t.document, g.document
FROM redrive_destinations t LEFT JOIN redrive_gates g ON g.destination = t.id
"""
_LEASED = """
SELECT count(*), ifnull(sum(breaker_generation = ?), 0) FROM redrive_deliveries
WHERE status = 1 AND lease_until > ? AND destination = ?
"""

_LISTED = """
SELECT name FROM redrive_destinations t WHERE removed_at IS NULL
   OR EXISTS (SELECT 1 FROM redrive_deliveries d WHERE d.destination = t.id) ORDER BY name
"""
_BLOCKED = """
SELECT 1 FROM redrive_deliveries
WHERE destination = ? AND lane IS NOT NULL AND status = 3 AND resolution IS NULL LIMIT 1
"""


class Gatekeeper:
    """Reads the gates once per transaction, and writes back those that have changed."""

    def __init__(self, connection: apsw.Connection, *, now: datetime) -> None:
        self._connection = connection
        self._now = now
        self.numbers: dict[str, int] = {}
        self._destinations: dict[str, Destination] = {}
        self._before: dict[str, Gate] = {}
        self._after: dict[str, Gate] = {}
        for name, number, destination, gate in rows(connection, _READ):
            self.numbers[name] = number
            self._destinations[name] = _read_destination(destination)
            self._before[name] = self._after[name] = _NEW if gate is None else _gates.decode(gate)

    def gate(self, destination: str) -> Gate:
        """Return a gate as it stands."""
        if destination not in self._after:
            raise not_found(destination, sorted(self.numbers), what="destination")
        return self._after[destination]

    def limits(self, destination: str) -> Limits:
        """Return what is kept to at the gate."""
        return self._destinations[destination].limits

    def fairness(self, destination: str) -> Fairness:
        """Return how its tenants share a destination."""
        return self._destinations[destination].fairness

    def put(self, destination: str, gate: Gate) -> None:
        """Change a gate."""
        self._after[destination] = gate

    def passage(self, destination: str) -> policy.Passage:
        """Bring a gate up to the present, and return what it lets through."""
        gate, limits = self.gate(destination), self.limits(destination)
        in_flight = probing = 0
        is_probing = isinstance(gate.breaker, HalfOpen | Open)
        if limits.concurrency is not None or is_probing:
            in_flight, probing = self._connection.execute(
                _LEASED,
                (gate.breaker.generation, micros(self._now), self.numbers[destination]),
            ).get
        gate, passage = policy.passage(
            gate,
            limits,
            in_flight=in_flight,
            probing=probing,
            now=self._now,
            is_blocked=self._is_blocked(destination),
        )
        self._after[destination] = gate
        return passage

    def shedding(self, destination: str) -> outage.Shedding | None:
        """Return what is not to wait at a gate now, if anything."""
        gate, limits = self.gate(destination), self.limits(destination)
        why = outage.shedding(gate, limits, now=self._now)
        return None if why is None or self._is_blocked(destination) else why

    def _is_blocked(self, destination: str) -> bool:
        if self._destinations[destination].order is not Order.BLOCK:
            return False
        number = self.numbers[destination]
        return self._connection.execute(_BLOCKED, (number,)).get is not None

    def write(self) -> tuple[BreakerChange, ...]:
        """Keep what has changed, and return how breakers did."""
        changes = []
        for name, after in self._after.items():
            before = self._before[name]
            if after == before:
                continue
            self._connection.execute(
                "INSERT INTO redrive_gates VALUES (?, ?) "
                "ON CONFLICT (destination) DO UPDATE SET document = excluded.document",
                (self.numbers[name], json_text(after)),
            )
            if before.breaker.generation != after.breaker.generation:
                changes.append(
                    BreakerChange(destination=name, before=before.breaker, after=after.breaker)
                )
        return tuple(changes)


_NEW = Gate()


def report(
    connection: apsw.Connection, batch: Sequence[Report], *, chance: float, now: datetime
) -> Reported:
    """Carry out `Gates.report`."""
    keeper = Gatekeeper(connection, now=now)
    paused = []
    for one in batch:
        gate, limits = keeper.gate(one.destination), keeper.limits(one.destination)
        after = outage.heard(gate, limits, one, now=now, chance=chance)
        keeper.put(one.destination, after)
        if after.pause is not gate.pause:
            paused.append(one.destination)
            actor = Actor(REDRIVE, one.pause)
            record(connection, "pause", (), actor, now=now, count=1, detail=one.destination)
    return Reported(changes=keeper.write(), paused=tuple(paused))


def begin_check(
    connection: apsw.Connection,
    destination: str,
    *,
    every: timedelta,
    lease: timedelta,
    now: datetime,
) -> int | None:
    """Carry out `Gates.begin_check`."""
    keeper = Gatekeeper(connection, now=now)
    gate, may_check = outage.begun_check(
        keeper.gate(destination), every=every, lease=lease, now=now
    )
    keeper.put(destination, gate)
    keeper.write()
    return gate.breaker.generation if may_check else None


def figures(connection: apsw.Connection, *, now: datetime) -> Sequence[GateFigures]:
    """Carry out `Gates.gates`."""
    keeper = Gatekeeper(connection, now=now)
    found = []
    for (name,) in rows(connection, _LISTED):
        passage = keeper.passage(name)
        found.append(
            GateFigures(
                destination=name,
                at=now,
                gate=keeper.gate(name),
                limits=keeper.limits(name),
                hold=passage.holds[0] if passage.holds else None,
                holds=passage.holds,
                until=passage.again_at,
            )
        )
    return found


def pause(connection: apsw.Connection, destination: str, *, actor: Actor, now: datetime) -> bool:
    """Carry out `Gates.pause`."""
    keeper = Gatekeeper(connection, now=now)
    gate = keeper.gate(destination)
    if gate.pause is not None:
        return False
    keeper.put(destination, policy.paused(gate, Pause(by=actor.by, why=actor.why, at=now)))
    keeper.write()
    record(connection, "pause", (), actor, now=now, count=1, detail=destination)
    return True


def resume(connection: apsw.Connection, destination: str, *, actor: Actor, now: datetime) -> bool:
    """Carry out `Gates.resume`."""
    keeper = Gatekeeper(connection, now=now)
    gate = keeper.gate(destination)
    if gate.pause is None:
        return False
    keeper.put(destination, policy.resumed(gate, now=now))
    keeper.write()
    record(connection, "resume", (), actor, now=now, count=1, detail=destination)
    return True


def open_breaker(
    connection: apsw.Connection,
    destination: str,
    *,
    until: datetime | None,
    actor: Actor,
    now: datetime,
) -> BreakerChange:
    """Carry out `Gates.open_breaker`."""
    keeper = Gatekeeper(connection, now=now)
    state = forced_open(keeper.gate(destination).breaker, until=until, now=now)
    return _force(
        connection, keeper, destination, state, action="open_breaker", actor=actor, now=now
    )


def reset_breaker(
    connection: apsw.Connection, destination: str, *, actor: Actor, now: datetime
) -> BreakerChange:
    """Carry out `Gates.reset_breaker`."""
    keeper = Gatekeeper(connection, now=now)
    state = reset(keeper.gate(destination).breaker, now=now)
    return _force(
        connection, keeper, destination, state, action="reset_breaker", actor=actor, now=now
    )


def _force(
    connection: apsw.Connection,
    keeper: Gatekeeper,
    destination: str,
    state: BreakerState,
    *,
    action: str,
    actor: Actor,
    now: datetime,
) -> BreakerChange:
    before = keeper.gate(destination)
    keeper.put(destination, policy.with_breaker(before, state, now=now))
    keeper.write()
    record(connection, action, (), actor, now=now, count=1, detail=destination)
    return BreakerChange(destination=destination, before=before.breaker, after=state)


@lru_cache(maxsize=1024)
def _read_destination(document: str) -> Destination:
    return _destinations.decode(document)
