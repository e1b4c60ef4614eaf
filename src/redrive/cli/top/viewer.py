"""The viewer: looks again and again, draws what it sees, and does what the keys say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from redrive.cli.show.top.view import Reading, View
from redrive.clock import Clock, wait_at_most
from redrive.errors import RedriveError

__all__ = ["Show", "Viewer"]

Show = Callable[[View], None]


class Viewer:
    """Keeps a view up to date until told to quit.

    Between two looks it waits for as long as the last one took, and at least for `view.every`:
    however large the store, half of the time it is left alone.
    """

    def __init__(self, view: View, *, read: Callable[[], Awaitable[Reading]], clock: Clock) -> None:
        self._view = view
        self._read = read
        self._clock = clock
        self._heard_at = clock.monotonic()
        self._quitting = asyncio.Event()
        self._show: Show = lambda _: None

    def see(self, reading: Reading) -> None:
        """Take in a reading."""
        self._heard_at = self._clock.monotonic()
        self._view = self._view.after(reading)

    def press(self, key: str) -> None:
        """Do what a key says; others do nothing."""
        match key.lower():
            case "q":
                self.quit()
            case "p":
                self._change(is_paused=not self._view.is_paused)
            case "s":
                self._change(sort=self._view.sort.next)

    def redraw(self) -> None:
        """Draw the same again, on a screen that may have another size."""
        self._show(self._view)

    def quit(self) -> None:
        """Let `run` return, whatever it is waiting for."""
        self._quitting.set()

    async def run(self, show: Show) -> None:
        """Look and draw until told to quit."""
        self._show = show
        self.redraw()
        looking = asyncio.ensure_future(self._look_on())
        quitting = asyncio.ensure_future(self._quitting.wait())
        try:
            await asyncio.wait({looking, quitting}, return_when=asyncio.FIRST_COMPLETED)
            if looking.done():
                looking.result()
        finally:
            for task in (looking, quitting):
                task.cancel()
            await asyncio.gather(looking, quitting, return_exceptions=True)

    async def _look_on(self) -> None:
        took = 0.0
        while True:
            await wait_at_most(
                self._quitting, max(self._view.every.total_seconds(), took), self._clock
            )
            if self._view.is_paused:
                continue
            began = self._clock.monotonic()
            try:
                reading = await self._read()
            except (RedriveError, OSError) as error:
                self._miss(error)
            else:
                self.see(reading)
            took = self._clock.monotonic() - began
            self.redraw()

    def _miss(self, error: Exception) -> None:
        silence = self._clock.monotonic() - self._heard_at
        self._view = self._view.without_store(str(error), timedelta(seconds=silence))

    def _change(self, **fields: object) -> None:
        self._view = msgspec.structs.replace(self._view, **fields)
        self.redraw()
