"""The log of requests: what was sent to a destination lately, and how that went."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from redrive.errors import ConfigurationError

__all__ = ["LoggedRequest", "RequestLog"]

_MOST = 1_000


class RequestLog(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the last requests to a destination are kept, and which share of the successes.

    Failures are always kept.
    """

    keep: int = 100
    share: float = 1.0

    def __post_init__(self) -> None:
        if type(self.keep) is not int or not 1 <= self.keep <= _MOST:
            raise ConfigurationError(
                f"keep of request_log is {self.keep!r}; it is how many of the last requests are "
                f"kept, from 1 to {_MOST:,}. For none, leave request_log out, or write False."
            )
        if not isinstance(self.share, int | float) or not 0 < self.share <= 1:
            raise ConfigurationError(
                f"share of request_log is {self.share!r}; it is the share of the successes that is "
                "kept, such as 0.1, above 0 and at most 1."
            )


class LoggedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One try of a delivery: when it was claimed, what came of it, and how long it took.

    `status` is what the destination answered, as its kind has it: of HTTP the status, empty if
    there was no answer. `attempt` says which try of its cycle it was.
    """

    at: datetime
    delivery: int
    event_id: str
    event_type: str
    result: str
    attempt: int
    latency: timedelta
    status: str = ""
    rule: str = ""
    tenant: str | None = None
    error: str = ""
