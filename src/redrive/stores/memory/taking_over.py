"""Events that were tried before they were stored, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from redrive.claiming.passage import admitted, is_counted
from redrive.model.delivery import DeliveryId, Status
from redrive.model.destination import Destination
from redrive.model.recipient import destination_of, pin_of
from redrive.store import Admission, Admissions, Rest, Tried
from redrive.stores.deduplicate import Kept
from redrive.stores.memory.gates import MemoryGates
from redrive.stores.memory.log import MemoryEventLog
from redrive.stores.memory.row import Row

__all__ = ["MemoryTakingOver"]


class MemoryTakingOver(MemoryEventLog, MemoryGates):
    """`TakesOver` over the tables."""

    async def admit(self, wanted: Mapping[str, int]) -> Admissions:
        with self._lock:
            now = self._clock.now()
            there = [
                name for name in wanted if name in self._destinations and name not in self._removed
            ]
            return Admissions(
                now=now,
                routes_version=self._routes_version,
                of={name: self._admit(name, wanted[name], now) for name in there},
                paused=tuple(self._tenant_pauses),
            )

    def _admit(self, name: str, wanted: int, now: datetime) -> Admission:
        gate, passage = self._passage(name, now)
        gate, passes = admitted(gate, passage, self._limits(name, now), wanted, now=now)
        if passes:
            self._gates[name] = gate
        return Admission(
            passes=passes,
            generation=gate.breaker.generation,
            is_counted=is_counted(self._limits(name, now)),
        )

    async def take_over(self, batch: Sequence[Tried]) -> int:
        with self._lock:
            now = self._clock.now()
            made = sum(self._take_over(one, now=now) for one in batch)
            if made:
                self._tell()
            return made

    def _take_over(self, one: Tried, *, now: datetime) -> int:
        position = self._positions.get(one.event.id)
        if position is None:
            if not one.rest:
                return 0
            self._log_event(Kept(one.event, (), self._next(one.event, self._versions)))
            position = self._last_position
        if self._log[position].event.erased is not None:
            return 0
        for name in one.arrived:
            self._give(position, name)
        made = 0
        for rest in one.rest:
            if rest.destination in self._log[position].destinations:
                continue
            self._give(position, rest.destination)
            self._store_rest(position, rest, now=now)
            made += 1
        return made

    def _store_rest(self, position: int, rest: Rest, *, now: datetime) -> None:
        name = destination_of(rest.destination)
        if name not in self._destinations:
            self._destinations[name] = Destination(name=name, patterns=("*",))
            self._removed[name] = now
        event = self._log[position].event
        is_dead, has_failed = rest.reason is not None, rest.fault is not None
        self._last_delivery_id += 1
        row = Row(
            id=DeliveryId(self._last_delivery_id),
            event=event,
            destination=name,
            enqueued_at=now,
            due=rest.due or event.due or now,
            generation=event.generation,
            priority=event.priority,
            deadline=self._destinations[name].deadline_of(event, now=now),
            status=Status.FAILED if is_dead else Status.PENDING,
            kind=rest.kind,
            attempts=rest.attempts,
            snoozes=rest.snoozes,
            settled_at=now if is_dead else None,
            reason=rest.reason,
            fault=rest.fault,
            first_failed_at=now if has_failed else None,
            last_failed_at=now if has_failed else None,
            log=(rest.attempt,) if rest.attempt else (),
            exchange=rest.exchange,
            rule=pin_of(rest.destination),
        )
        self._rows[row.id] = row
