"""The gates of one transaction: as they were read, and as its decisions leave them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from redrive.claiming import passage as passages
from redrive.errors import not_found
from redrive.model.audit import Actor
from redrive.model.destination import Destination, Order
from redrive.model.fairness import Fairness
from redrive.model.gate import BreakerChange, BreakerState, Gate, GateFigures, HalfOpen, Open, Pause
from redrive.model.limits import Limits
from redrive.policies import gate as policy
from redrive.policies import outage
from redrive.store import Report
from redrive.stores.codec import destination_from, json_text

__all__ = ["GateBook"]

_gates = msgspec.json.Decoder(Gate)
_NEW = Gate()


class GateBook:
    """Gates by their destination's name; who reads them in SQL writes back what has changed."""

    def __init__(self, rows: Iterable[Sequence[Any]], *, now: datetime) -> None:
        self._now = now
        self.numbers: dict[str, int] = {}
        self._destinations: dict[str, Destination] = {}
        self._documents: dict[str, tuple[str, str]] = {}
        self._before: dict[str, Gate] = {}
        self._after: dict[str, Gate] = {}
        for name, number, destination, gate in rows:
            self.numbers[name] = number
            self._documents[name] = (destination, gate)
            self._destinations[name] = destination_from(destination)
            self._before[name] = self._after[name] = _NEW if gate is None else _gates.decode(gate)

    def gate(self, destination: str) -> Gate:
        """Return a gate as it stands."""
        if destination not in self._after:
            raise not_found(destination, sorted(self.numbers), what="destination")
        return self._after[destination]

    def documents(self, destination: str) -> tuple[str, str] | None:
        """Return a destination and its gate as they were read, unless the gate has changed."""
        is_same = self._after[destination] == self._before[destination]
        return self._documents[destination] if is_same else None

    def limits(self, destination: str) -> Limits:
        """Return what is kept to at the gate."""
        return self._destinations[destination].limits

    def fairness(self, destination: str) -> Fairness:
        """Return how its tenants share a destination."""
        return self._destinations[destination].fairness

    def keeps_order(self, destination: str) -> bool:
        """Tell whether the events of a key wait for each other."""
        return self._destinations[destination].order is not Order.NONE

    def blocks(self, destination: str) -> bool:
        """Tell whether a dead letter of one key holds all others."""
        return self._destinations[destination].order is Order.BLOCK

    def counts_leases(self, destination: str) -> bool:
        """Tell whether what the gate lets through depends on how much is in flight."""
        is_probing = isinstance(self.gate(destination).breaker, HalfOpen | Open)
        return is_probing or self.limits(destination).concurrency is not None

    def put(self, destination: str, gate: Gate) -> None:
        """Change a gate."""
        self._after[destination] = gate

    def hear(self, report: Report, *, chance: float) -> bool:
        """Take in a report, and tell whether it has paused the destination."""
        before, limits = self.gate(report.destination), self.limits(report.destination)
        after = outage.after_report(before, limits, report, now=self._now, chance=chance)
        self.put(report.destination, after)
        return after.pause is not before.pause

    def begin_check(self, destination: str, *, every: timedelta, lease: timedelta) -> int | None:
        """Lease a health check, and return the breaker's generation if it may begin."""
        gate, may_check = outage.lease_check(
            self.gate(destination), every=every, lease=lease, now=self._now
        )
        self.put(destination, gate)
        return gate.breaker.generation if may_check else None

    def pause(self, destination: str, actor: Actor) -> bool:
        """Let nothing through, and tell whether that is new."""
        gate = self.gate(destination)
        if gate.pause is not None:
            return False
        pause = Pause(by=actor.by, why=actor.why, at=self._now)
        self.put(destination, policy.paused(gate, pause))
        return True

    def resume(self, destination: str) -> bool:
        """End a pause, and tell whether there was one."""
        gate = self.gate(destination)
        if gate.pause is None:
            return False
        self.put(destination, policy.resumed(gate, now=self._now))
        return True

    def force(self, destination: str, state: BreakerState) -> BreakerChange:
        """Bring a breaker into a state by hand."""
        before = self.gate(destination)
        self.put(destination, policy.with_breaker(before, state, now=self._now))
        return BreakerChange(destination=destination, before=before.breaker, after=state)

    def figures(self, destination: str, passage: passages.Passage) -> GateFigures:
        """Return a gate as people see it."""
        return GateFigures(
            destination=destination,
            at=self._now,
            gate=self.gate(destination),
            limits=self.limits(destination),
            hold=passage.holds[0] if passage.holds else None,
            holds=passage.holds,
            until=passage.again_at,
        )

    def breakers(self, destinations: Iterable[str]) -> dict[str, BreakerState]:
        """Return the breakers of these as they stand."""
        return {name: self.gate(name).breaker for name in destinations}

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
            )
            for name in self._changed()
            if self._before[name].breaker.generation != self._after[name].breaker.generation
        )

    def _changed(self) -> list[str]:
        return [name for name, gate in self._after.items() if gate != self._before[name]]
