"""Whether the SQLite file is well: sound, writable, with room, and on a disk that suits it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import apsw

from redrive.errors import StoreError
from redrive.store import Finding, Level
from redrive.stores.codec import from_micros
from redrive.stores.sqlite.connection import connect, rollback, translated
from redrive.stores.sqlite.schema import LATEST, schema_version

__all__ = ["check_up", "file_system_of"]

_LOCK_MILLISECONDS = 2_000
_MOST_COMPLAINTS = 5
_LITTLE_ROOM = 2**30
_NO_ROOM = 2**26
_LARGE_LOG = 2**28
_CLOCK_SLACK = timedelta(seconds=5)
_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = (
    *("afs", "beegfs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3"),
    *("smbfs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
)


def check_up(path: Path, *, now: datetime, mounts: Path = _MOUNTS) -> Sequence[Finding]:
    """Look at the file on a connection of its own, as reading everything takes a while."""
    connection = connect(path)
    try:
        with translated(path):
            connection.set_busy_timeout(_LOCK_MILLISECONDS)
            return (
                *_schema(connection, path),
                *_integrity(connection, path),
                *_lock(connection, path),
                *_log(connection, path),
                *_room(path),
                *_place(path, mounts),
                *_clock(connection, now),
            )
    finally:
        connection.close()


def file_system_of(path: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of the file system a path is on; empty where Linux does not tell."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    place = path.resolve()
    found: dict[Path, str] = {}
    for line in lines:
        # "36 35 98:0 /root /mount/point options - type source options", blanks written as \040.
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode("ascii", "backslashreplace").decode("unicode_escape")
        found[Path(point)] = after.split()[0]
    return next((found[folder] for folder in (place, *place.parents) if folder in found), "")


def _schema(connection: apsw.Connection, path: Path) -> Iterator[Finding]:
    version = schema_version(connection)
    is_newer = version > LATEST
    age = f"newer than this Redrive's {LATEST}, and it can work with it" if is_newer else "current"
    yield Finding(
        level=Level.OK, what=f"The store {path} answers; its schema version {version} is {age}."
    )


def _integrity(connection: apsw.Connection, path: Path) -> Iterator[Finding]:
    complaints = [
        str(complaint)
        for (complaint,) in connection.execute(f"PRAGMA quick_check({_MOST_COMPLAINTS})")
    ]
    if complaints == ["ok"]:
        yield Finding(level=Level.OK, what="The file is sound.")
        return
    yield Finding(
        level=Level.ERROR,
        what=f"The file is damaged: {'; '.join(complaints)}.",
        advice=f"Stop all workers, keep a copy of {path}, and restore a backup, "
        "or recover it with: sqlite3 FILE .recover",
    )


def _lock(connection: apsw.Connection, path: Path) -> Iterator[Finding]:
    try:
        with translated(path):
            connection.execute("BEGIN IMMEDIATE")
    except StoreError as error:
        if isinstance(error.__cause__, apsw.BusyError):
            yield Finding(
                level=Level.WARNING,
                what=f"Another process has held the write lock for {_LOCK_MILLISECONDS // 1000} s "
                "or more, and whoever publishes or settles waits for it.",
                advice="Look for a transaction that was left open.",
            )
        else:
            yield Finding(level=Level.ERROR, what=str(error))
    else:
        rollback(connection)
        if connection.readonly("main"):
            yield Finding(
                level=Level.ERROR,
                what=f"The store {path} cannot be written.",
                advice="Give this user the right to write the file and its folder.",
            )
        else:
            yield Finding(level=Level.OK, what="The file can be written.")


def _log(connection: apsw.Connection, path: Path) -> Iterator[Finding]:
    mode = str(connection.execute("PRAGMA journal_mode").get)
    if mode != "wal":
        yield Finding(
            level=Level.WARNING,
            what=f"SQLite's journal mode is {mode!r} instead of 'wal', so readers and the writer "
            "wait for each other.",
            advice="The file system may lack shared memory; move the store to a local disk.",
        )
    log = path.with_name(f"{path.name}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > _LARGE_LOG:
        yield Finding(
            level=Level.WARNING,
            what=f"The write-ahead log {log} has grown to {_megabytes(size)}.",
            advice="A reader that never ends keeps it from shrinking; look for one.",
        )


def _room(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.resolve().parent).free
    if free >= _LITTLE_ROOM:
        yield Finding(level=Level.OK, what=f"The disk has {_megabytes(free)} of room.")
        return
    yield Finding(
        level=Level.ERROR if free < _NO_ROOM else Level.WARNING,
        what=f"The disk under the store has only {_megabytes(free)} of room.",
        advice="Free some space: a full disk refuses every publish and every settlement.",
    )


def _place(path: Path, mounts: Path) -> Iterator[Finding]:
    kind = file_system_of(path, mounts)
    if kind in _NETWORK:
        yield Finding(
            level=Level.ERROR,
            what=f"The store is on a network file system ({kind}), where SQLite's locks do not "
            "hold and the file can be damaged.",
            advice="Move the file to a local disk of the machine that runs the workers.",
        )


def _clock(connection: apsw.Connection, now: datetime) -> Iterator[Finding]:
    latest = connection.execute(
        "SELECT enqueued_at FROM redrive_deliveries ORDER BY id DESC LIMIT 1"
    ).get
    ahead = timedelta(0) if latest is None else from_micros(latest) - now
    if ahead > _CLOCK_SLACK:
        yield Finding(
            level=Level.ERROR,
            what=f"The latest delivery was stored {int(ahead.total_seconds())} s in the future: "
            "the clock of this machine was set back.",
            advice="Set the clock right, and keep it so with NTP; due times depend on it.",
        )


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB" if size < _LITTLE_ROOM else f"{size / 2**30:,.1f} GiB"
