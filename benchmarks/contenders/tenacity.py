"""tenacity: retries around a coroutine."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.contender import Arena, Contender, Role
from benchmarks.measures.calls import call_workload, describe_library, noop_async

__all__ = ["CONTENDER"]


async def _make() -> Callable[[], Awaitable[object]]:
    library: Any = importlib.import_module("tenacity")
    retrying = library.retry(
        stop=library.stop_after_attempt(5),
        wait=library.wait_random_exponential(multiplier=1, max=300),
        reraise=True,
    )
    wrapped: Callable[[], Awaitable[object]] = retrying(noop_async)
    return wrapped


CONTENDER = Contender(
    name="tenacity",
    role=Role.PEER,
    arena=Arena.CALLS,
    describe=describe_library("tenacity"),
    workloads=call_workload(awaited=_make),
    requirements=["tenacity"],
    is_quick=False,
)
