"""The report: a table for people, and JSON for whoever compares runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.campaign import Plan, Results
from benchmarks.contender import Contender, Role, Workload

__all__ = ["print_report", "write_json"]


def print_report(results: Results, machine: Mapping[str, str], console: Console) -> None:
    """Print the settings and one table per store."""
    facts = Table.grid(padding=(0, 2))
    facts.add_row("machine", ", ".join(f"{name} {value}" for name, value in machine.items()))
    for module, settings in results.settings.items():
        said = ", ".join(f"{name} {value}" for name, value in settings.items())
        facts.add_row(results.contenders[module].name, said)
    console.print(facts)
    for store in sorted({one.store for one in results.contenders.values()}):
        console.print(_table(results, store))
    console.print(
        "the best run of each; synchronous 2 is FULL: every commit is on disk, for everyone"
    )
    for name, why in results.left_out.items():
        console.print(f"left out: {name} ({why})")


def write_json(results: Results, machine: Mapping[str, str], plan: Plan, folder: Path) -> Path:
    """Write every run and the ratios, and return where."""
    now = datetime.now(UTC)
    document = {
        "at": now.isoformat(timespec="seconds"),
        "machine": dict(machine),
        "rounds": plan.rounds,
        "settings": {
            results.contenders[module].name: dict(one) for module, one in results.settings.items()
        },
        "left_out": results.left_out,
        "runs": [
            {
                "contender": results.contenders[module].name,
                "store": results.contenders[module].store,
                "workload": workload,
                "per_second": [round(run.per_second, 1) for run in runs],
                "runs": [asdict(run) for run in runs],
            }
            for (module, workload), runs in results.runs.items()
        ],
        "ratios": [
            {"workload": workload, "of": of, "to": to, "ratio": round(ratio, 3)}
            for workload, of, to, ratio in _ratios(results)
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path


def _table(results: Results, store: str) -> Table:
    shown = {
        module: one
        for role in (Role.LIMIT, Role.ENGINE, Role.PEER)
        for module, one in results.contenders.items()
        if one.store == store and one.role is role
    }
    table = Table(title=f"on {store}", title_justify="left", header_style="bold")
    table.add_column("per second", no_wrap=True)
    for one in shown.values():
        table.add_column(one.name, justify="right")
    pairs = _pairs(shown)
    for _, other in pairs:
        table.add_column(_ratio_heading(shown[other]), justify="right")
    for workload in Workload:
        cells = [_throughput(results, module, workload) for module in shown]
        cells += [_spell_ratio(results, engine, other, workload) for engine, other in pairs]
        table.add_row(workload, *cells)
    return table


def _pairs(contenders: Mapping[str, Contender]) -> list[tuple[str, str]]:
    """Return each engine with each other contender of its store."""
    return [
        (engine, other)
        for engine, one in contenders.items()
        for other, another in contenders.items()
        if one.role is Role.ENGINE and another.role is not Role.ENGINE
        if one.store == another.store
    ]


def _ratio_heading(other: Contender) -> str:
    if other.role is Role.LIMIT:
        return f"of {other.name}"
    return f"x {other.name}"


def _throughput(results: Results, module: str, workload: Workload) -> str:
    best = results.best(module, workload)
    return f"{best.per_second:,.0f}" if best else "-"


def _spell_ratio(results: Results, engine: str, other: str, workload: Workload) -> str:
    ratio = _ratio(results, engine, other, workload)
    if ratio is None:
        return "-"
    return f"{ratio:.0%}" if results.contenders[other].role is Role.LIMIT else f"{ratio:.1f}x"


def _ratio(results: Results, engine: str, other: str, workload: Workload) -> float | None:
    ours, theirs = results.best(engine, workload), results.best(other, workload)
    return ours.per_second / theirs.per_second if ours and theirs else None


def _ratios(results: Results) -> list[tuple[Workload, str, str, float]]:
    named = results.contenders
    return [
        (workload, named[engine].name, named[other].name, ratio)
        for workload in Workload
        for engine, other in _pairs(named)
        if (ratio := _ratio(results, engine, other, workload)) is not None
    ]
