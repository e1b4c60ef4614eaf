"""Slices: the work of the sender in small pieces, so that it holds up no thread of the app."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TypeVar

from redrive.clock import Clock, wait_at_most
from redrive.tracking.buffer import Buffer

__all__ = ["MOST_HANDED_OVER", "Slices"]

T = TypeVar("T")

MOST_HANDED_OVER = 40
"""How many events are handed over at once: more are fewer commits, and longer without a pause."""
_SMALL = 10
_LARGE = 100
_PAUSE_SECONDS = 0.001
_LOOKS = 4
_LOOK_SECONDS = 0.025
_ANSWER_SECONDS = 0.05


class Slices:
    """Says how much is done at once, and lets others have the interpreter in between.

    A thread that wants it gets it only after five milliseconds from one that does not pause. There
    is no pause while somebody waits for the sender, nor when it falls behind.
    """

    def __init__(self, buffer: Buffer, clock: Clock) -> None:
        self._buffer = buffer
        self._clock = clock
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Have all that is left be done as fast as it goes."""
        self._ending.set()

    @property
    def is_ending(self) -> bool:
        """Whether all that is left is to be done as fast as it goes."""
        return self._ending.is_set()

    @property
    def size(self) -> int:
        """How many events are seen to at once."""
        return _LARGE if self._is_hurried else _SMALL

    async def give_way(self) -> None:
        """Pause for a moment."""
        await self._clock.sleep(0 if self._is_hurried else _PAUSE_SECONDS)

    async def let_gather(self, waiting: Sized) -> None:
        """Wait a little where only a few wait: many at once cost less than one after the other.

        It looks a few times meanwhile, so that whoever waits in `flush` waits for a look at most.
        """
        for _ in range(_LOOKS):
            if len(waiting) >= MOST_HANDED_OVER or self._is_hurried:
                break
            await wait_at_most(self._ending, _LOOK_SECONDS, self._clock)

    async def let_answer(self, answered: asyncio.Event) -> bool:
        """Wait a moment for an answer, and tell whether it came."""
        return await wait_at_most(answered, _ANSWER_SECONDS, self._clock)

    async def each(self, of: Iterable[T], do: Callable[[Sequence[T]], None]) -> None:
        """Do something with each slice of these; with all of them, also if it is cancelled."""
        left = deque(of)
        try:
            while left:
                do([left.popleft() for _ in range(min(self.size, len(left)))])
                if left:
                    await self.give_way()
        finally:
            if left:
                do(list(left))

    @property
    def _is_hurried(self) -> bool:
        buffer = self._buffer
        return (
            self._ending.is_set() or buffer.is_awaited or len(buffer.items) > buffer.capacity // 2
        )
