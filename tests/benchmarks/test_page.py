"""The page: tables of text, pictures that are well-formed, and a place between markers."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.charts import Bar, Curve, Panel, bar_chart, line_chart, ticks
from benchmarks.contender import Arena, Run
from benchmarks.page import between_markers, pictures, tables, write_page
from benchmarks.results import Results
from benchmarks.study import find_studies
from benchmarks.tables import arena_grid, study_grids
from tests.benchmarks.campaigns import CONTENDERS, a_rate, part

STUDIES = find_studies()
PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


@pytest.fixture
def results() -> Results:
    results = Results(machine={"cores": "2"}, settings={"pgqueuer": {"batch_size": "500"}})
    a_rate(results, part("raw_postgres"), 40_000.0)
    a_rate(results, part("pgqueuer"), 10_000.0, 9_000.0)
    a_rate(results, part("redrive_postgres"), 20_000.0)
    for point, rate in (("0", 900.0), ("100000", 890.0), ("1000000", 880.0)):
        run = Run(figures={"per_second": rate, "claim_ms": 1.25}, point=point)
        results.add(part("redrive_sqlite", "finished", "growth"), run)
    return results


def texts(picture: str) -> list[str]:
    tree = ET.fromstring(picture)  # noqa: S314 - it is our own
    return [one.text or "" for one in tree.iter("{http://www.w3.org/2000/svg}text")]


def test_a_table_has_us_first_and_says_how_we_compare(results: Results) -> None:
    grid = arena_grid(results, CONTENDERS, Arena.POSTGRES)

    assert grid.head == ["", "Redrive", "PgQueuer", "raw asyncpg"]
    assert grid.rows == [
        ["drain, no-op handler, per second", "20,000", "10,000 (2.00 x)", "40,000 (0.50 x)"]
    ]


def test_who_was_not_measured_is_not_shown(results: Results) -> None:
    del results.runs[part("pgqueuer")]

    assert "PgQueuer" not in arena_grid(results, CONTENDERS, Arena.POSTGRES).head
    assert arena_grid(results, CONTENDERS, Arena.SQLITE).rows == []


def test_a_study_has_a_row_for_each_point(results: Results) -> None:
    (grid,) = study_grids(results, STUDIES)

    assert grid.head == ["delivered before", "sqlite, per second", "sqlite, ms a claim of 100"]
    assert [row[0] for row in grid.rows] == ["0", "100,000", "1,000,000"]
    assert grid.rows[0][1:] == ["900", "1.25"]


def test_pictures_show_everyone_and_can_be_read_on_dark_ground(results: Results) -> None:
    drawn = pictures(results, CONTENDERS, STUDIES)

    assert set(drawn) == {"postgres", "finished_per_second", "finished_claim_ms"}
    assert {"Redrive", "PgQueuer", "raw asyncpg", "20,000"} <= set(texts(drawn["postgres"]))
    assert {"SQLite", "1,000,000", "delivered before"} <= set(texts(drawn["finished_per_second"]))
    assert all("prefers-color-scheme: dark" in one for one in drawn.values())


def test_the_longest_bar_is_the_largest_value() -> None:
    picture = bar_chart(
        "Bars",
        [
            Panel(
                title="a < b & c",
                bars=[
                    Bar(name="small", value=1.0, spelled="1", kind="peer"),
                    Bar(name="large", value=4.0, spelled="4", kind="engine"),
                ],
            )
        ],
    )

    tree = ET.fromstring(picture)  # noqa: S314 - it is our own
    widths = {
        one.get("class"): float(one.get("width", 0))
        for one in tree.iter("{http://www.w3.org/2000/svg}rect")
    }
    assert widths["engine"] == pytest.approx(4 * widths["peer"], rel=0.01)
    assert "a < b & c" in texts(picture)


@pytest.mark.parametrize("points", [[(1.0, 5.0)], [(0.0, 5.0)], [(0.0, 0.0), (1e6, 0.0)]])
def test_curves_of_few_points_and_of_nothing_can_be_drawn(
    points: list[tuple[float, float]],
) -> None:
    curve = Curve(name="PostgreSQL", points=points, kind="engine")

    picture = line_chart("A curve", x_title="x", y_title="y", curves=[curve])

    assert "nan" not in picture
    assert "PostgreSQL" in texts(picture)


@pytest.mark.parametrize(
    ("most", "expected"),
    [(100.0, [0, 25, 50, 75, 100]), (7.0, [0, 2, 4, 6, 8]), (0.9, [0, 0.25, 0.5, 0.75, 1.0])],
)
def test_an_axis_has_a_handful_of_round_marks(most: float, expected: list[float]) -> None:
    assert ticks(most) == pytest.approx(expected)


def test_only_what_is_between_the_markers_is_replaced(results: Results, tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(PAGE.read_text("utf-8"), "utf-8")
    before, after = page.read_text("utf-8").split("<!-- figures of `make bench`: begin -->")
    after = after.partition("<!-- figures of `make bench`: end -->")[2]

    for _ in range(2):
        write_page(results, CONTENDERS, STUDIES, page)

    written = page.read_text("utf-8")
    assert written.startswith(before)
    assert written.endswith(after)
    assert written.count("10,000 (2.00 x)") == 1
    assert (tmp_path / "performance" / "postgres.svg").exists()
    assert (tmp_path / "performance" / "results.json").exists()


def test_every_picture_of_the_page_was_drawn(results: Results) -> None:
    drawn = set(pictures(results, CONTENDERS, STUDIES))

    text = tables(results, CONTENDERS, STUDIES, folder="performance", drawn=drawn)

    assert all(f"(performance/{name}.svg)" in text for name in drawn)
    assert text.count(".svg)") == len(drawn)


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="have no place"):
        between_markers("# Performance\n", "figures")
