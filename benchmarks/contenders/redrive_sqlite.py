"""Redrive on SQLite, through its front door and as it is out of the box."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

import apsw

from benchmarks.contender import Arena, Contender, Place, Role
from benchmarks.measures import queue_workloads
from benchmarks.measures.engine import RedriveQueue
from benchmarks.measures.projecting import RedriveLog
from benchmarks.measures.reading import log_workloads
from redrive.stores.sqlite.connection import connect

__all__ = ["CONTENDER", "Log", "Queue"]

_CONCURRENCY = 500


class Queue(RedriveQueue):
    """An app with one destination that does nothing."""

    def __init__(self, place: Place) -> None:
        super().__init__(
            place,
            store=f"sqlite:///{place.folder}/redrive.db",
            concurrency=_CONCURRENCY,
        )


class Log(RedriveLog):
    """An app with one projection."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, arena=Arena.SQLITE, store=f"sqlite:///{place.folder}/redrive.db")


def _describe(place: Place) -> Mapping[str, str]:
    connection = connect(place.folder / "redrive.db")
    return {
        "library": f"redrive {version('redrive')}",
        "sqlite": apsw.sqlite_lib_version(),
        "journal_mode": str(connection.execute("PRAGMA journal_mode").get),
        "synchronous": str(connection.execute("PRAGMA synchronous").get),
        "wal_autocheckpoint": str(connection.execute("PRAGMA wal_autocheckpoint").get),
        "concurrency": str(_CONCURRENCY),
    }


CONTENDER = Contender(
    name="Redrive",
    role=Role.ENGINE,
    arena=Arena.SQLITE,
    describe=_describe,
    workloads={**queue_workloads(__name__, Queue), **log_workloads(Log)},
)
