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
    ones share the `effects` that the store has room for.
    """

    concurrency: int
    effects: int = 0
    largest_share: float = LARGEST_SHARE
    _served: Served = {}
    _transactional: frozenset[str] = frozenset()

    def room(self, served: Served, running: Mapping[str, int]) -> Room:
        """Return what is free beside what runs now; costs nothing for who has nothing running."""
        if served is not self._served:
            names = (name for name, one in served.items() if one.is_transactional)
            self._served, self._transactional = served, frozenset(names)
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
        )

    def starves(self, served: Served, stuck: Mapping[str, int]) -> bool:
        """Tell whether handlers that never end leave some destination no place at all."""
        room = self.room(served, stuck)
        return any(room.allow(one).total == 0 for one in served.values())

    def _free_effects(self, running: Mapping[str, int]) -> int:
        """Return how many more effects each transactional destination may have under way."""
        names = self._transactional
        if not names:
            return 0
        free = self.effects - sum(count for name, count in running.items() if name in names)
        return max(1, free // len(names)) if free > 0 else 0


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What is free in a worker now.

    Of each destination at most `most` may run; for each `kept` places are kept, of which `lacking`
    are still to be kept free in all.
    """

    running: Mapping[str, int]
    free: int
    most: int
    kept: int
    lacking: int
    effects: int

    def allow(self, endpoint: Endpoint) -> Allowance:
        """Return how many deliveries of a destination may start now."""
        name, own = endpoint.destination.name, endpoint.terms.concurrency
        running = self.running.get(name, 0)
        limit = self.most if own is None else min(self.most, own)
        for_others = max(0, self.lacking - max(0, self.kept - running))
        total = min(self.free - for_others, limit - running)
        if endpoint.is_transactional:
            total = min(total, self.effects)
        return Allowance(destination=name, total=max(0, total))
