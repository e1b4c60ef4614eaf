"""The report: a table for each arena, for the terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.contender import Arena, Contender, Role, Workload
from benchmarks.figures import FIGURES
from benchmarks.results import Results

__all__ = ["Grid", "arena_grid", "print_report"]

_SHOWN = {
    Workload.LATENCY: ("p50_ms", "p99_ms"),
    Workload.LATENCY_AT_HALF: ("p50_ms", "p99_ms", "offered"),
    Workload.CALL: ("us",),
}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: a title, a head and rows, all as text."""

    title: str
    head: list[str]
    rows: list[list[str]]


def print_report(results: Results, contenders: Mapping[str, Contender], console: Console) -> None:
    """Print the settings and a table for each arena."""
    facts = Table.grid(padding=(0, 2))
    facts.add_row("machine", _spell(results.machine))
    for module, settings in results.settings.items():
        facts.add_row(f"{contenders[module].name} ({contenders[module].arena})", _spell(settings))
    console.print(facts)
    for arena in Arena:
        grid = arena_grid(results, contenders, arena)
        if grid.rows:
            console.print(_table(grid))
    for name, why in results.left_out.items():
        console.print(f"left out: {name} ({why})")


def arena_grid(results: Results, contenders: Mapping[str, Contender], arena: Arena) -> Grid:
    """Return who did how much in an arena, the limit first, and how we compare."""
    shown = {
        module: one
        for role in (Role.LIMIT, Role.ENGINE, Role.PEER)
        for module, one in contenders.items()
        if one.arena is arena and one.role is role and module in results.settings
    }
    others = [module for module, one in shown.items() if one.role is not Role.ENGINE]
    engine = next((module for module, one in shown.items() if one.role is Role.ENGINE), None)
    rows = []
    for workload in Workload:
        for figure in _SHOWN.get(workload, ("per_second",)):
            values = {
                module: results.best(arena, workload.name.lower(), module, figure)
                for module in shown
            }
            if not any(value is not None for value in values.values()):
                continue
            ours = values.get(engine or "")
            ratios = [_ratio(ours, values[module], shown[module].role) for module in others]
            cells = [_value(figure, value) for value in values.values()]
            rows.append([f"{workload} ({FIGURES[figure].unit})", *cells, *ratios])
    return Grid(
        title=arena,
        head=["", *(one.name for one in shown.values()), *(_heading(shown[one]) for one in others)],
        rows=rows,
    )


def _table(grid: Grid) -> Table:
    table = Table(title=f"on {grid.title}", title_justify="left", header_style="bold")
    for number, name in enumerate(grid.head):
        table.add_column(name, justify="right" if number else "left")
    for row in grid.rows:
        table.add_row(*row)
    return table


def _heading(other: Contender) -> str:
    return f"of {other.name}" if other.role is Role.LIMIT else f"x {other.name}"


def _value(figure: str, value: float | None) -> str:
    return "-" if value is None else FIGURES[figure].spell(value)


def _ratio(ours: float | None, theirs: float | None, role: Role) -> str:
    if ours is None or not theirs:
        return "-"
    return f"{ours / theirs:.0%}" if role is Role.LIMIT else f"{ours / theirs:.2f}"


def _spell(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
