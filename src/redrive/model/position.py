"""Places in the log: where an event is, and where a reader goes on."""

from __future__ import annotations

import msgspec

from redrive.errors import ConfigurationError

__all__ = ["LOG_START", "LogPosition"]

_LARGEST = 2**63 - 1


class LogPosition(msgspec.Struct, frozen=True, order=True):
    """The place of an event in the log; a reader keeps the last one it has seen as its cursor.

    Positions compare in the order of the log, and `str` gives a short text that `parse` reads.
    One stays good to read on from when its event has gone. What the two numbers count is the
    store's business.
    """

    time: int = 0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.time}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        """Read a position that was written with `str`."""
        time, _, number = text.partition("-") if isinstance(text, str) else ("", "", "")
        is_ours = text.isascii() and time.isdigit() and number.isdigit() if time else False
        if not is_ours or max(int(time), int(number)) > _LARGEST:
            raise ConfigurationError(
                f"The position {text!r} is not one of the log; pass the `position` of an event "
                "that was read from it, or its text."
            )
        return cls(int(time), int(number))


LOG_START = LogPosition()
"""Before the first event."""
