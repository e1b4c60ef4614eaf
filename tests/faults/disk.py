"""A disk that is full on demand: SQLite's writes fail as they do when no space is left."""

from __future__ import annotations

from pathlib import Path

import apsw


class Disk:
    """Any process that has mounted it finds it full while the mark is there."""

    def __init__(self, folder: Path) -> None:
        self._mark = folder / "disk-is-full"

    @property
    def is_full(self) -> bool:
        return self._mark.exists()

    def fill(self) -> None:
        self._mark.touch()

    def free(self) -> None:
        self._mark.unlink()

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
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        if self._disk.is_full:
            raise apsw.FullError("no space left")
        super().xWrite(data, offset)
