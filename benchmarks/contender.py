"""The contract of a contender: who is measured, where, at what, and under which settings.

To add a store or a peer, add one module to `benchmarks.contenders` with a `CONTENDER` in it. A
peer's module is imported by an interpreter that has nothing but peers, so it may import only the
standard library, this module and `benchmarks.measures` at the top.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

__all__ = [
    "Arena",
    "Contender",
    "Measure",
    "Place",
    "Role",
    "Run",
    "Workload",
    "find_contender",
    "find_contenders",
    "rate",
]


class Arena(StrEnum):
    """Where contenders meet; the figures of one arena may be compared."""

    POSTGRES = "postgres"
    SQLITE = "sqlite"
    REDIS = "redis"
    HTTP = "http"
    CALLS = "calls"
    TRACKING = "tracking"


class Workload(StrEnum):
    """What is measured; each value is how the report calls it."""

    SINGLE = "publish one by one"
    CONCURRENT = "publish by 100 tasks"
    BULK = "publish 1,000 per call"
    DRAIN = "drain, no-op handler"
    DRAIN_BY_TWO = "drain, two worker processes"
    LATENCY = "publish to handler, 200/s"
    LATENCY_AT_HALF = "publish to handler, half of the maximum"
    SEND = "HTTP deliveries"
    CALL = "one successful call"
    TRACK = "hand one over, to be sent soon"
    APPEND = "append events, 1,000 per call"
    PROJECT = "project, an upsert for each event"
    PROJECT_LISTS = "project, lists of events"


class Role(StrEnum):
    """What a contender's figures mean for the engine's."""

    ENGINE = "engine"
    LIMIT = "limit"
    PEER = "peer"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of a workload came to; the workload has checked that all of it was done.

    `figures` are named with their unit, see `benchmarks.figures`. `way` says how it was done, where
    there are several ways.
    """

    figures: Mapping[str, float]
    way: str = ""
    point: str = ""


def rate(count: int, seconds: float, way: str = "") -> Run:
    """Return a run that did so many in so many seconds."""
    return Run(figures={"per_second": count / seconds}, way=way)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run happens: an empty folder, and an empty database if its arena has a server."""

    folder: Path
    url: str = ""


Measure = Callable[[int, Place], Run]
"""Does a workload of this size in an empty place; only the work itself is timed."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Someone who is measured.

    `describe` tells the versions and durability settings it really runs with. `requirements` are
    what pip installs for it in the environment of the peers, the first being the peer itself.
    `most` limits the size of its workloads, for those who would take too long.
    """

    name: str
    role: Role
    arena: Arena
    describe: Callable[[Place], Mapping[str, str]]
    workloads: Mapping[Workload, Measure] = field(default_factory=dict)
    requirements: Sequence[str] = ()
    most: int | None = None
    is_quick: bool = True
    """Whether it takes part when there is little time."""


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
