"""purgatory: a breaker around a coroutine."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.contender import Arena, Contender, Role
from benchmarks.measures.calls import call_workload, describe_library, noop_async

__all__ = ["CONTENDER"]


async def _make() -> Callable[[], Awaitable[object]]:
    library: Any = importlib.import_module("purgatory")
    factory = library.AsyncCircuitBreakerFactory(default_threshold=5, default_ttl=60)
    await factory.initialize()
    wrapped: Callable[[], Awaitable[object]] = factory("billing")(noop_async)
    return wrapped


CONTENDER = Contender(
    name="purgatory",
    role=Role.PEER,
    arena=Arena.CALLS,
    describe=describe_library("purgatory"),
    workloads=call_workload(awaited=_make),
    requirements=["purgatory"],
    is_quick=False,
)
