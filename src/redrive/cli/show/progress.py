"""A replay as it runs: bars that grow, for whoever watches at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from redrive.store import Replay

__all__ = ["watching"]


@contextmanager
def watching(replay: Replay) -> Iterator[Callable[[Replay], None]]:
    """Show a replay if somebody watches; call it with how it stands."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[told]}", markup=False),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bars:
        sent = bars.add_task("Sent", total=replay.selected, told="")
        delivered = bars.add_task("Delivered", total=replay.selected, told="")
        tell = _Bars(bars, sent, delivered).tell
        tell(replay)
        yield tell


class _Bars:
    def __init__(self, bars: Progress, sent: TaskID, delivered: TaskID) -> None:
        self._bars = bars
        self._sent = sent
        self._delivered = delivered

    def tell(self, replay: Replay) -> None:
        wave = replay.wave
        total = replay.selected - replay.skipped
        of_wave = f"wave {wave.number} of {wave.size:,}" if wave.number else "about to begin"
        others = [
            f"{count:,} {word}"
            for count, word in (
                (replay.failed, "failed again"),
                (replay.skipped, "skipped"),
                (replay.newcomers or 0, "new meanwhile"),
            )
            if count
        ]
        self._bars.update(
            self._sent,
            total=total,
            completed=replay.sent,
            told=f"{replay.sent:,}/{total:,}  {of_wave}",
        )
        self._bars.update(
            self._delivered,
            total=total,
            completed=replay.delivered,
            told="  ".join([f"{replay.delivered:,}/{total:,}", *others]),
        )
