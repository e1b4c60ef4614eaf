"""The recorder: adds up what becomes of deliveries, and has it kept for those who look later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Protocol

from redrive.clock import Clock, Rng
from redrive.errors import StoreError
from redrive.model.delivery import Leased
from redrive.model.request_log import LoggedRequest, RequestLog
from redrive.model.settlement import Delivered, Failed, RetryAt, Settlement, Snoozed
from redrive.model.trend import NO_LATENCIES, Measure, latency_bucket
from redrive.observer import DeadLettered, Fact, Settlements
from redrive.store import RequestBatch, RequestLogs, Trends

__all__ = ["Recorder"]

_EVERY_SECONDS = 10.0
_LONGEST_ERROR = 200
_RESULTS: Mapping[type[Settlement], str] = {
    Delivered: "delivered",
    RetryAt: "retry",
    Snoozed: "snoozed",
    Failed: "failed",
}


class _Kept(Trends, RequestLogs, Protocol):
    """What recording needs of a store."""


class _Sums:
    """What became of deliveries to one destination since it was last written down."""

    __slots__ = ("delivered", "failed", "latencies", "retried")

    def __init__(self) -> None:
        self.delivered = self.retried = self.failed = 0
        self.latencies = list(NO_LATENCIES)


class _Requests:
    """The last requests to one destination since they were last written down."""

    __slots__ = ("keep", "requests")

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.requests: deque[LoggedRequest] = deque(maxlen=keep)


class Recorder:
    """Watches a worker, on its own event loop, and writes one set of rows every ten seconds.

    What it has not written when its process is killed is missing in trends, and nowhere else.
    """

    def __init__(self, store: _Kept, clock: Clock, rng: Rng) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self.log_of: Callable[[str], RequestLog | None] = lambda _: None
        """Tells which requests to a destination are logged, if any."""
        self._sums: dict[str, _Sums] = {}
        self._logs: dict[str, _Requests] = {}

    def notice(self, fact: Fact) -> None:
        """Add up what was settled, and what became a dead letter."""
        if isinstance(fact, Settlements):
            for number, (leased, settlement) in enumerate(fact.settled):
                took = fact.took[number]
                sums = self._sums.get(leased.destination) or self._begin(leased.destination)
                sums.latencies[latency_bucket(took)] += 1
                if isinstance(settlement, Delivered):
                    sums.delivered += 1
                elif isinstance(settlement, RetryAt):
                    sums.retried += 1
                if (log := self.log_of(leased.destination)) is not None:
                    code = fact.codes[number] if fact.codes else ""
                    self._log(log, leased, settlement, took=took, code=code)
        elif isinstance(fact, DeadLettered):
            (self._sums.get(fact.destination) or self._begin(fact.destination)).failed += 1

    async def run(self) -> None:
        """Write again and again, until cancelled; what a store does not take is written later."""
        while True:
            await self._clock.sleep(_EVERY_SECONDS)
            try:
                await self.write()
            except StoreError:
                continue  # whoever works with the store says so

    async def write(self) -> None:
        """Have what was added up kept."""
        await self._write_log()
        taken, self._sums = self._sums, {}
        if not taken:
            return
        try:
            await self._store.add_trends({name: _measure(one) for name, one in taken.items()})
        except StoreError:
            for name, one in taken.items():
                self._put_back(name, one)
            raise

    async def _write_log(self) -> None:
        """Have the last requests kept; of what cannot be written now, the latest stay."""
        logs, self._logs = self._logs, {}
        if not logs:
            return
        try:
            await self._store.log_requests(
                {name: RequestBatch(tuple(one.requests), one.keep) for name, one in logs.items()}
            )
        except StoreError:
            for name, one in logs.items():
                since = self._logs.get(name)
                one.requests.extend(since.requests if since else ())
                self._logs[name] = one
            raise

    def _log(
        self, log: RequestLog, leased: Leased, settlement: Settlement, *, took: float, code: str
    ) -> None:
        is_success = isinstance(settlement, Delivered)
        if is_success and log.share < 1 and self._rng.uniform(0.0, 1.0) >= log.share:
            return
        kept = self._logs.get(leased.destination)
        if kept is None or kept.keep != log.keep:
            kept = self._logs[leased.destination] = _Requests(log.keep)
        fault = None if isinstance(settlement, Delivered) else settlement.fault
        kept.requests.append(
            LoggedRequest(
                at=leased.claimed_at,
                delivery=leased.lease.delivery_id,
                event_id=leased.event.id,
                event_type=leased.event.type,
                result=_RESULTS[type(settlement)],
                attempt=leased.attempt,
                latency=timedelta(seconds=took),
                status=fault.code if fault else code,
                rule=leased.rule,
                tenant=leased.event.tenant,
                error=fault.message[:_LONGEST_ERROR] if fault else "",
            )
        )

    def _begin(self, destination: str) -> _Sums:
        sums = self._sums[destination] = _Sums()
        return sums

    def _put_back(self, name: str, one: _Sums) -> None:
        sums = self._sums.get(name) or self._begin(name)
        sums.delivered += one.delivered
        sums.retried += one.retried
        sums.failed += one.failed
        sums.latencies = [a + b for a, b in zip(sums.latencies, one.latencies, strict=True)]


def _measure(sums: _Sums) -> Measure:
    return Measure(
        delivered=sums.delivered,
        retried=sums.retried,
        failed=sums.failed,
        latencies=tuple(sums.latencies),
    )
