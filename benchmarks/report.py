"""The report in the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from benchmarks.contender import Arena, Contender
from benchmarks.results import Results
from benchmarks.study import Study
from benchmarks.tables import Grid, arena_grid, settings_grid, study_grids, targets_grid
from benchmarks.targets import Word, judge

__all__ = ["print_report"]

_COLOURS = {Word.MET: "green", Word.MISSED: "red", Word.UNKNOWN: "dim"}


def print_report(
    results: Results,
    contenders: Mapping[str, Contender],
    studies: Mapping[str, Study],
    console: Console,
) -> None:
    """Print settings, tables, and last how those targets came out that were measured."""
    _print(settings_grid(results, contenders), console, is_text=True)
    for arena in Arena:
        _print(arena_grid(results, contenders, arena), console)
    for grid in study_grids(results, studies):
        _print(grid, console)
    console.print(
        "The best run of each; of studies, the median of the rounds. In parentheses: ours as a "
        "multiple of theirs."
    )
    for name, why in results.left_out.items():
        console.print(f"left out: {name} ({why})", markup=False)
    console.print()
    verdicts = judge(results)
    measured = [one for one in verdicts if one.word is not Word.UNKNOWN]
    _print(targets_grid(measured), console, is_text=True)
    if len(measured) < len(verdicts):
        console.print(f"{len(verdicts) - len(measured)} more targets were not measured.")


def _print(grid: Grid, console: Console, *, is_text: bool = False) -> None:
    if not grid.rows:
        return
    table = Table(title=grid.title, title_justify="left", header_style="bold")
    for number, name in enumerate(grid.head):
        table.add_column(name, justify="right" if number and not is_text else "left")
    for row in grid.rows:
        colour = _COLOURS.get(Word(row[-1])) if row[-1] in set(Word) else None
        cells = [*row[:-1], f"[{colour}]{row[-1]}[/]"] if colour else row
        table.add_row(*cells)
    console.print(table)
