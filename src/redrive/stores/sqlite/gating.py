"""The gates of destinations in SQL: kept as documents, changed by the policy in a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import apsw

from redrive.claiming import passage as passages
from redrive.model.audit import REDRIVE, Actor
from redrive.model.gate import BreakerChange, GateFigures
from redrive.policies import outage
from redrive.policies.breaker import forced_open, reset
from redrive.store import Report, Reported
from redrive.stores.codec import micros
from redrive.stores.gatekeeping import GateBook
from redrive.stores.sqlite.auditing import record
from redrive.stores.sqlite.connection import rows

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
SELECT t.name, t.id, t.document, g.document
FROM redrive_destinations t LEFT JOIN redrive_gates g ON g.destination = t.id
"""
_LEASED = """
SELECT count(*), ifnull(sum(breaker_generation = ?), 0) FROM redrive_deliveries
WHERE status = 1 AND lease_until > ? AND destination = ?
"""

# One part per partial index: nobody reads through the history of what was removed.
_UNSETTLED = (
    ("redrive_ready", "status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes < 2"),
    ("redrive_suspects", "status = 0 AND is_ready = 1 AND is_behind = 0 AND crashes >= 2"),
    ("redrive_waiting_tenants", "status = 0 AND is_ready = 0"),
    ("redrive_lanes", "lane IS NOT NULL AND status <> 2 AND resolution IS NULL"),
    ("redrive_leases", "status = 1"),
    ("redrive_letters", "status = 3 AND resolution IS NULL"),
)
_IS_UNSETTLED = " OR ".join(
    f"EXISTS (SELECT 1 FROM redrive_deliveries INDEXED BY {index} "
    f"WHERE destination = t.id AND {which})"
    for index, which in _UNSETTLED
)
_LISTED = f"""
SELECT name FROM redrive_destinations t WHERE removed_at IS NULL OR {_IS_UNSETTLED} ORDER BY name
"""
_BLOCKED = """
SELECT 1 FROM redrive_deliveries
WHERE destination = ? AND lane IS NOT NULL AND status = 3 AND resolution IS NULL LIMIT 1
"""


class GateRepository(GateBook):
    """Reads the gates once per transaction, and writes back those that have changed."""

    def __init__(self, connection: apsw.Connection, *, now: datetime) -> None:
        super().__init__(rows(connection, _READ), now=now)
        self._connection = connection

    def passage(self, destination: str) -> passages.Passage:
        """Bring a gate up to the present, and return what it lets through."""
        gate, limits = self.gate(destination), self.limits(destination)
        in_flight = probing = 0
        if self.counts_leases(destination):
            in_flight, probing = self._connection.execute(
                _LEASED,
                (gate.breaker.generation, micros(self._now), self.numbers[destination]),
            ).get
        gate, passage = passages.passage(
            gate,
            limits,
            in_flight=in_flight,
            probing=probing,
            now=self._now,
            is_blocked=self._is_blocked(destination),
        )
        self.put(destination, gate)
        return passage

    def shedding(self, destination: str) -> outage.Shedding | None:
        """Return what is not to wait at a gate now, if anything."""
        gate, limits = self.gate(destination), self.limits(destination)
        why = outage.what_to_drop(gate, limits, now=self._now)
        return None if why is None or self._is_blocked(destination) else why

    def _is_blocked(self, destination: str) -> bool:
        if not self.blocks(destination):
            return False
        number = self.numbers[destination]
        return self._connection.execute(_BLOCKED, (number,)).get is not None

    def write(self) -> tuple[BreakerChange, ...]:
        """Keep what has changed, and return how breakers did."""
        for number, document in self.changed():
            self._connection.execute(
                "INSERT INTO redrive_gates VALUES (?, ?) "
                "ON CONFLICT (destination) DO UPDATE SET document = excluded.document",
                (number, document),
            )
        return self.changes()


def report(
    connection: apsw.Connection, batch: Sequence[Report], *, chance: float, now: datetime
) -> Reported:
    """Carry out `Gates.report`."""
    keeper = GateRepository(connection, now=now)
    paused = []
    for one in batch:
        if keeper.hear(one, chance=chance):
            paused.append(one.destination)
            actor = Actor(REDRIVE, one.pause)
            record(connection, "pause", (), actor, now=now, count=1, detail=one.destination)
    breakers = keeper.breakers(one.destination for one in batch)
    return Reported(changes=keeper.write(), paused=tuple(paused), breakers=breakers)


def begin_check(
    connection: apsw.Connection,
    destination: str,
    *,
    every: timedelta,
    lease: timedelta,
    now: datetime,
) -> int | None:
    """Carry out `Gates.begin_check`."""
    keeper = GateRepository(connection, now=now)
    generation = keeper.begin_check(destination, every=every, lease=lease)
    keeper.write()
    return generation


def figures(connection: apsw.Connection, *, now: datetime) -> Sequence[GateFigures]:
    """Carry out `Gates.gates`."""
    keeper = GateRepository(connection, now=now)
    return [keeper.figures(name, keeper.passage(name)) for (name,) in rows(connection, _LISTED)]


def pause(connection: apsw.Connection, destination: str, *, actor: Actor, now: datetime) -> bool:
    """Carry out `Gates.pause`."""
    keeper = GateRepository(connection, now=now)
    is_new = keeper.pause(destination, actor)
    if is_new:
        keeper.write()
        record(connection, "pause", (), actor, now=now, count=1, detail=destination)
    return is_new


def resume(connection: apsw.Connection, destination: str, *, actor: Actor, now: datetime) -> bool:
    """Carry out `Gates.resume`."""
    keeper = GateRepository(connection, now=now)
    was_paused = keeper.resume(destination)
    if was_paused:
        keeper.write()
        record(connection, "resume", (), actor, now=now, count=1, detail=destination)
    return was_paused


def open_breaker(
    connection: apsw.Connection,
    destination: str,
    *,
    until: datetime | None,
    actor: Actor,
    now: datetime,
) -> BreakerChange:
    """Carry out `Gates.open_breaker`."""
    keeper = GateRepository(connection, now=now)
    state = forced_open(keeper.gate(destination).breaker, until=until, now=now)
    change = keeper.force(destination, state)
    keeper.write()
    record(connection, "open_breaker", (), actor, now=now, count=1, detail=destination)
    return change


def reset_breaker(
    connection: apsw.Connection, destination: str, *, actor: Actor, now: datetime
) -> BreakerChange:
    """Carry out `Gates.reset_breaker`."""
    keeper = GateRepository(connection, now=now)
    change = keeper.force(destination, reset(keeper.gate(destination).breaker, now=now))
    keeper.write()
    record(connection, "reset_breaker", (), actor, now=now, count=1, detail=destination)
    return change
