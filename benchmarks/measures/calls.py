"""What a wrapper around a call costs when the call succeeds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version

from benchmarks.contender import Measure, Place, Run, Workload

__all__ = ["call_workload", "describe_library", "noop", "noop_async"]

_AT_ONCE = 200


def noop() -> None:
    """Be what is called."""


async def noop_async() -> None:
    """Be what is called and awaited."""


def call_workload(
    *,
    plain: Callable[[], Callable[[], object]] | None = None,
    awaited: Callable[[], Awaitable[Callable[[], Awaitable[object]]]] | None = None,
) -> Mapping[Workload, Measure]:
    """Return the workload; what is given makes the wrapped `noop` or `noop_async`.

    What the bare call and the loop cost is taken off. The best of many short stretches counts,
    since a long one is hardly ever left alone.
    """

    def measure(size: int, place: Place) -> Run:
        del place
        if plain is not None:
            wrapped = plain()
            seconds = min(_time(wrapped) for _ in range(0, size, _AT_ONCE))
            bare = min(_time(noop) for _ in range(0, size, _AT_ONCE))
            return Run(figures={"us": (seconds - bare) / _AT_ONCE * 1e6}, way="a plain function")
        assert awaited is not None
        return asyncio.run(_measure(awaited, size))

    return {Workload.CALL: measure}


async def _measure(
    make: Callable[[], Awaitable[Callable[[], Awaitable[object]]]], size: int
) -> Run:
    wrapped = await make()
    seconds = min([await _time_awaited(wrapped) for _ in range(0, size, _AT_ONCE)])
    bare = min([await _time_awaited(noop_async) for _ in range(0, size, _AT_ONCE)])
    return Run(figures={"us": (seconds - bare) / _AT_ONCE * 1e6}, way="a coroutine")


def _time(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(_AT_ONCE):
        call()
    return time.perf_counter() - began


async def _time_awaited(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    for _ in range(_AT_ONCE):
        await call()
    return time.perf_counter() - began


def describe_library(*names: str) -> Callable[[Place], Mapping[str, str]]:
    """Return what tells the versions of libraries."""

    def describe(place: Place) -> Mapping[str, str]:
        del place
        return {"library": ", ".join(f"{name} {version(name)}" for name in names)}

    return describe
