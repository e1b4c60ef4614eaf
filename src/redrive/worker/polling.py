"""How long a worker rests before it looks for work that nobody told it of."""

from __future__ import annotations

from datetime import timedelta

__all__ = ["Polling"]

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
