"""The figures a run can have: their units, and which way is better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

__all__ = ["FIGURES", "Figure", "best", "percentile"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What a figure means to a reader."""

    unit: str
    is_better_when_higher: bool
    digits: int = 0

    def spell(self, value: float) -> str:
        """Return the value as the report prints it, without its unit."""
        return f"{value:,.{self.digits}f}"


FIGURES = {
    "per_second": Figure(unit="per second", is_better_when_higher=True),
    "p50_ms": Figure(unit="ms p50", is_better_when_higher=False, digits=1),
    "p95_ms": Figure(unit="ms p95", is_better_when_higher=False, digits=1),
    "p99_ms": Figure(unit="ms p99", is_better_when_higher=False, digits=1),
    "recovery_s": Figure(unit="s until it is back", is_better_when_higher=False, digits=1),
    "offered": Figure(unit="per second offered", is_better_when_higher=True),
    "us": Figure(unit="µs a call", is_better_when_higher=False, digits=2),
    "cpu_us": Figure(unit="µs of a processor a request", is_better_when_higher=False),
    "at_each": Figure(unit="per second due at each", is_better_when_higher=True),
    "at_few": Figure(unit="per second due at one in a hundred", is_better_when_higher=True),
    "to_all": Figure(unit="per second of events to all", is_better_when_higher=True),
    "published": Figure(unit="published per second", is_better_when_higher=True),
    "claim_ms": Figure(unit="ms a claim of 100", is_better_when_higher=False, digits=2),
    "ready_ms": Figure(unit="ms until the first delivery", is_better_when_higher=False),
    "change_ms": Figure(
        unit="ms of processor time a change", is_better_when_higher=False, digits=1
    ),
    "mb": Figure(unit="MB", is_better_when_higher=False, digits=1),
    "kb_each": Figure(unit="KB for each in flight", is_better_when_higher=False, digits=1),
    "cpu_percent": Figure(unit="% of a core", is_better_when_higher=False, digits=2),
    "bytes_each": Figure(unit="bytes kept for each", is_better_when_higher=False),
    "log_bytes_each": Figure(unit="of them in the log of events", is_better_when_higher=False),
    "written_each": Figure(unit="bytes written for each", is_better_when_higher=False),
    "queries_per_second": Figure(unit="queries per second", is_better_when_higher=False, digits=2),
}


def best(name: str, values: Iterable[float]) -> float:
    """Return the best of several runs."""
    return max(values) if FIGURES[name].is_better_when_higher else min(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that so large a share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(len(ordered) * share) - 1)]
