"""Series of what was tracked in this process, and of the journal on its machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from redrive.journal.folder import FileState, JournalSize
from redrive.model.tracked import SHARES, TrackingFigures

__all__ = ["journal_series", "tracking_series"]


def tracking_series(figures: TrackingFigures) -> Iterator[Metric]:
    """Yield what became of all that was tracked; the sum adds up as that of the figures does."""
    dropped = figures.dropped
    yield _counter("redrive_tracked_total", "Events tracked.", figures.tracked)
    yield _counter(
        "redrive_tracked_ends_total",
        "Tracked events that arrived everywhere, or went on by the store or the journal.",
        {"sent": figures.sent, "stored": figures.stored, "spilled": figures.spilled},
        "end",
    )
    yield _counter(
        "redrive_tracked_dropped_total", "Tracked events dropped, by reason.", dropped, "reason"
    )
    yield _counter(
        "redrive_tracked_filtered_total",
        "Tracked events that the filter did not keep.",
        sum(dropped.get(one, 0) for one in ("filtered", "rate_limited", "over_retry_rate")),
    )
    kept_out = figures.limited + dropped.get("sampled", 0)
    yield _counter(
        "redrive_tracked_limits_total",
        "Tracked events that the limit let pass, or not.",
        {"allowed": figures.tracked - kept_out, "limited": figures.limited},
        "verdict",
    )
    yield GaugeMetricFamily(
        "redrive_tracked_waiting", "Tracked events that have no end yet.", value=figures.waiting
    )
    yield _parts(figures)
    yield _shares(figures)
    yield _counter(
        "redrive_journal_drained_total",
        "Records of the journal that this process gave to the store.",
        figures.drained,
    )


def journal_series(sizes: Mapping[FileState, JournalSize]) -> Iterator[Metric]:
    """Yield how much there is in the journal's folder; every process that uses it says the same."""
    files = GaugeMetricFamily(
        "redrive_journal_files", "Files of this machine's journal.", labels=["state"]
    )
    size = GaugeMetricFamily(
        "redrive_journal_bytes", "Bytes in this machine's journal.", labels=["state"]
    )
    for state, one in sizes.items():
        label = state.replace(" ", "_")
        files.add_metric([label], one.files)
        size.add_metric([label], one.bytes)
    yield files
    yield size


def _parts(figures: TrackingFigures) -> Metric:
    family = CounterMetricFamily(
        "redrive_tracked_parts_total",
        "What became of tracked events at each destination.",
        labels=["destination", "result"],
    )
    for name, one in figures.destinations.items():
        for result in ("arrived", "failed", "held", "dropped"):
            family.add_metric([name, result], getattr(one, result))
    return family


def _shares(figures: TrackingFigures) -> Metric:
    names = [f"{bound:g}" for bound in SHARES]
    counts = list(accumulate(figures.shares.get(name, 0) for name in names))
    family = HistogramMetricFamily(
        "redrive_tracked_fan_out_share",
        "Which share of the destinations of a tracked event it reached by itself.",
    )
    buckets = [*zip(names, counts, strict=True), ("+Inf", counts[-1])]
    family.add_metric([], buckets, figures.share_sum)
    return family


def _counter(name: str, meaning: str, value: int | Mapping[str, int], label: str = "") -> Metric:
    if isinstance(value, int):
        return CounterMetricFamily(name, meaning, value=value)
    family = CounterMetricFamily(name, meaning, labels=[label])
    for one, count in value.items():
        family.add_metric([one], count)
    return family
