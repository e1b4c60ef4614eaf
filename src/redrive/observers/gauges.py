"""Gauges: the store's figures, as Prometheus collects them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from redrive.model.gate import BreakerState, Closed, GateFigures, HalfOpen, Open
from redrive.policies.attention import is_read, orphans, stranded
from redrive.store import DestinationFigures, Figures, ProjectionFigures

__all__ = ["OTHER", "breaker_gauges", "gauges", "projection_gauges"]

OTHER = "(other)"
"""The label of all destinations, and of all tenants, beyond the limit."""

_MOST_TYPES = 20
"""How many types of events a projection's lag is told of, one by one."""
_DEGREES: dict[type[BreakerState], int] = {Closed: 0, HalfOpen: 1, Open: 2}


def gauges(
    figures: Figures | None,
    folded: Sequence[tuple[str, DestinationFigures]],
    tenants: Mapping[str, int],
) -> Iterator[Metric]:
    """Yield the series that tell of the whole store; each destination comes with its label.

    `tenants` are the dead letters of each label of tenants.
    """
    up = "Whether the store gave its figures for this scrape."
    yield GaugeMetricFamily("redrive_store_up", up, value=figures is not None)
    if figures is None:
        return
    counts: dict[tuple[str, ...], float] = {}
    ages: dict[tuple[str, ...], float] = {}
    in_flight = 0
    for name, one in folded:
        for status in ("pending", "in_flight", "delivered", "failed", "resolved"):
            counts[name, status] = counts.get((name, status), 0) + getattr(one, status)
        age = 0.0 if one.oldest_due is None else (figures.now - one.oldest_due).total_seconds()
        ages[name,] = max(ages.get((name,), 0.0), age)
        in_flight += one.in_flight
    yield _gauge(
        "redrive_deliveries", "Deliveries in the store.", ("destination", "status"), counts
    )
    yield _gauge(
        "redrive_oldest_due_seconds",
        "For how long the oldest delivery that could run has been due.",
        ("destination",),
        ages,
    )
    yield GaugeMetricFamily(
        "redrive_workers", "Workers the store has heard of.", value=len(figures.workers)
    )
    yield GaugeMetricFamily("redrive_in_flight", "Deliveries under way.", value=in_flight)
    yield from _letter_gauges(figures, tenants)
    yield from _neglect_gauges(figures, {one.name: name for name, one in folded})


def _letter_gauges(figures: Figures, tenants: Mapping[str, int]) -> Iterator[Metric]:
    letters = figures.letters
    age = 0.0 if letters.oldest is None else (figures.now - letters.oldest).total_seconds()
    yield GaugeMetricFamily(
        "redrive_oldest_dead_letter_seconds", "How old the oldest dead letter is.", value=age
    )
    yield GaugeMetricFamily(
        "redrive_dead_letters_per_minute",
        "Dead letters that joined per minute, over the last minutes.",
        value=letters.per_minute,
    )
    yield _gauge(
        "redrive_dead_letters_by_reason",
        "Dead letters in the store, by reason.",
        ("reason",),
        {(str(reason),): count for reason, count in letters.by_reason},
    )
    yield _gauge(
        "redrive_dead_letters_by_tenant",
        "Dead letters in the store, of the tenants with the most.",
        ("tenant",),
        {(tenant,): count for tenant, count in tenants.items()},
    )


def _neglect_gauges(figures: Figures, names: Mapping[str, str]) -> Iterator[Metric]:
    counts: dict[tuple[str, ...], float] = {(name,): 0.0 for name in names.values()}
    neglected = stranded(figures.due, figures.workers, now=figures.now)
    for one in neglected:
        name = names.get(one.destination, OTHER)
        counts[name,] = counts.get((name,), 0.0) + one.count
    yield _gauge(
        "redrive_stranded_deliveries",
        "Deliveries that are due and that no live worker claims.",
        ("destination",),
        counts,
    )
    yield GaugeMetricFamily(
        "redrive_orphaned_destinations",
        "Destinations with waiting deliveries that no live worker serves.",
        value=len(orphans(figures)),
    )
    yield GaugeMetricFamily(
        "redrive_unrouted_events", "Events in the log nobody was given.", value=figures.unrouted
    )


