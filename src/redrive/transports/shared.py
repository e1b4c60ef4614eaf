"""One connection that all sends of a worker share, and a new one as soon as it is doubted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

__all__ = ["SharedLine"]

T = TypeVar("T")


class _Held(Generic[T]):
    def __init__(self, value: T) -> None:
        self.value = value
        self.users = 0


class SharedLine(Generic[T]):
    """Keeps a connection for as long as everything goes well on it.

    Whoever fails on it, or is ended while waiting, leaves it to those that still wait for their
    answers; the next one gets a new one. The last to leave it closes it.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[T]],
        disconnect: Callable[[T], Awaitable[None]],
        is_open: Callable[[T], bool],
    ) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._is_open = is_open
        self._connecting = asyncio.Lock()
        self._current: _Held[T] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[T]:
        """Lend the connection; what ends the block by an error puts it in doubt."""
        held = await self._hold()
        held.users += 1
        try:
            yield held.value
        except BaseException:
            self._leave(held)
            raise
        finally:
            held.users -= 1
            if held.users == 0 and held is not self._current:
                self._end(held)

    def doubt(self, value: T) -> None:
        """Have the next send use another connection than this."""
        if self._current is not None and self._current.value is value:
            self._leave(self._current)

    async def close(self) -> None:
        """Close the connection, and wait for those that are being closed."""
        held, self._current = self._current, None
        if held is not None:
            self._end(held)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _hold(self) -> _Held[T]:
        async with self._connecting:
            held = self._current
            if held is None or not self._is_open(held.value):
                if held is not None:
                    self._leave(held)
                held = self._current = _Held(await self._connect())
            return held

    def _leave(self, held: _Held[T]) -> None:
        if held is self._current:
            self._current = None
            if held.users == 0:
                self._end(held)

    def _end(self, held: _Held[T]) -> None:
        task = asyncio.get_running_loop().create_task(self._disconnected(held.value))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _disconnected(self, value: T) -> None:
        with suppress(Exception):  # it may be broken in any way: nobody waits for it any more
            await self._disconnect(value)
