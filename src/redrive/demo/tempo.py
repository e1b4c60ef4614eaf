"""The tempo of the story: seconds of the script, as fast as one wants to see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from redrive.clock import Clock

__all__ = ["Tempo"]

_LOOK_AGAIN_SECONDS = 0.02


class Tempo:
    """Translates seconds of the script into time on the clock."""

    def __init__(self, clock: Clock, speed: float) -> None:
        self._clock = clock
        self._speed = speed
        self._began = clock.monotonic()

    def restart(self) -> None:
        """Let the script begin now."""
        self._began = self._clock.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds of the script since the beginning."""
        return (self._clock.monotonic() - self._began) * self._speed

    def duration(self, seconds: float) -> timedelta:
        """Return what so many seconds of the script last."""
        return timedelta(seconds=seconds / self._speed)

    async def sleep(self, seconds: float) -> None:
        """Let seconds of the script pass."""
        await self._clock.sleep(seconds / self._speed)

    async def wait_until(self, is_true: Callable[[], Awaitable[bool]], *, patience: float) -> bool:
        """Wait until it is true, with a patience in real seconds; tell whether it came true."""
        gives_up = self._clock.monotonic() + patience
        while not await is_true():
            if self._clock.monotonic() > gives_up:
                return False
            await self._clock.sleep(_LOOK_AGAIN_SECONDS)
        return True
