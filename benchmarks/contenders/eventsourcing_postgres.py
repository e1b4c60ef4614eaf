"""The `eventsourcing` library on PostgreSQL: a projection that halts when an event fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from urllib.parse import unquote, urlsplit

from benchmarks.contender import Arena, Contender, Place, Role
from benchmarks.measures.describing import describe_postgres
from benchmarks.measures.reading import log_workloads
from benchmarks.measures.sourced import SourcedLog

__all__ = ["CONTENDER", "Log"]


class Log(SourcedLog):
    """Aggregates and their read model in one database, with the library's defaults."""

    def __init__(self, place: Place) -> None:
        super().__init__(
            place,
            environment={"PERSISTENCE_MODULE": "eventsourcing.postgres", **_address(place.url)},
            recorder="eventsourcing.postgres:PostgresTrackingRecorder",
            sign="%s",
            has_subscriptions=True,
        )


def _address(url: str) -> Mapping[str, str]:
    parts = urlsplit(url)
    return {
        "POSTGRES_DBNAME": parts.path.lstrip("/"),
        "POSTGRES_HOST": parts.hostname or "",
        "POSTGRES_PORT": str(parts.port or 5432),
        "POSTGRES_USER": unquote(parts.username or ""),
        "POSTGRES_PASSWORD": unquote(parts.password or ""),
    }


def _describe(place: Place) -> Mapping[str, str]:
    return {
        "library": f"eventsourcing {version('eventsourcing')}, psycopg {version('psycopg')}",
        **asyncio.run(describe_postgres(place.url)),
    }


CONTENDER = Contender(
    name="eventsourcing",
    role=Role.PEER,
    arena=Arena.POSTGRES,
    describe=_describe,
    workloads=log_workloads(Log),
    requirements=["eventsourcing", "psycopg[binary]", "psycopg-pool", "asyncpg"],
    most=10_000,
)
