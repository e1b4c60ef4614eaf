"""The page of the documentation: tables and pictures between markers, the rest is left alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.charts import Bar, Curve, Panel, bar_chart, line_chart
from benchmarks.contender import Arena, Contender, Workload
from benchmarks.figures import FIGURES
from benchmarks.results import Results
from benchmarks.study import Section, Study, engine_of
from benchmarks.tables import (
    TITLES,
    Grid,
    arena_grid,
    settings_grid,
    shown_figures,
    shown_in,
    study_grids,
    targets_grid,
)
from benchmarks.targets import judge

__all__ = ["Markers", "between_markers", "markdown", "pictures", "tables", "write_page"]

_STORES = {
    Arena.POSTGRES: ("PostgreSQL", "engine"),
    Arena.SQLITE: ("SQLite", "other"),
}
_DOING = {"claim_ms": "Claiming", "published": "Publishing"}


@dataclass(frozen=True, kw_only=True)
class Markers:
    """What stands before and after that part of a page which a command writes."""

    of: str

    @property
    def begin(self) -> str:
        """The line before it."""
        return f"<!-- figures of `{self.of}`: begin -->"

    @property
    def end(self) -> str:
        """The line after it."""
        return f"<!-- figures of `{self.of}`: end -->"

    def replaced(self, text: str, figures: str) -> str:
        """Return the text with what stands between the markers replaced."""
        before, begin, rest = text.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end:
            raise ValueError(
                f"The page lacks {self.begin} or {self.end}, so its figures have no place."
            )
        return f"{before}{begin}\n\n{figures}\n{end}{after}"


_MARKERS = Markers(of="make bench")


def write_page(
    results: Results,
    contenders: Mapping[str, Contender],
    studies: Mapping[str, Study],
    page: Path,
) -> None:
    """Put tables and pictures into the page; the pictures and the JSON go to a folder beside it."""
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    drawn = pictures(results, contenders, studies)
    for old in folder.glob("*.svg"):
        old.unlink()
    for name, picture in drawn.items():
        (folder / f"{name}.svg").write_text(picture, encoding="utf-8")
    document = json.dumps(results.document(), indent=1) + "\n"
    (folder / "results.json").write_text(document, encoding="utf-8")
    figures = tables(results, contenders, studies, folder=folder.name, drawn=set(drawn))
    page.write_text(between_markers(page.read_text("utf-8"), figures), encoding="utf-8")


def between_markers(text: str, figures: str) -> str:
    """Return the text with the figures of `make bench` replaced."""
    return _MARKERS.replaced(text, figures)


def tables(
    results: Results,
    contenders: Mapping[str, Contender],
    studies: Mapping[str, Study],
    *,
    folder: str,
    drawn: set[str],
) -> str:
    """Return everything as Markdown, each table beside its picture."""
    parts = [f"### {(targets := targets_grid(judge(results))).title}", markdown(targets)]
    for arena in Arena:
        grid = arena_grid(results, contenders, arena)
        if grid.rows:
            parts.append(f"### {grid.title}")
            if arena in drawn:
                parts.append(f"![{grid.title}]({folder}/{arena}.svg)")
            parts.append(markdown(grid))
    parts.append("### How it grows, and what it costs")
    for module, study in studies.items():
        for grid in study_grids(results, {module: study}):
            parts.append(f"#### {grid.title}")
            parts += [
                f"![{grid.title}, {FIGURES[figure].unit}]({folder}/{module}_{figure}.svg)"
                for figure in study.figures
                if f"{module}_{figure}" in drawn
            ]
            parts.append(markdown(grid))
    settings = settings_grid(results, contenders)
    parts += [f"### {settings.title}", markdown(settings)]
    parts += [f"- left out: {name} ({why})" for name, why in results.left_out.items()]
    return "\n\n".join(parts) + "\n"


def pictures(
    results: Results, contenders: Mapping[str, Contender], studies: Mapping[str, Study]
) -> dict[str, str]:
    """Return the pictures by name: bars for each arena, curves for each study of growth."""
    drawn = {
        str(arena): bar_chart(TITLES[arena], panels)
        for arena in Arena
        if (panels := _panels(results, contenders, arena))
    }
    for module, study in studies.items():
        for figure in study.figures:
            picture = _drawn_study(results, module, study, figure)
            if picture:
                drawn[f"{module}_{figure}"] = picture
    return drawn


def _panels(results: Results, contenders: Mapping[str, Contender], arena: Arena) -> list[Panel]:
    shown = shown_in(arena, results, contenders)
    panels = []
    for workload in Workload:
        for figure in shown_figures(workload):
            bars = [
                Bar(
                    name=one.name,
                    value=value,
                    spelled=FIGURES[figure].spell(value),
                    kind=one.role,
                )
                for module, one in shown.items()
                if (value := results.best(arena, workload.name.lower(), module, figure)) is not None
            ]
            if bars:
                panels.append(Panel(title=f"{workload}, {FIGURES[figure].unit}", bars=bars))
    return panels


def _drawn_study(results: Results, module: str, study: Study, figure: str) -> str:
    if study.section is not Section.GROWTH:
        return _drawn_bars(results, module, study, figure)
    curves = []
    for arena in study.arenas:
        engine = engine_of(arena)
        points = [
            (float(point), value)
            for point in results.points(study.section, module, engine)
            if (value := results.middle(study.section, module, engine, figure, point)) is not None
        ]
        if points:
            name, kind = _STORES[arena]
            curves.append(Curve(name=name, points=points, kind=kind))
    if not curves:
        return ""
    return line_chart(
        f"{_DOING.get(figure, 'Draining')} {study.title}",
        x_title=study.axis,
        y_title=FIGURES[figure].unit,
        curves=curves,
    )


def _drawn_bars(results: Results, module: str, study: Study, figure: str) -> str:
    panels = []
    for arena in study.arenas:
        engine = engine_of(arena)
        bars = [
            Bar(name=point, value=value, spelled=FIGURES[figure].spell(value), kind="engine")
            for point in results.points(study.section, module, engine)
            if (value := results.middle(study.section, module, engine, figure, point)) is not None
        ]
        if len(bars) > 1:
            panels.append(Panel(title=f"{_STORES[arena][0]}, {FIGURES[figure].unit}", bars=bars))
    return bar_chart(study.title.capitalize(), panels) if panels else ""


def markdown(grid: Grid) -> str:
    """Return a table as Markdown has it."""
    lines = [_row(grid.head), _row(["---", *("---:" for _ in grid.head[1:])])]
    return "\n".join(lines + [_row(row) for row in grid.rows])


def _row(cells: object) -> str:
    assert isinstance(cells, list | tuple)
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
