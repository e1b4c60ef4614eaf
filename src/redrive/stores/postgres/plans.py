"""The server's plans: those it made when tables were small are thrown away when they prove slow."""

from __future__ import annotations

__all__ = ["Plans"]

_SLOW_SECONDS = 0.1
_REST_SECONDS = 2.0
_MOST_REMEMBERED = 100


class Plans:
    """Which connections have plans to be made anew, by the number of their process.

    The server keeps the plan of a prepared statement until the table is analysed, which may be a
    minute after 100,000 events came to an empty one. To make a plan takes a millisecond; to ask
    for it anew needs no right that a user may lack.
    """

    def __init__(self) -> None:
        self._slow: set[int] = set()
        self._renewed: dict[int, float] = {}

    def took(self, process: int, seconds: float, *, now: float) -> None:
        """Hear how long a transaction took; `now` is any clock that only goes forward."""
        if seconds < _SLOW_SECONDS:
            return
        if now - self._renewed.get(process, now - _REST_SECONDS) >= _REST_SECONDS:
            self._slow.add(process)

    def renew(self, process: int, *, now: float) -> bool:
        """Tell whether a connection is to throw its plans away, which it then does."""
        if process not in self._slow:
            return False
        self._slow.discard(process)
        if len(self._renewed) >= _MOST_REMEMBERED:  # of connections that are long gone
            self._renewed.clear()
        self._renewed[process] = now
        return True
