"""A campaign: every contender at every workload, round after round."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.contender import Contender, Run, Workload, find_contenders
from benchmarks.environment import ROOT, PeerUnavailableError, interpreter_for

__all__ = ["FULL", "QUICK", "Plan", "Results", "run_campaign"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How large each workload is, and how often it is run; the best run counts."""

    rounds: int
    sizes: Mapping[Workload, int]


FULL = Plan(
    rounds=3,
    sizes={
        Workload.SINGLE: 5_000,
        Workload.CONCURRENT: 50_000,
        Workload.BULK: 100_000,
        Workload.DRAIN: 50_000,
    },
)
QUICK = Plan(
    rounds=1,
    sizes={
        Workload.SINGLE: 1_000,
        Workload.CONCURRENT: 10_000,
        Workload.BULK: 20_000,
        Workload.DRAIN: 10_000,
    },
)


@dataclass(kw_only=True)
class Results:
    """Every run of every contender, by the name of its module."""

    contenders: dict[str, Contender] = field(default_factory=dict)
    settings: dict[str, Mapping[str, str]] = field(default_factory=dict)
    runs: dict[tuple[str, Workload], list[Run]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def best(self, module: str, workload: Workload) -> Run | None:
        """Return the fastest run, or nothing if the contender does not know the workload."""
        runs = self.runs.get((module, workload))
        return max(runs, key=lambda run: run.per_second) if runs else None


def run_campaign(plan: Plan, folder: Path, progress: Console) -> Results:
    """Measure everything; contenders take turns, so that a slow minute of the machine hits all."""
    results = Results()
    pythons: dict[str, str] = {}
    for module, contender in find_contenders().items():
        with progress.status(f"preparing {contender.name}"):
            try:
                pythons[module] = interpreter_for(contender)
            except PeerUnavailableError as error:
                results.left_out[contender.name] = str(error)
                continue
            results.contenders[module] = contender
            results.settings[module] = json.loads(_ask(pythons[module], module, folder))
    modules = list(results.contenders)
    for number in range(plan.rounds):
        # Who begins changes, so that nobody always comes after the same one.
        first = number % len(modules)
        for workload, size in plan.sizes.items():
            for module in modules[first:] + modules[:first]:
                contender = results.contenders[module]
                if workload not in contender.workloads:
                    continue
                title = f"round {number + 1} of {plan.rounds}  {workload:24}{contender.name:12}"
                with progress.status(title):
                    answer = _ask(pythons[module], module, folder, workload, str(size))
                run = Run(**json.loads(answer))
                results.runs.setdefault((module, workload), []).append(run)
                progress.print(f"{title}{run.per_second:12,.0f}/s  {run.way}", soft_wrap=True)
    return results


def _ask(python: str, module: str, folder: Path, *arguments: str) -> str:
    with TemporaryDirectory(prefix="bench-", dir=folder) as own:
        done = subprocess.run(
            [python, "-m", "benchmarks.child", module, own, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return done.stdout
