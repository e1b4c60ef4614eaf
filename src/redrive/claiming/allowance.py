"""The allowance: how many deliveries of each destination a worker has places for now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from redrive.transport import Endpoint

__all__ = ["LARGEST_SHARE", "Allowance", "admit", "starves"]

_SHARE_KEPT_FREE = 4
LARGEST_SHARE = 1 / 4


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """How many deliveries of a destination may start now."""

    destination: str
    total: int


def admit(
    endpoints: Sequence[Endpoint],
    *,
    running: Mapping[str, int],
    concurrency: int,
    offset: int,
    effects: int = 0,
    largest_share: float = LARGEST_SHARE,
) -> tuple[Allowance, ...]:
    """Return how many deliveries of each destination may start now.

    A slow destination cannot fill the worker: a few places stay free for each of the others. Where
    there are more destinations than places, none holds more than its share of them. Transactional
    ones share the `effects` that the store has room for. Which destination is served
    first goes round with `offset`.
    """
    free = concurrency - sum(running.values())
    is_crowded = concurrency < len(endpoints)
    most = max(1, int(concurrency * largest_share)) if is_crowded else concurrency
    kept = 0 if is_crowded else max(1, concurrency // (_SHARE_KEPT_FREE * max(1, len(endpoints))))
    lacking = {
        endpoint.destination.name: max(0, kept - running.get(endpoint.destination.name, 0))
        for endpoint in endpoints
    }
    all_lacking = sum(lacking.values())
    room = _room(endpoints, running=running, effects=effects)
    allowances = []
    for endpoint in endpoints:
        name = endpoint.destination.name
        own = endpoint.terms.concurrency
        limit = most if own is None else min(most, own)
        total = min(free - (all_lacking - lacking[name]), limit - running.get(name, 0))
        if endpoint.is_transactional:
            total = min(total, room)
        allowances.append(Allowance(destination=name, total=max(0, total)))
    first = offset % len(allowances) if allowances else 0
    return tuple(allowances[first:] + allowances[:first])


def _room(endpoints: Sequence[Endpoint], *, running: Mapping[str, int], effects: int) -> int:
    """Return how many more effects each transactional destination may have under way."""
    names = [one.destination.name for one in endpoints if one.is_transactional]
    free = effects - sum(running.get(name, 0) for name in names)
    return max(1, free // len(names)) if names and free > 0 else 0


def starves(
    endpoints: Sequence[Endpoint],
    *,
    stuck: Mapping[str, int],
    concurrency: int,
    effects: int = 0,
    largest_share: float = LARGEST_SHARE,
) -> bool:
    """Tell whether handlers that never end leave some destination no place at all."""
    allowances = admit(
        endpoints,
        running=stuck,
        concurrency=concurrency,
        offset=0,
        effects=effects,
        largest_share=largest_share,
    )
    return any(allowance.total == 0 for allowance in allowances)
