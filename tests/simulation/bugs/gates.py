"""Planted bugs of what the gates of destinations let through."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from unittest.mock import patch

import msgspec

from redrive.claiming.passage import Passage
from redrive.claiming.sharing import SharedBucket, Sharing
from redrive.model.destination import Destination
from redrive.model.gate import Bucket, Gate
from redrive.model.limits import Rate
from redrive.store import Registered, Report, Reported
from redrive.stores.memory import MemoryStore
from tests.simulation.bugs.bug import Bug

__all__ = ["BUGS"]


class HalfOpenNotShared(MemoryStore):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        with patch("redrive.stores.memory.gates.sum", lambda _: 0, create=True):
            return super()._passage(destination, now)


class BreakerIgnoresGeneration(MemoryStore):
    async def report(self, batch: Sequence[Report], *, chance: float) -> Reported:
        return await super().report(
            [
                msgspec.structs.replace(
                    one, generation=self._gate(one.destination).breaker.generation
                )
                for one in batch
            ],
            chance=chance,
        )


class BucketFullAtStart(MemoryStore):
    async def register(
        self,
        destinations: Sequence[Destination],
        **options: Any,  # noqa: ANN401 - as the store has it
    ) -> Registered:
        for name, gate in self._gates.items():
            self._gates[name] = msgspec.structs.replace(
                gate, first=Bucket(), retry=Bucket(), replay=Bucket()
            )
        return await super().register(destinations, **options)


class TenantRateIgnored(MemoryStore):
    def _rate_of(self, destination: str, tenant: str) -> Rate | None:
        return None


class ConcurrencyNotShared(MemoryStore):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        with patch("redrive.stores.memory.gates.len", lambda _: 0, create=True):
            return super()._passage(destination, now)


class PauseIgnored(MemoryStore):
    def _passage(self, destination: str, now: datetime) -> tuple[Gate, Passage]:
        gate = self._gate(destination)
        self._gates[destination] = msgspec.structs.replace(gate, pause=None)
        try:
            return super()._passage(destination, now)
        finally:
            self._gates[destination] = gate


class SharedRateNotShared(MemoryStore):
    def _begin_sharing(self, destinations: Sequence[str], now: datetime) -> Sharing:
        rates = {
            name: msgspec.structs.replace(rate, name=name)
            for name in destinations
            if name in self._destinations
            and (rate := self._destinations[name].limits.shared_rate) is not None
        }
        buckets = {name: self._shared.get(name, SharedBucket()) for name in rates}
        return Sharing(rates, buckets, now=now)


BUGS: tuple[Bug, ...] = (
    Bug("half-open without the shared count", HalfOpenNotShared),
    Bug("breaker ignores the generation", BreakerIgnoresGeneration),
    Bug("token bucket full at start", BucketFullAtStart),
    Bug("rate of a tenant ignored", TenantRateIgnored),
    Bug("concurrency not shared", ConcurrencyNotShared),
    Bug("pause ignored", PauseIgnored),
    Bug("shared rate not shared", SharedRateNotShared),
)
