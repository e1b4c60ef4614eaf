"""pybreaker: a breaker around a plain function; around coroutines it needs Tornado."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.contender import Arena, Contender, Role
from benchmarks.measures.calls import call_workload, describe_library, noop

__all__ = ["CONTENDER"]


def _make() -> Callable[[], object]:
    library: Any = importlib.import_module("pybreaker")
    wrapped: Callable[[], object] = library.CircuitBreaker(fail_max=5, reset_timeout=60)(noop)
    return wrapped


CONTENDER = Contender(
    name="pybreaker",
    role=Role.PEER,
    arena=Arena.CALLS,
    describe=describe_library("pybreaker"),
    workloads=call_workload(plain=_make),
    requirements=["pybreaker"],
    is_quick=False,
)
