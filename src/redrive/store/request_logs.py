"""What a store promises about the log of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from redrive.model.request_log import LoggedRequest

__all__ = ["RequestBatch", "RequestLogs"]


class RequestBatch(NamedTuple):
    """Requests to one destination in the order of time, and how many of all are to be kept."""

    requests: Sequence[LoggedRequest]
    keep: int


class RequestLogs(Protocol):
    """The last requests to destinations, for people to look at; nothing is decided by them."""

    async def log_requests(self, batches: Mapping[str, RequestBatch]) -> None:
        """Add requests by their destinations; those before the last `keep` may go.

        What is about a destination that is not known is left out.
        """

    async def logged_requests(self, destination: str, *, limit: int) -> Sequence[LoggedRequest]:
        """Return the last requests to a destination, the latest first."""
