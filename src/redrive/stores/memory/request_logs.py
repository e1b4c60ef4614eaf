"""The log of requests, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redrive.clock import Clock
from redrive.model.erasure import ErasureTerms, erased_request
from redrive.model.event import EventId
from redrive.model.request_log import LoggedRequest
from redrive.store import RequestBatch
from redrive.stores.memory.tables import Tables

__all__ = ["MemoryRequestLogs"]


class MemoryRequestLogs(Tables):
    """`RequestLogs` over the tables."""

    def __init__(self, clock: Clock, history: int) -> None:
        super().__init__(clock, history)
        self._requests: dict[str, list[LoggedRequest]] = {}

    async def log_requests(self, batches: Mapping[str, RequestBatch]) -> None:
        with self._lock:
            for name, batch in batches.items():
                if name in self._destinations:
                    told = [self._as_kept(one) for one in batch.requests]
                    logged = [*self._requests.get(name, ()), *told]
                    self._requests[name] = logged[-batch.keep :]

    async def logged_requests(self, destination: str, *, limit: int) -> Sequence[LoggedRequest]:
        with self._lock:
            return self._requests.get(destination, [])[::-1][:limit]

    def _as_kept(self, request: LoggedRequest) -> LoggedRequest:
        """Return a request as it is kept: its event may have been erased already."""
        kept = self._known.get((EventId(request.event_id),))
        is_erased = kept is not None and kept.event.erased is not None
        return erased_request(request, ErasureTerms()) if is_erased else request
