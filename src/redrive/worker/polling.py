"""How long a worker rests before it looks for work that nobody told it of."""

from __future__ import annotations

from datetime import timedelta

from redrive.clock import Clock
from redrive.store import DeliveryQueue

__all__ = ["Lookout", "Polling"]

_QUICKEST = timedelta(milliseconds=20)


class Polling:
    """Looks at the longest interval while they are in vain, and quickly after one that was not.

    An event published in a transaction of the caller's may come without a notification. Where one
    has come, more are likely to; after each look in vain the next is twice as far.
    """

    def __init__(self, longest: timedelta) -> None:
        self._longest = longest
        self.interval = longest

    def heed(self, *, found: bool) -> None:
        """Take note whether there was work when the interval was over and nobody had told of it."""
        self.interval = min(self._longest, _QUICKEST if found else self.interval * 2)


class Lookout:
    """Waits for what comes to the log, for a reader that looks, rests, and looks again."""

    def __init__(self, store: DeliveryQueue, clock: Clock, poll: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._polling = Polling(poll)
        self._mark: object = None
        self.was_told = False
        """Whether the last rest was ended by news, and not by its interval."""

    def look(self) -> None:
        """Hear that the reader is about to look."""
        self._mark = self._store.mark()

    async def rest(self, *, is_vain: bool) -> None:
        """Return when it is worth another look, after one that was in vain, or was not."""
        # What was told of can be read only when all that began before it has been committed.
        self._polling.heed(found=self.was_told or not is_vain)
        if self.was_told and is_vain:
            await self._clock.sleep(_QUICKEST.total_seconds())
        begun = self._clock.monotonic()
        await self._store.wait(at_most=self._polling.interval, since=self._mark)
        rested = self._clock.monotonic() - begun
        self.was_told = rested < self._polling.interval.total_seconds()
