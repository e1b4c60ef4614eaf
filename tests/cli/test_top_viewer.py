"""The loop of `redrive top`, on a clock that obeys."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Self

import pytest

from redrive.cli.show.top.view import Reading, Sort, View
from redrive.cli.top.viewer import Viewer
from redrive.errors import StoreUnavailableError
from redrive.store import Figures
from redrive.testing import FakeClock
from tests.waiting import PATIENCE_SECONDS


class Watcher:
    """A viewer whose store and screen are in this test."""

    def __init__(self, *, every: float = 1.0) -> None:
        self.clock = FakeClock()
        self.frames: list[View] = []
        self.reads = 0
        self.error: Exception | None = None
        self.takes: Callable[[], Coroutine[Any, Any, None]] | None = None
        view = View(every=timedelta(seconds=every))
        self.viewer = Viewer(view, read=self._read, clock=self.clock)

    async def _read(self) -> Reading:
        self.reads += 1
        if self.takes is not None:
            await self.takes()
        if self.error is not None:
            raise self.error
        return Reading(
            figures=Figures(
                now=self.clock.now(),
                events=self.reads,
                unrouted=0,
                refused_settlements=0,
                deleted=0,
                destinations=(),
                workers=(),
            )
        )

    async def __aenter__(self) -> Self:
        self._running = asyncio.ensure_future(self.viewer.run(self.frames.append))
        await settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.viewer.quit()
        await asyncio.wait_for(self._running, PATIENCE_SECONDS)

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        await settle()


async def settle() -> None:
    """Let everything that can run do so."""
    for _ in range(20):
        turn = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turn.set_result, None)
        await turn


async def test_it_looks_once_for_each_frame() -> None:
    async with Watcher() as watcher:
        for _ in range(3):
            await watcher.pass_time(1)

        assert watcher.reads == 3
        assert [frame.reading and frame.reading.figures.events for frame in watcher.frames] == [
            None,
            1,
            2,
            3,
        ]


async def test_q_quits_while_the_store_is_still_answering() -> None:
    watcher = Watcher()
    watcher.takes = asyncio.Event().wait  # type: ignore[assignment]
    async with watcher:
        await watcher.pass_time(1)
        watcher.viewer.press("q")

    assert watcher.reads == 1


async def test_p_pauses_the_picture_and_lets_it_go_on() -> None:
    async with Watcher() as watcher:
        watcher.viewer.press("p")
        await watcher.pass_time(1)
        await watcher.pass_time(1)
        paused = watcher.reads
        watcher.viewer.press("P")
        await watcher.pass_time(1)

        assert paused == 0
        assert watcher.reads == 1
        assert [frame.is_paused for frame in watcher.frames] == [False, True, False, False]


async def test_s_sorts_at_once_without_looking_again() -> None:
    async with Watcher() as watcher:
        watcher.viewer.press("s")
        watcher.viewer.press("?")

        assert watcher.reads == 0
        assert [frame.sort for frame in watcher.frames] == [Sort.TROUBLE, Sort.NAME]


async def test_a_store_that_goes_away_is_told_and_found_again() -> None:
    async with Watcher() as watcher:
        await watcher.pass_time(1)
        watcher.error = StoreUnavailableError("the file is gone")
        await watcher.pass_time(1)
        await watcher.pass_time(1)
        watcher.error = None
        await watcher.pass_time(1)

        told = [(frame.error, frame.silent_for.total_seconds()) for frame in watcher.frames[1:]]
        assert told == [("", 0), ("the file is gone", 1), ("the file is gone", 2), ("", 0)]
        assert all(frame.reading is not None for frame in watcher.frames[1:])


async def test_a_slow_store_is_left_alone_half_of_the_time() -> None:
    watcher = Watcher()

    async def slowly() -> None:
        await watcher.clock.sleep(8)

    watcher.takes = slowly
    async with watcher:
        await watcher.pass_time(1)
        await watcher.pass_time(8)
        await watcher.pass_time(7)
        soon = watcher.reads
        await watcher.pass_time(1)

        assert soon == 1
        assert watcher.reads == 2


async def test_a_mistake_of_ours_is_not_mistaken_for_the_store_s() -> None:
    watcher = Watcher()
    watcher.error = ZeroDivisionError("a bug")
    running = asyncio.ensure_future(watcher.viewer.run(watcher.frames.append))
    await settle()
    watcher.clock.advance("1s")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        await asyncio.wait_for(running, PATIENCE_SECONDS)
