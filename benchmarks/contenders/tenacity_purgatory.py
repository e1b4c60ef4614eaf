"""tenacity around purgatory: retries and a breaker, as one would put them together."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.contender import Arena, Contender, Role
from benchmarks.measures.calls import call_workload, describe_library, noop_async

__all__ = ["CONTENDER"]


async def _make() -> Callable[[], Awaitable[object]]:
    tenacity: Any = importlib.import_module("tenacity")
    purgatory: Any = importlib.import_module("purgatory")
    factory = purgatory.AsyncCircuitBreakerFactory(default_threshold=5, default_ttl=60)
    await factory.initialize()
    retrying = tenacity.retry(
        stop=tenacity.stop_after_attempt(5),
        wait=tenacity.wait_random_exponential(multiplier=1, max=300),
        reraise=True,
    )
    wrapped: Callable[[], Awaitable[object]] = retrying(factory("billing")(noop_async))
    return wrapped


CONTENDER = Contender(
    name="tenacity + purgatory",
    role=Role.PEER,
    arena=Arena.CALLS,
    describe=describe_library("tenacity", "purgatory"),
    workloads=call_workload(awaited=_make),
    requirements=["tenacity", "purgatory"],
)
