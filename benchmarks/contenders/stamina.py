"""stamina: retries around a coroutine."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.contender import Arena, Contender, Role
from benchmarks.measures.calls import call_workload, describe_library, noop_async

__all__ = ["CONTENDER"]


async def _make() -> Callable[[], Awaitable[object]]:
    library: Any = importlib.import_module("stamina")
    wrapped: Callable[[], Awaitable[object]] = library.retry(on=ConnectionError, attempts=5)(
        noop_async
    )
    return wrapped


CONTENDER = Contender(
    name="stamina",
    role=Role.PEER,
    arena=Arena.CALLS,
    describe=describe_library("stamina"),
    workloads=call_workload(awaited=_make),
    requirements=["stamina"],
    is_quick=False,
)
