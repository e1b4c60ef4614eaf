"""Requests at the gates in memory."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from redrive.errors import not_found
from redrive.model.gate import Call
from redrive.store import Entrance
from redrive.stores.calling import closed_to, let_in, out_of_shared
from redrive.stores.memory.gates import MemoryGates, breaker_changes

__all__ = ["MemoryCalls"]


class MemoryCalls(MemoryGates):
    """`Calls` over the tables."""

    async def begin_call(
        self, destination: str, *, call: str, lease: timedelta, tenant: str | None = None
    ) -> Entrance:
        with self._lock:
            now, there = self._clock.now(), self._destinations.keys() - self._removed.keys()
            if destination not in there:
                raise not_found(destination, sorted(there), what="destination")
            declared, limits = self._destinations[destination], self._limits(destination, now)
            whose = ((tenant or "", None), (tenant or "", destination))
            is_paused = any(one in self._tenant_pauses for one in whose)
            closed = closed_to(declared, tenant, is_paused=is_paused)
            if closed is not None:
                return closed
            before = self._gate(destination)
            gate, passage = self._passage(destination, now)
            begun = Call(id=call, until=now + lease, generation=gate.breaker.generation)
            after, entrance = let_in(declared, gate, passage, limits, begun, now=now)
            if entrance.hold is not None:
                return entrance
            sharing = self._begin_sharing([destination], now)
            if not sharing.bound(destination, 1):
                return out_of_shared(declared)
            sharing.charge(destination, 1)
            sharing.step_back()
            self._shared |= sharing.changed()
            self._gates[destination] = after
            changes = tuple(breaker_changes(destination, before, after))
            return msgspec.structs.replace(entrance, changes=changes)
