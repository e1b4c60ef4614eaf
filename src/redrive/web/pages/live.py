"""Live pages: whoever looks at the same page as the same role is sent the same, read once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse

from redrive.clock import Clock
from redrive.web.live import Live, too_many_streams

__all__ = ["EVENTS", "LivePages"]

EVENTS = "text/event-stream"
_EVERY_SECONDS = 3.0
_MOST_LISTENERS = 500


class LivePages:
    """The streams of pages that somebody looks at; `is_over` says that the server is to stop."""

    def __init__(
        self, clock: Clock, *, is_over: Callable[[], object], most: int = _MOST_LISTENERS
    ) -> None:
        self._most = most
        self._clock = clock
        self._is_over = is_over
        self._streams: dict[Hashable, Live] = {}

    @property
    def streams(self) -> int:
        """How many pages somebody looks at."""
        return len(self._streams)

    def forget(self) -> None:
        """Read everything anew from now on."""
        for stream in self._streams.values():
            stream.forget()

    def answer(self, key: Hashable, read: Callable[[], Awaitable[object]]) -> Response:
        """Return the stream of what `key` stands for, unless too many listen already."""
        if sum(one.listeners for one in self._streams.values()) >= self._most:
            raise too_many_streams(self._most)
        stream = Live(
            read, clock=self._clock, is_over=self._is_over, event="page", every=_EVERY_SECONDS
        )
        return StreamingResponse(self._frames(key, stream), media_type=EVENTS)

    async def _frames(self, key: Hashable, new: Live) -> AsyncGenerator[bytes, None]:
        stream = self._streams.setdefault(key, new)
        try:
            async with aclosing(stream.frames()) as frames:
                async for frame in frames:
                    yield frame
        finally:
            if not stream.listeners:
                self._streams.pop(key, None)
