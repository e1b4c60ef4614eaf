"""Metrics: facts counted, and figures read, for Prometheus to collect."""

from __future__ import annotations

import platform
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import accumulate, repeat
from typing import assert_never

from redrive.errors import ConfigurationError

if find_spec("prometheus_client") is None:
    raise ConfigurationError(
        "Metrics need prometheus-client, which is not installed; "
        "install it with: pip install 'redrive[metrics]'"
    )

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from redrive.journal.folder import FileState, JournalSize
from redrive.model.delivery import Leased
from redrive.model.gate import BreakerState, Closed, GateFigures, HalfOpen, Open
from redrive.model.recipient import split_pin
from redrive.model.settlement import (
    Delivered,
    Failed,
    Recovery,
    Requeued,
    RetryAt,
    Settlement,
    Snoozed,
)
from redrive.model.tracked import TrackingFigures
from redrive.observer import (
    AlreadyApplied,
    BreakerChanged,
    Claimed,
    DeadLettered,
    DeclarationChanged,
    DeclarationsAgree,
    DeclarationsDiffer,
    DestinationOrphaned,
    DestinationPaused,
    EncryptionStuck,
    EventsCompleted,
    EventSkipped,
    ExportFailed,
    Fact,
    HandlerStuck,
    HealthChecked,
    HistoryPruned,
    LeasesLost,
    LettersExported,
    LettersNearLimit,
    LettersRegrouped,
    ListeningBack,
    ListeningLost,
    Operated,
    ProjectionFailed,
    Published,
    ReplayEnded,
    ReplayStarted,
    ReplayStopped,
    Rescued,
    ScheduleFailed,
    ServiceUnserved,
    Settlements,
    SettlementsRefused,
    StoreBack,
    StoreLost,
    TicksLeftOut,
    TicksPublished,
    WaveSent,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
    WorkerWedged,
    WorkStranded,
    Written,
)
from redrive.observers.gauges import OTHER, breaker_gauges, gauges, projection_gauges
from redrive.observers.tracking import journal_series, tracking_series
from redrive.store import DestinationFigures, Figures, ProjectionFigures

__all__ = ["OTHER", "PrometheusObserver"]

_MOST_ACTIONS = 50
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LONG_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0)
"""Those of what may wait for a person, in seconds: from 10 ms to a day."""
_MOST_TENANTS = 50
_STATES: dict[type[BreakerState], str] = {
    Closed: "closed",
    HalfOpen: "half_open",
    Open: "open",
}
_RESULTS: dict[type[Settlement], str] = {
    Delivered: "delivered",
    RetryAt: "retry",
    Snoozed: "snoozed",
    Failed: "failed",
}


