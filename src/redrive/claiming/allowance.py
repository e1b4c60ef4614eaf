"""The allowance: how many deliveries of each destination a worker has places for now."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from redrive.transport import Endpoint

__all__ = ["LARGEST_SHARE", "Allowance", "Places", "Room", "Served"]

_SHARE_KEPT_FREE = 4
LARGEST_SHARE = 1 / 4

Served = Mapping[str, Endpoint]
"""What a worker serves, by the destinations' names."""


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """How many deliveries of a destination may start now."""

    destination: str
    total: int


class Places(msgspec.Struct, kw_only=True):
    """The places of one worker, which its destinations share.

    A slow destination cannot fill the worker: a few places stay free for each of the others. Where
    there are more destinations than places, none holds more than its share of them. Transactional
    ones share the `effects` that the store has room for, and those that run in threads the
    `threads`, by the same rule as all share the places.
    """

    concurrency: int
    effects: int = 0
    threads: int = 0
    largest_share: float = LARGEST_SHARE
    _served: Served = {}
    _transactional: frozenset[str] = frozenset()
    _threaded: Served = {}
    _for_threads: Places | None = None

    def room(self, served: Served, running: Mapping[str, int]) -> Room:
        """Return what is free beside what runs now; costs nothing for who has nothing running."""
        if served is not self._served:
            self._divide(served)
        is_crowded = self.concurrency < len(served)
        share = max(1, int(self.concurrency * self.largest_share))
        parts = _SHARE_KEPT_FREE * max(1, len(served))
        kept = 0 if is_crowded else max(1, self.concurrency // parts)
        busy = sum(min(kept, count) for name, count in running.items() if name in served)
        free = self.concurrency - sum(running.values())
        return Room(
            running=running,
            free=free,
            most=share if is_crowded else self.concurrency,
            kept=kept,
            # What is served no longer may still hold some of the places that would be kept.
            lacking=max(0, min(kept * len(served) - busy, free)),
            effects=self._free_effects(running),
            destinations=len(served),
            threads=self._free_threads(running),
        )

    def starves(self, served: Served, stuck: Mapping[str, int]) -> bool:
        """Tell whether handlers that never end leave some destination no place at all."""
        room = self.room(served, stuck)
        return any(room.allow(one).total == 0 for one in served.values())

    def _divide(self, served: Served) -> None:
        names = (name for name, one in served.items() if one.is_transactional)
        self._served, self._transactional = served, frozenset(names)
        self._threaded = {name: one for name, one in served.items() if one.is_threaded}
        if self.threads and self._threaded:
            self._for_threads = Places(concurrency=self.threads, largest_share=self.largest_share)
        else:
            self._for_threads = None

    def _free_threads(self, running: Mapping[str, int]) -> Room | None:
        """Return what is free of the threads; a batch takes one."""
        if self._for_threads is None:
            return None
        used = {
            name: -(-count // self._threaded[name].transport.batch)
            for name, count in running.items()
            if name in self._threaded and count
        }
        return self._for_threads.room(self._threaded, used)

    def _free_effects(self, running: Mapping[str, int]) -> int:
        """Return how many more effects each transactional destination may have under way."""
        names = self._transactional
        if not names:
            return 0
        free = self.effects - sum(count for name, count in running.items() if name in names)
        return max(1, free // len(names)) if free > 0 else 0


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What is free in a worker now.

    Of each of so many `destinations` at most `most` may run; for each `kept` places are kept, of
    which `lacking` are still to be kept free in all.
    """

    running: Mapping[str, int]
    free: int
    most: int
    kept: int
    lacking: int
    effects: int
    destinations: int
    threads: Room | None = None

    def allow(self, endpoint: Endpoint) -> Allowance:
        """Return how many deliveries of a destination may start now."""
        total = self.places_for(endpoint)
        if endpoint.is_transactional:
            total = min(total, self.effects)
        if endpoint.is_threaded and self.threads is not None:
            threads = min(self.threads.places_for(endpoint), self.threads.part_of(endpoint))
            total = min(total, threads * endpoint.transport.batch)
        return Allowance(destination=endpoint.destination.name, total=max(0, total))

    def part_of(self, endpoint: Endpoint) -> int:
        """Return a part for one that leaves most to those with work, and something to the others.

        All parts together are hardly more than is free: what is claimed must be able to start.
        """
        busy = len(self.running)
        if not busy:
            return max(1, self.free // self.destinations)
        if endpoint.destination.name not in self.running:
            return 1
        others = min(self.free // 2, self.destinations - busy)
        return max(1, (self.free - others) // busy)

    def places_for(self, endpoint: Endpoint) -> int:
        """Return how many may be taken so that a few stay free for each of the others."""
        name, own = endpoint.destination.name, endpoint.terms.concurrency
        running = self.running.get(name, 0)
        limit = self.most if own is None else min(self.most, own)
        for_others = max(0, self.lacking - max(0, self.kept - running))
        return min(self.free - for_others, limit - running)
