"""Drains a journal and is killed in the middle: `dying FOLDER STORE BATCHES`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from itertools import count
from pathlib import Path

from redrive import Redrive
from redrive.journal import draining
from redrive.journal.folder import write_progress


async def main(folder: str, store: str, batches: int) -> None:
    """Die when so many batches are in the store, before the last of them is written down."""
    given = count(1)

    def die(path: Path, place: int) -> None:
        if next(given) == batches:
            os.kill(os.getpid(), signal.SIGKILL)
        write_progress(path, place)

    draining.write_progress = die  # type: ignore[attr-defined]
    async with Redrive(store, journal=folder) as app:
        await app.operations.drain_journal(by="test")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