class PrometheusObserver:
    """Counts facts in series whose number is bounded: no id, type or text is a label.

    Of tenants only few are, and only of dead letters.

    With `tracking`, such as `app.tracking.figures`, and `journal`, such as
    `app.tracking.journal_sizes`, it tells of those as well. Render them with `render`, or register
    the observer as a collector with a registry of yours.
    What one process did is counted; what `render` is given as figures is of the whole store.
    """

    content_type = CONTENT_TYPE_LATEST
    """The media type of what `render` returns."""

    def __init__(
        self,
        *,
        most_destinations: int = 1000,
        tracking: Callable[[], TrackingFigures | None] | None = None,
        journal: Callable[[], Mapping[FileState, JournalSize]] | None = None,
    ) -> None:
        self._tracking = tracking
        self._journal = journal
        self._lock = threading.Lock()
        self._destinations = _Bounded(most_destinations)
        self._tenants = _Bounded(_MOST_TENANTS)
        self._actions = _Bounded(_MOST_ACTIONS)
        self._rules = _Bounded(_MOST_ACTIONS)
        self._published = _Counter(
            "redrive_events_published_total", "Events stored, without repeated publishes."
        )
        self._duplicates = _Counter(
            "redrive_events_duplicate_total", "Repeated publishes, which stored nothing."
        )
        self._written = _Counter(
            "redrive_events_written_total",
            "Events written in transactions of callers, who may have rolled back.",
        )
        self._unrouted = _Counter(
            "redrive_events_unrouted_total", "Events stored that no destination wanted."
        )
        self._claimed = _Counter(
            "redrive_deliveries_claimed_total", "Deliveries leased.", "destination"
        )
        self._attempts = _Counter(
            "redrive_attempts_total",
            "Tries settled, by what came of them.",
            "destination",
            "result",
        )
        self._seconds = _Histogram(
            "redrive_attempt_seconds", "How long tries took.", "destination", _BUCKETS
        )
        self._latency = _Histogram(
            "redrive_delivery_seconds",
            "How long deliveries took from when they were enqueued or due until they were done.",
            "destination",
            _LONG_BUCKETS,
        )
        self._delays = _Histogram(
            "redrive_retry_delay_seconds",
            "How long after a failed try the next one is due.",
            "destination",
            _LONG_BUCKETS,
        )
        self._recovered = _Counter(
            "redrive_recovered_total", "Deliveries done by a retry.", "destination"
        )
        self._dead_letters = _Counter(
            "redrive_dead_letters_total", "Deliveries failed for good.", "destination", "reason"
        )
        self._refused = _Counter(
            "redrive_settlements_refused_total", "Settlements that came after the lease's end."
        )
        self._repeats = _Counter(
            "redrive_effects_already_applied_total",
            "Deliveries settled without running their handler again.",
            "destination",
        )
        self._leases_lost = _Counter(
            "redrive_leases_lost_total", "Leases that ran out while their deliveries ran."
        )
        self._rescues = _Counter(
            "redrive_rescues_total",
            "Deliveries taken back from workers that are gone.",
            "destination",
            "verdict",
        )
        self._stuck = _Counter(
            "redrive_handlers_stuck_total", "Handlers past time-out and grace.", "destination"
        )
        self._store_lost = _Counter(
            "redrive_store_lost_total", "Times the store stopped answering."
        )
        self._listening_lost = _Counter(
            "redrive_listening_lost_total", "Times the connection that hears of work was lost."
        )
        self._breakers = _Counter(
            "redrive_breaker_changes_total",
            "Breakers that went into a state.",
            "destination",
            "state",
        )
        self._checks = _Counter(
            "redrive_health_checks_total",
            "Health checks of destinations, by what came of them.",
            "destination",
            "result",
        )
        self._pauses = _Counter(
            "redrive_auto_pauses_total", "Destinations the engine itself paused.", "destination"
        )
        self._replays = _Counter(
            "redrive_replays_total", "Replays of many that reached a state.", "state"
        )
        self._replayed = _Counter(
            "redrive_replays_sent_total", "Dead letters that replays of many sent again."
        )
        self._ticks = _Counter("redrive_ticks_published_total", "Ticks of schedules published.")
        self._ticks_left_out = _Counter(
            "redrive_ticks_left_out_total", "Ticks of schedules that were missed or overlapped."
        )
        self._skipped = _Counter(
            "redrive_events_skipped_total",
            "Events that a rule passed by because its condition failed.",
            "rule",
        )
        self._schedules_failed = _Counter(
            "redrive_schedule_failures_total", "Times the event of a tick could not be made."
        )
        self._projections_failed = _Counter(
            "redrive_projection_failures_total",
            "Times a projection could not go on, and not because of one event.",
            "destination",
        )
        self._operations = _Counter("redrive_operations_total", "Acts of people.", "action")
        self._pruned = _Counter(
            "redrive_pruned_total", "What was kept long enough and removed.", "what"
        )
        self._exported = _Counter(
            "redrive_dead_letters_exported_total",
            "Dead letters over a limit, moved to a file.",
            "destination",
        )
        self._export_failed = _Counter(
            "redrive_export_failures_total",
            "Times dead letters over a limit could not be exported.",
            "destination",
        )

    def notice(self, fact: Fact) -> None:
        with self._lock:
            self._count(fact)

    def collect(self) -> Iterable[Metric]:
        """Return the series as they are now, as a `CollectorRegistry` asks for them."""
        with self._lock:
            counted = [
                value.family()
                for value in vars(self).values()
                if isinstance(value, _Counter | _Histogram)
            ]
        return [*counted, *self._tracked(), _build_info()]

    def _tracked(self) -> Iterable[Metric]:
        figures = None if self._tracking is None else self._tracking()
        if figures is not None:
            yield from tracking_series(figures)
        if self._journal is not None:
            yield from journal_series(self._journal())

    def render(
        self,
        figures: Figures | None = None,
        gates: Sequence[GateFigures] = (),
        projections: Sequence[ProjectionFigures] = (),
    ) -> bytes:
        """Return the series in Prometheus' text format, those of the store's figures included.

        Without figures, `redrive_store_up` says that the store gave none.
        """
        with self._lock:
            folded = () if figures is None else self._fold(figures)
            tenants = self._fold_tenants(figures)
            states = [(self._destinations.name(one.destination), one) for one in gates]
            read = [
                (self._destinations.name(one.checkpoint.projection), one) for one in projections
            ]
        series = [
            *self.collect(),
            *gauges(figures, folded, tenants),
            *breaker_gauges(states),
            *projection_gauges(read),
        ]
        return generate_latest(_Scrape(series))

    def _count(self, fact: Fact) -> None:  # noqa: C901, PLR0912, PLR0915 - one branch per fact
        match fact:
            case Settlements():
                self._count_settlements(fact)
            case Claimed(deliveries=deliveries):
                for one in deliveries:
                    self._claimed.add(self._destinations.name(one.destination))
            case Published(events=events):
                for _, receipt in events:
                    if receipt.is_duplicate:
                        self._duplicates.add()
                    else:
                        self._published.add()
                        self._unrouted.add(by=not receipt.is_routed)
            case Written(events=events):
                self._written.add(by=sum(not receipt.is_duplicate for _, receipt in events))
            case DeadLettered(destination=destination, reason=reason):
                self._dead_letters.add(self._destinations.name(destination), str(reason))
            case Rescued(overdue=overdue, recovery=recovery):
                self._rescues.add(self._destinations.name(overdue.destination), _verdict(recovery))
            case BreakerChanged(change=change):
                name = self._destinations.name(change.destination)
                self._breakers.add(name, _STATES[type(change.after)])
            case DestinationPaused(destination=destination):
                self._pauses.add(self._destinations.name(destination))
            case HealthChecked(destination=destination, error=error):
                result = "unhealthy" if error else "healthy"
                self._checks.add(self._destinations.name(destination), result)
            case ReplayStarted():
                self._replays.add("started")
            case WaveSent(deliveries=deliveries):
                self._replayed.add(by=len(deliveries))
            case ReplayStopped() | ReplayEnded():
                self._replays.add(str(fact.replay.state))
            case TicksPublished(ticks=ticks):
                self._ticks.add(by=len(ticks))
            case TicksLeftOut(count=count):
                self._ticks_left_out.add(by=count)
            case EventSkipped(rule=rule):
                self._skipped.add(self._rules.name(split_pin(rule)[0]))
            case ScheduleFailed():
                self._schedules_failed.add()
            case ProjectionFailed(projection=name):
                self._projections_failed.add(self._destinations.name(name))
            case HandlerStuck(destination=destination):
                self._stuck.add(self._destinations.name(destination))
            case SettlementsRefused(leases=leases):
                self._refused.add(by=len(leases))
            case AlreadyApplied(leased=leased):
                self._repeats.add(self._destinations.name(leased.destination))
            case LeasesLost(leases=leases):
                self._leases_lost.add(by=len(leases))
            case Operated(action=action):
                self._operations.add(self._actions.name(action))
            case StoreLost():
                self._store_lost.add()
            case ListeningLost():
                self._listening_lost.add()
            case WorkerStarted(destinations=destinations):
                self._begin(destinations)
            case HistoryPruned(pruned=pruned):
                for what in pruned.__struct_fields__:
                    self._pruned.add(what, by=getattr(pruned, what))
            case LettersExported(destination=destination, count=count):
                self._exported.add(self._destinations.name(destination), by=count)
            case ExportFailed(destination=destination):
                self._export_failed.add(self._destinations.name(destination))
            case LettersNearLimit() | WorkStranded() | DestinationOrphaned():
                pass  # the store's figures tell it for as long as it lasts
            case WorkerStopping() | WorkerStopped() | WorkerWedged():
                pass
            case EventsCompleted() | LettersRegrouped() | EncryptionStuck():
                pass
            case StoreBack() | ListeningBack():
                pass
            case (
                DeclarationChanged()
                | DeclarationsDiffer()
                | DeclarationsAgree()
                | ServiceUnserved()
            ):
                pass  # the audit log, the log and the status tell it
            case never:
                assert_never(never)

    def _count_settlements(self, fact: Settlements) -> None:
        name = self._destinations.name
        times = fact.took or repeat(None)
        for (leased, settlement), took in zip(fact.settled, times, strict=False):
            label, kind = name(leased.destination), type(settlement)
            self._attempts.add(label, _RESULTS[kind])
            if took is not None:
                self._seconds.observe(label, took)
                if kind is Delivered:
                    self._latency.observe(label, _waited(leased) + took)
                elif isinstance(settlement, RetryAt):
                    delay = (settlement.when - leased.claimed_at).total_seconds() - took
                    self._delays.observe(label, max(0.0, delay))
            if kind is Delivered and leased.attempt > 1:
                self._recovered.add(label)

    def _begin(self, destinations: Iterable[str]) -> None:
        """Begin series at 0: Prometheus cannot see the first step of one that begins at 1."""
        for destination in destinations:
            name = self._destinations.name(destination)
            self._claimed.add(name, by=0)
            for result in _RESULTS.values():
                self._attempts.add(name, result, by=0)

    def _fold_tenants(self, figures: Figures | None) -> dict[str, int]:
        """Return dead letters by tenant; of the tenants, those that were seen first have a name."""
        counts: dict[str, int] = {}
        for tenant, count in () if figures is None else figures.letters.by_tenant:
            name = self._tenants.name(tenant)
            counts[name] = counts.get(name, 0) + count
        return counts

    def _fold(self, figures: Figures) -> list[tuple[str, DestinationFigures]]:
        return [(self._destinations.name(one.name), one) for one in figures.destinations]


