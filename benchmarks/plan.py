"""How large everything is, and how often it is done."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.contender import Workload
from benchmarks.study import Scale

__all__ = ["FULL", "PLANS", "QUICK", "Plan"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How large each workload is, and how often it is run; the best run counts.

    A run may take as many seconds as there is `patience`, and nothing is begun after the `longest`
    that preparing and measuring may take together.
    """

    name: str
    rounds: int
    sizes: Mapping[Workload, int]
    scale: Scale
    patience: float
    longest: float = math.inf
    is_quick: bool = False


FULL = Plan(
    name="full",
    rounds=3,
    sizes={
        Workload.SINGLE: 5_000,
        Workload.CONCURRENT: 50_000,
        Workload.BULK: 100_000,
        Workload.DRAIN: 50_000,
        Workload.DRAIN_BY_TWO: 50_000,
        Workload.LATENCY: 1_200,
        Workload.LATENCY_AT_HALF: 800,
        Workload.SEND: 20_000,
        Workload.CALL: 20_000,
        Workload.TRACK: 40_000,
        Workload.APPEND: 40_000,
        Workload.PROJECT: 40_000,
        Workload.PROJECT_LISTS: 40_000,
    },
    scale=Scale(rounds=5, large=1_000_000, sample=40_000, seconds=30.0),
    patience=3600.0,
)
QUICK = Plan(
    name="quick",
    rounds=3,
    sizes={
        Workload.SINGLE: 1_000,
        Workload.CONCURRENT: 10_000,
        Workload.BULK: 20_000,
        Workload.DRAIN: 10_000,
        Workload.LATENCY: 600,
        Workload.SEND: 5_000,
        Workload.CALL: 5_000,
        Workload.TRACK: 10_000,
        Workload.APPEND: 10_000,
        Workload.PROJECT: 10_000,
        Workload.PROJECT_LISTS: 10_000,
    },
    scale=Scale(rounds=5, large=100_000, sample=8_000, seconds=10.0),
    patience=120.0,
    longest=480.0,
    is_quick=True,
)
PLANS = {plan.name: plan for plan in (FULL, QUICK)}
