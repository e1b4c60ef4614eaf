"""The limit of SQLite itself: the least any queue must do, with nothing around it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import apsw

from benchmarks.contender import Contender, Role, Run, Workload

__all__ = ["CONTENDER"]

_PAYLOAD = '{"order": 42, "total": "19.90", "customer": "acme"}'
_CLAIMED = 1_000
_INSERT = "INSERT INTO tasks (payload) VALUES (?)"
_CLAIM = """
UPDATE tasks SET status = 1 WHERE id IN (
    SELECT id FROM tasks WHERE status = 0 ORDER BY id LIMIT ?
) RETURNING id, payload
"""
_MARK = "UPDATE tasks SET status = 2 WHERE id BETWEEN ? AND ?"


def _open(folder: Path) -> apsw.Connection:
    connection = apsw.Connection(str(folder / "raw.db"))
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS tasks "
        "(id INTEGER PRIMARY KEY, status INTEGER NOT NULL DEFAULT 0, payload TEXT NOT NULL)"
    )
    connection.execute("CREATE INDEX IF NOT EXISTS ready ON tasks (id) WHERE status = 0")
    return connection


def _insert(connection: apsw.Connection, size: int, *, batch: int) -> Run:
    began = time.perf_counter()
    for begin in range(0, size, batch):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, [(_PAYLOAD,)] * min(batch, size - begin))
        connection.execute("COMMIT")
    seconds = time.perf_counter() - began
    assert connection.execute("SELECT count(*) FROM tasks").get == size
    return Run(count=size, seconds=seconds, way=f"{batch} per commit")


def _single(size: int, folder: Path) -> Run:
    return _insert(_open(folder), size, batch=1)


def _concurrent(size: int, folder: Path) -> Run:
    return _insert(_open(folder), size, batch=100)


def _bulk(size: int, folder: Path) -> Run:
    return _insert(_open(folder), size, batch=1_000)


def _drain(size: int, folder: Path) -> Run:
    """Mark what was claimed and claim the next in one commit: the least there is to do."""
    connection = _open(folder)
    _insert(connection, size, batch=10_000)
    done = 0
    claimed: list[int] = []
    began = time.perf_counter()
    while True:
        connection.execute("BEGIN IMMEDIATE")
        if claimed:
            connection.execute(_MARK, (claimed[0], claimed[-1]))
            done += len(claimed)
        claimed = sorted(number for number, _ in connection.execute(_CLAIM, (_CLAIMED,)))
        connection.execute("COMMIT")
        if not claimed:
            break
    seconds = time.perf_counter() - began
    assert done == size
    assert connection.execute("SELECT count(*) FROM tasks WHERE status = 2").get == size
    return Run(count=size, seconds=seconds, way=f"{_CLAIMED:,} per commit")


def _describe(folder: Path) -> Mapping[str, str]:
    connection = _open(folder)
    return {
        "library": f"apsw {apsw.apsw_version()}",
        "sqlite": apsw.sqlite_lib_version(),
        "journal_mode": str(connection.execute("PRAGMA journal_mode").get),
        "synchronous": str(connection.execute("PRAGMA synchronous").get),
        "wal_autocheckpoint": str(connection.execute("PRAGMA wal_autocheckpoint").get),
    }


CONTENDER = Contender(
    name="raw SQLite",
    role=Role.LIMIT,
    store="sqlite",
    describe=_describe,
    workloads={
        Workload.SINGLE: _single,
        Workload.CONCURRENT: _concurrent,
        Workload.BULK: _bulk,
        Workload.DRAIN: _drain,
    },
)
