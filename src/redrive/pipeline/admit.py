"""Admit: what each destination may take now, as allowances for the claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redrive.store import Allowance
from redrive.transport import Endpoint

__all__ = ["admit", "starves"]

_SHARE_KEPT_FREE = 4


def admit(
    endpoints: Sequence[Endpoint], *, running: Mapping[str, int], concurrency: int, turn: int
) -> tuple[Allowance, ...]:
    """Return how many deliveries of each destination may start now.

    A slow destination cannot fill the worker: a few places stay free for each of the others.
    Which destination is served first goes round with `turn`.
    """
    free = concurrency - sum(running.values())
    kept = max(1, concurrency // (_SHARE_KEPT_FREE * max(1, len(endpoints))))
    if concurrency < len(endpoints):
        kept = 0
    lacking = {
        endpoint.destination.name: max(0, kept - running.get(endpoint.destination.name, 0))
        for endpoint in endpoints
    }
    allowances = []
    for endpoint in endpoints:
        name = endpoint.destination.name
        total = free - (sum(lacking.values()) - lacking[name])
        own = endpoint.terms.concurrency
        if own is not None:
            total = min(total, own - running.get(name, 0))
        allowances.append(Allowance(destination=name, total=max(0, total)))
    first = turn % len(allowances) if allowances else 0
    return tuple(allowances[first:] + allowances[:first])


def starves(endpoints: Sequence[Endpoint], *, stuck: Mapping[str, int], concurrency: int) -> bool:
    """Tell whether handlers that never end leave some destination no place at all."""
    allowances = admit(endpoints, running=stuck, concurrency=concurrency, turn=0)
    return any(allowance.total == 0 for allowance in allowances)
