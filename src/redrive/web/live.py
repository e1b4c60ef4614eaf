"""Live figures as server-sent events: however many listen, the store is asked once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

from redrive.clock import Clock
from redrive.errors import RedriveError, StoreError
from redrive.web.problem import ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Live", "too_many_streams"]

_SHARE = 9
"""For each second that a look takes it rests at least so many: a large store has more to do."""
_LONGEST_SECONDS = 300.0
"""After this a stream ends, and who still may begins another: a revoked token sees no more."""


class Live:
    """Gives the same frames to all who listen; `is_over` says that the server is to stop."""

    def __init__(
        self,
        read: Callable[[], Awaitable[object]],
        *,
        clock: Clock,
        is_over: Callable[[], object],
        event: str = "figures",
        every: float = 2.0,
        most: int = 100,
    ) -> None:
        self._read = read
        self._clock = clock
        self._is_over = is_over
        self._event = event.encode()
        self._rest = self._every = every
        self._most = most
        self.listeners = 0
        """How many listen now."""
        self._number = 0
        self._frame, self._read_at = b"", 0.0
        self._is_old = True
        self._reading = asyncio.Lock()

    def check(self) -> None:
        """Refuse more listeners than there is room for."""
        if self.listeners >= self._most:
            raise too_many_streams(self._most)

    def forget(self) -> None:
        """Give whoever listens from now on what is there then."""
        self._is_old = True

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Return frames as they come, from a first one at once, until it is over."""
        with self._listening():
            end, seen = self._clock.monotonic() + _LONGEST_SECONDS, 0
            while not self._is_over() and self._clock.monotonic() < end:
                seen, frame = await self._next(seen)
                yield frame

    @contextmanager
    def _listening(self) -> Iterator[None]:
        self.listeners += 1
        try:
            yield
        finally:
            self.listeners -= 1

    async def _next(self, seen: int) -> tuple[int, bytes]:
        """Return a frame that was not seen; whoever comes first reads it for all."""
        async with self._reading:
            if seen and self._number == seen:
                await self._clock.sleep(self._rest)
            begun = self._clock.monotonic()
            if self._number == seen or self._is_old or begun - self._read_at > self._rest:
                self._is_old = False
                self._frame, self._read_at = await self._read_frame(), self._clock.monotonic()
                self._rest = max(self._every, _SHARE * (self._read_at - begun))
                self._number += 1
            return self._number, self._frame

    async def _read_frame(self) -> bytes:
        try:
            told = msgspec.json.encode(await self._read())
        except StoreError:
            return b'event: trouble\ndata: {"detail":"the store cannot be reached"}\n\n'
        except RedriveError as error:  # such as that what was looked at is gone
            detail = msgspec.json.encode({"detail": str(error)})
            return b"event: trouble\ndata: " + detail + b"\n\n"
        return b"event: " + self._event + b"\ndata: " + told + b"\n\n"


def too_many_streams(most: int) -> ProblemError:
    """Return the refusal of one more stream than there is room for."""
    return ProblemError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "too-many-streams",
        f"{most} streams are open already; close one, or try again later.",
        retry_after="10",
    )
