"""The contract of a contender: who is measured, at what, and under which settings.

To add a store or a peer, add one module to `benchmarks.contenders` with a `CONTENDER` in it. A
peer's module is imported by an interpreter that has nothing but that peer, so it may import only
the standard library and this module at the top.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

__all__ = ["Contender", "Role", "Run", "Workload", "find_contender", "find_contenders"]


class Workload(StrEnum):
    """What is measured; each value is how the report calls it."""

    SINGLE = "publish one by one"
    CONCURRENT = "publish by 100 tasks"
    BULK = "publish 1,000 per call"
    DRAIN = "drain, no-op handler"


class Role(StrEnum):
    """What a contender's figures mean for the engine's."""

    ENGINE = "engine"
    LIMIT = "limit"
    PEER = "peer"


@dataclass(frozen=True, kw_only=True)
class Run:
    """How many were done in how many seconds; the workload has checked that all of them were."""

    count: int
    seconds: float
    way: str = ""

    @property
    def per_second(self) -> float:
        """The throughput."""
        return self.count / self.seconds


Measure = Callable[[int, Path], Run]
"""Does a workload of this size in an empty folder; only the work itself is timed."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Someone who is measured.

    `describe` tells the versions and durability settings it really runs with. `requirement` is
    what pip installs for it in an environment of its own.
    """

    name: str
    role: Role
    store: str
    describe: Callable[[Path], Mapping[str, str]]
    workloads: Mapping[Workload, Measure] = field(default_factory=dict)
    requirement: str | None = None


def find_contender(module: str) -> Contender:
    """Return the contender of one module of `benchmarks.contenders`."""
    found = importlib.import_module(f"benchmarks.contenders.{module}").CONTENDER
    if not isinstance(found, Contender):
        raise TypeError(f"CONTENDER of benchmarks.contenders.{module} is no Contender: {found!r}.")
    return found


def find_contenders() -> dict[str, Contender]:
    """Return all contenders by the name of their module."""
    folder = Path(__file__).with_name("contenders")
    modules = sorted(one.name for one in pkgutil.iter_modules([str(folder)]))
    return {module: find_contender(module) for module in modules}
