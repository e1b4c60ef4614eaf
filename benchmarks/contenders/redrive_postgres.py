"""Redrive on PostgreSQL, through its front door."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import version

import asyncpg

from benchmarks.contender import Arena, Contender, Place, Role
from benchmarks.measures import queue_workloads
from benchmarks.measures.describing import describe_postgres
from benchmarks.measures.engine import RedriveQueue
from benchmarks.measures.projecting import RedriveLog
from benchmarks.measures.reading import log_workloads

__all__ = ["CONTENDER", "Log", "Queue"]

_CONCURRENCY = 500


class Queue(RedriveQueue):
    """An app with one destination that does nothing."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, store=place.url, concurrency=_CONCURRENCY)


class Log(RedriveLog):
    """An app with one projection."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, arena=Arena.POSTGRES, store=place.url)


def _describe(place: Place) -> Mapping[str, str]:
    return {
        "library": f"redrive {version('redrive')}, asyncpg {asyncpg.__version__}",
        **asyncio.run(describe_postgres(place.url)),
        "concurrency": str(_CONCURRENCY),
    }


CONTENDER = Contender(
    name="Redrive",
    role=Role.ENGINE,
    arena=Arena.POSTGRES,
    describe=_describe,
    workloads={**queue_workloads(__name__, Queue), **log_workloads(Log)},
)