class _Bounded:
    """Lets the first so many names through, and folds all others into one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[str, str] = {}

    def name(self, name: str) -> str:
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= self._limit:
                return OTHER
            known = self._known[name] = name
        return known


class _Counter:
    def __init__(self, name: str, meaning: str, *labels: str) -> None:
        self._name = name
        self._meaning = meaning
        self._labels = labels
        self._values: dict[tuple[str, ...], int] = {} if labels else {(): 0}

    def add(self, *labels: str, by: int = 1) -> None:
        self._values[labels] = self._values.get(labels, 0) + by

    def family(self) -> Metric:
        family = CounterMetricFamily(self._name, self._meaning, labels=self._labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return family


class _Histogram:
    def __init__(self, name: str, meaning: str, label: str, buckets: Sequence[float]) -> None:
        self._name = name
        self._meaning = meaning
        self._label = label
        self._buckets = buckets
        self._bucket_names = (*map(str, buckets), "+Inf")
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, label: str, value: float) -> None:
        counts = self._counts.get(label)
        if counts is None:
            counts = self._counts[label] = [0] * len(self._bucket_names)
            self._sums[label] = 0.0
        counts[bisect_left(self._buckets, value)] += 1
        self._sums[label] += value

    def family(self) -> Metric:
        family = HistogramMetricFamily(self._name, self._meaning, labels=[self._label])
        for label, counts in self._counts.items():
            buckets = list(zip(self._bucket_names, accumulate(counts), strict=True))
            family.add_metric([label], buckets, self._sums[label])
        return family


class _Scrape:
    """Families that were collected already, as a registry hands them out."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _waited(leased: Leased) -> float:
    """Return for how many seconds a delivery had been enqueued, or due, when it was claimed."""
    since, due = leased.enqueued_at, leased.event.due
    if due is not None and due > since:
        since = due
    waited = (leased.claimed_at - since).total_seconds()
    return waited if waited > 0 else 0.0


@cache
def _build_info() -> Metric:
    family = GaugeMetricFamily(
        "redrive_build_info",
        "Always 1; its labels tell the versions of Redrive and of Python.",
        labels=["version", "python"],
    )
    family.add_metric([version("redrive"), platform.python_version()], 1)
    return family


def _verdict(recovery: Recovery) -> str:
    match recovery:
        case Requeued():
            return "requeued"
        case Failed():
            return "failed"
        case never:
            assert_never(never)
