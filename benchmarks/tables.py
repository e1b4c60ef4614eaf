"""Tables of what was measured, as text in cells; where they are shown is another matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.contender import Arena, Contender, Role, Workload
from benchmarks.figures import FIGURES
from benchmarks.results import Results
from benchmarks.study import Study, engine_of
from benchmarks.targets import Verdict

__all__ = [
    "TITLES",
    "Grid",
    "arena_grid",
    "settings_grid",
    "shown_figures",
    "shown_in",
    "study_grids",
    "targets_grid",
]

TITLES = {
    Arena.POSTGRES: "On PostgreSQL",
    Arena.SQLITE: "On SQLite",
    Arena.REDIS: "On Redis",
    Arena.HTTP: "HTTP deliveries",
    Arena.CALLS: "Around a call",
    Arena.TRACKING: "Tracking",
}
_FIGURES = {
    Workload.LATENCY: ("p50_ms", "p99_ms"),
    Workload.LATENCY_AT_HALF: ("p50_ms", "p99_ms", "offered"),
    Workload.CALL: ("us",),
    Workload.TRACK: ("us",),
}
_ORDER = (Role.ENGINE, Role.PEER, Role.LIMIT)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A title, a head and rows; the first column is what the others are about."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def shown_figures(workload: Workload) -> tuple[str, ...]:
    """Return the figures of a workload that the report shows."""
    return _FIGURES.get(workload, ("per_second",))


def shown_in(
    arena: Arena, results: Results, contenders: Mapping[str, Contender]
) -> dict[str, Contender]:
    """Return who was measured in an arena: we, the peers, the limit."""
    measured = {part.contender for part in results.runs if part.section == arena}
    return {
        module: one
        for role in _ORDER
        for module, one in contenders.items()
        if one.arena is arena and one.role is role and module in measured
    }


def arena_grid(results: Results, contenders: Mapping[str, Contender], arena: Arena) -> Grid:
    """Return a row for each figure and a column for everyone.

    In parentheses stands ours as a multiple of theirs: of throughput the more the better, of time
    the less.
    """
    shown = shown_in(arena, results, contenders)
    columns = [
        (workload, figure)
        for workload in Workload
        for figure in shown_figures(workload)
        if any(
            results.best(arena, workload.name.lower(), module, figure) is not None
            for module in shown
        )
    ]
    engine = next((module for module, one in shown.items() if one.role is Role.ENGINE), None)
    rows = []
    for workload, figure in columns:
        values = {
            module: results.best(arena, workload.name.lower(), module, figure) for module in shown
        }
        ours = values[engine] if engine else None
        cells = [
            _cell(figure, value, None if module == engine else ours)
            for module, value in values.items()
        ]
        rows.append([f"{workload}, {FIGURES[figure].unit}", *cells])
    return Grid(title=TITLES[arena], head=["", *(one.name for one in shown.values())], rows=rows)


def study_grids(results: Results, studies: Mapping[str, Study]) -> list[Grid]:
    """Return a table for each study: a row for each point, a column for each store and figure.

    What stands in it is the median of the rounds.
    """
    grids = []
    for module, study in studies.items():
        engines = [(arena, engine_of(arena)) for arena in study.arenas]
        points = list(
            dict.fromkeys(
                point
                for _, engine in engines
                for point in results.points(study.section, module, engine)
            )
        )
        columns = [
            (arena, engine, figure)
            for arena, engine in engines
            for figure in study.figures
            if any(
                results.middle(study.section, module, engine, figure, point) is not None
                for point in points
            )
        ]
        rows = [
            [
                _number(point),
                *(
                    _cell(
                        figure, results.middle(study.section, module, engine, figure, point), None
                    )
                    for _, engine, figure in columns
                ),
            ]
            for point in points
        ]
        if rows:
            head = [study.axis, *(f"{arena}, {FIGURES[f].unit}" for arena, _, f in columns)]
            grids.append(Grid(title=study.title.capitalize(), head=head, rows=rows))
    return grids


def targets_grid(verdicts: Sequence[Verdict]) -> Grid:
    """Return the targets beside what was found."""
    return Grid(
        title="Targets",
        head=["target", "wanted", "found", ""],
        rows=[[one.name, one.wanted, one.found, one.word] for one in verdicts],
    )


def settings_grid(results: Results, contenders: Mapping[str, Contender]) -> Grid:
    """Return the machine, and under which settings everyone ran."""
    rows = [["machine", _spell(results.machine)]]
    rows += [
        [f"{contenders[module].name} ({contenders[module].arena})", _spell(settings)]
        for module, settings in sorted(results.settings.items())
        if module in contenders
    ]
    return Grid(title="Versions and settings", head=["who", "with what"], rows=rows)


def _cell(figure: str, value: float | None, ours: float | None) -> str:
    if value is None:
        return "-"
    spelled = FIGURES[figure].spell(value)
    return f"{spelled} ({ours / value:.2f} x)" if ours is not None and value else spelled


def _number(point: str) -> str:
    return f"{int(point):,}" if point.isdigit() else point


def _spell(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())