def breaker_gauges(gates: Iterable[tuple[str, GateFigures]]) -> Iterator[Metric]:
    """Show each breaker as one number: a label for the state would leave old series behind."""
    values: dict[tuple[str, ...], float] = {}
    for name, one in gates:
        values[name,] = max(values.get((name,), 0), _DEGREES[type(one.gate.breaker)])
    if values:
        yield _gauge(
            "redrive_breaker_state",
            "0 while a breaker is closed, 1 half-open, 2 open.",
            ("destination",),
            values,
        )


def projection_gauges(
    projections: Iterable[tuple[str, ProjectionFigures]],
) -> Iterator[Metric]:
    """Show how far each projection is behind the log, and what is parked of it."""
    events: dict[tuple[str, ...], float] = {}
    seconds: dict[tuple[str, ...], float] = {}
    parked: dict[tuple[str, ...], float] = {}
    applied: dict[tuple[str, ...], float] = {}
    read: dict[tuple[str, ...], float] = {}
    by_type: dict[tuple[str, ...], float] = {}
    parts: dict[tuple[str, ...], tuple[float, float]] = {}
    for name, one in projections:
        for part in one.parts:
            place = name, str(part.checkpoint.partition)
            before = parts.get(place, (0.0, 0.0))
            late = part.behind_for.total_seconds()
            parts[place] = before[0] + part.events_behind, max(before[1], late)
        for kind, count in _most_behind(one):
            by_type[name, kind] = by_type.get((name, kind), 0) + count
        applied[name,] = applied.get((name,), 0) + one.checkpoint.count
        read[name,] = min(read.get((name,), 1.0), float(is_read(one)))
        events[name,] = events.get((name,), 0) + one.events_behind
        seconds[name,] = max(seconds.get((name,), 0.0), one.behind_for.total_seconds())
        parked[name,] = parked.get((name,), 0) + one.parked_keys
    if events:
        label = ("destination",)
        yield _gauge("redrive_projection_lag", "Events still to be read.", label, events)
        yield _gauge(
            "redrive_projection_lag_seconds",
            "For how long the first event still to be read has waited.",
            label,
            seconds,
        )
        yield _gauge(
            "redrive_projection_parked_keys", "Keys that wait behind a failure.", label, parked
        )
        yield _gauge(
            "redrive_projection_lag_by_type",
            "Events still to be read, of the types with the most.",
            ("destination", "event_type"),
            by_type,
        )
        yield _gauge(
            "redrive_projection_applied_events",
            "Events applied straight from the log since it began.",
            label,
            applied,
        )
        yield _gauge(
            "redrive_projection_is_read", "1 while a live worker reads for it.", label, read
        )
    if parts:
        of_part = ("destination", "partition")
        yield _gauge(
            "redrive_projection_partition_lag",
            "Events still to be read, of a projection with several partitions.",
            of_part,
            {place: events for place, (events, _) in parts.items()},
        )
        yield _gauge(
            "redrive_projection_partition_lag_seconds",
            "For how long the first event still to be read of a partition has waited.",
            of_part,
            {place: late for place, (_, late) in parts.items()},
        )


def _most_behind(one: ProjectionFigures) -> Iterator[tuple[str, int]]:
    """Return the lag by type: of the types with the most, and of all others together."""
    ordered = sorted(one.lag.items(), key=lambda pair: (-pair[1], pair[0]))
    yield from ordered[:_MOST_TYPES]
    if rest := sum(count for _, count in ordered[_MOST_TYPES:]):
        yield OTHER, rest


def _gauge(
    name: str, meaning: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for given, value in values.items():
        family.add_metric(given, value)
    return family
