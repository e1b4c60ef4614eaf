"""Fail the n-th call, for every n: of the store's methods, and of SQLite's writes to its disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from tests.proof.canonical import Lot, Tampering, run_canonically
from tests.proof.grounds import Ground

__all__ = ["check", "prove_every_call", "prove_every_write"]

ENDS = {
    **{("billing", number): "delivered" for number in (1, 2, 3, 4)},
    **{("ledger", number): "delivered" for number in (1, 2, 3, 4)},
    ("billing", 5): "pending",
    ("ledger", 5): "resolved",
}
_MORE = 5
"""A run may make some calls more or fewer, by what happens at the same moment."""

Told = Callable[[int, int], None]
"""Hears which of how many calls is failing now."""


def check(lot: Lot) -> None:
    """Nothing is lost, nothing is doubled, nothing is left under way, and it was said clearly."""
    assert lot.ends == ENDS
    assert lot.events == 6
    assert lot.stray == 0
    assert lot.audit == {"replay": 1, "cancel": 1, "resolve": 1}
    carried = {place for place, end in ENDS.items() if end == "delivered"}
    assert [place for place in sorted(carried) if not lot.done[place]] == []
    unclear = [one for one in lot.complaints if not _is_one_sentence(one)]
    assert unclear == []


def _is_one_sentence(text: str) -> bool:
    return (
        text[:1].isupper() and text.endswith(".") and "\n" not in text and "Traceback" not in text
    )


def prove_every_call(ground: Ground, *, every: int = 1, told: Told = lambda *_: None) -> int:
    """Run once for each call and each way to lose it; return how many runs that were.

    With `every`, only each so many-th call fails.
    """
    whole = Tampering()
    _run(ground, whole)
    numbers = range(1, len(whole.calls) + _MORE, every)
    for count, number in enumerate(numbers, start=1):
        told(count, len(numbers))
        for is_applied in (False, True):
            tampering = Tampering(number, is_applied=is_applied)
            try:
                _run(ground, tampering)
            except BaseException as error:
                how = "after it was applied" if is_applied else "before it was applied"
                error.add_note(f"Call {number}, {tampering.failed}, failed {how}.")
                raise
    return 2 * len(numbers)


def _run(ground: Ground, tampering: Tampering) -> None:
    with ground.fresh() as site:
        check(asyncio.run(run_canonically(site.make, tampering)))


class _Disk(apsw.VFS):
    """A disk whose n-th write, flush or cut fails, once."""

    def __init__(self, fails_at: int | None) -> None:
        self._fails_at = fails_at
        self._lock = threading.Lock()
        self.writes = 0
        super().__init__("fails-once", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _File(self, name, flags)

    def count(self) -> None:
        with self._lock:
            self.writes += 1
            if self.writes == self._fails_at:
                raise apsw.IOError("disk I/O error")


class _File(apsw.VFSFile):
    def __init__(self, disk: _Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.count()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.count()
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.count()
        super().xTruncate(size)


@contextmanager
def _mounted(fails_at: int | None) -> Iterator[_Disk]:
    disk = _Disk(fails_at)
    try:
        yield disk
    finally:
        disk.unregister()


def prove_every_write(ground: Ground, *, every: int = 1, told: Told = lambda *_: None) -> int:
    """The same one floor below, for SQLite: each write to the file, or one of so many."""
    with _mounted(None) as disk:
        _run(ground, Tampering())
        writes = disk.writes
    numbers = range(1, writes + 1, every)
    for number in numbers:
        told(number, writes)
        with _mounted(number):
            try:
                _run(ground, Tampering())
            except BaseException as error:
                error.add_note(f"Write {number} of {writes} failed.")
                raise
    return len(numbers)
