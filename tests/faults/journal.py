"""What handlers in other processes did, one line each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from redrive import Event

__all__ = ["is_first", "record"]


def record(folder: Path, event: Event[Any], what: str) -> None:
    """Append one line, whole even when many processes write: what, number, process."""
    line = f"{what} {event.payload['number']} {os.getpid()}\n"
    journal = os.open(folder / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(journal, line.encode())
    finally:
        os.close(journal)


def is_first(folder: Path) -> bool:
    """Tell whether this process was the first to write."""
    with (folder / "journal").open(encoding="utf-8") as journal:
        return int(journal.readline().split()[-1]) == os.getpid()
