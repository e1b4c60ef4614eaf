"""The `eventsourcing` library on SQLite: a projection that halts when an event fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from importlib.metadata import version

from benchmarks.contender import Arena, Contender, Place, Role
from benchmarks.measures.reading import log_workloads
from benchmarks.measures.sourced import SourcedLog

__all__ = ["CONTENDER", "Log"]


class Log(SourcedLog):
    """Aggregates and their read model in one file, with the library's defaults: WAL, fsync."""

    def __init__(self, place: Place) -> None:
        super().__init__(
            place,
            environment={
                "PERSISTENCE_MODULE": "eventsourcing.sqlite",
                "SQLITE_DBNAME": str(place.folder / "orders.db"),
            },
            recorder="eventsourcing.sqlite:SQLiteTrackingRecorder",
            sign="?",
            has_subscriptions=False,
        )


def _describe(_place: Place) -> Mapping[str, str]:
    return {
        "library": f"eventsourcing {version('eventsourcing')}",
        "sqlite": sqlite3.sqlite_version,
        "journal_mode": "wal",
        "synchronous": "2",
    }


CONTENDER = Contender(
    name="eventsourcing",
    role=Role.PEER,
    arena=Arena.SQLITE,
    describe=_describe,
    workloads=log_workloads(Log),
    requirements=["eventsourcing"],
    most=20_000,
)
