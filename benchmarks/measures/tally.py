"""Counting what several worker processes have done, in a file that all of them see."""

from __future__ import annotations

import asyncio
import mmap
import struct
import threading
from pathlib import Path

__all__ = ["Tally"]

_SLOT = struct.Struct("<q")
_MOST = 64


class Tally:
    """One slot for each process; only its owner writes to it."""

    def __init__(self, path: Path, *, slot: int, expected: int) -> None:
        if not path.exists():
            path.write_bytes(bytes(_SLOT.size * _MOST))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._offset = slot * _SLOT.size
        self._expected = expected
        self.count = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        """Count one more."""
        with self._lock:  # some have threads for their handlers
            self.count += 1
            _SLOT.pack_into(self._memory, self._offset, self.count)

    @property
    def is_complete(self) -> bool:
        """Whether all processes together have done what was expected."""
        done: int = sum(slot for (slot,) in _SLOT.iter_unpack(self._memory))
        return done >= self._expected

    async def complete(self, stop: asyncio.Event) -> None:
        """Set `stop` when all is done."""
        while not (stop.is_set() or self.is_complete):
            await asyncio.sleep(0.002)
        stop.set()
