"""A disk that is full or read only on demand: SQLite's writes fail as they do then."""

from __future__ import annotations

from pathlib import Path

import apsw


class Disk:
    """Any process that has mounted it finds it full, or read only, while the mark is there."""

    def __init__(self, folder: Path) -> None:
        self._full = folder / "disk-is-full"
        self._read_only = folder / "disk-is-read-only"

    def check(self) -> None:
        """Raise what SQLite says of a write that cannot be."""
        if self._full.exists():
            raise apsw.FullError("no space left")
        if self._read_only.exists():
            raise apsw.ReadOnlyError("attempt to write a readonly database")

    def fill(self) -> None:
        self._full.touch()

    def protect(self) -> None:
        self._read_only.touch()

    def opens(self, flags: list[int]) -> list[int]:
        """Return how a file is opened: one that is read only, like any other that may not be."""
        if self._read_only.exists() and flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            writing = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
            flags[0] = flags[0] & ~writing | apsw.SQLITE_OPEN_READONLY
        return flags

    def free(self) -> None:
        self._full.unlink(missing_ok=True)
        self._read_only.unlink(missing_ok=True)

    def mount(self) -> apsw.VFS:
        """Put every store that this process opens on the disk, until the answer is dropped."""
        return _Files(self)


class _Files(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__("full-on-demand", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _File(self._disk, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("unix", name, disk.opens(flags))

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.check()
        super().xWrite(data, offset)
