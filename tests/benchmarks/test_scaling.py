"""Scaling: the page is what the computation says, whatever was measured."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.capacity import Assumptions, Capacity, capacity_of
from benchmarks.contender import Run
from benchmarks.foresight import busiest_share, hours_behind
from benchmarks.results import Results
from benchmarks.scaling import (
    MARKERS,
    PAGE,
    PICTURE,
    computed,
    picture,
    read_published,
    write_scaling,
)
from tests.benchmarks.campaigns import a_rate, part

ASSUMED = Assumptions(per_day=86_400e4, peak=2.0, utilisation=0.5)


def measured() -> Results:
    results = Results()
    a_rate(results, part("redrive_postgres", "concurrent"), 8_000.0)
    a_rate(results, part("redrive_postgres", "drain"), 24_000.0)
    run = Run(
        figures={"bytes_each": 1_000.0, "log_bytes_each": 400.0, "written_each": 2_000.0},
        point="delivered",
    )
    results.add(part("redrive_postgres", "storage", "resources"), run)
    return results


def test_the_page_is_what_the_computation_says() -> None:
    """After another run, `python -m benchmarks.scaling` brings it up to date."""
    text = PAGE.read_text("utf-8")

    assert text == MARKERS.replaced(text, computed(read_published(), folder=PAGE.stem))
    assert (PAGE.with_suffix("") / PICTURE).read_text("utf-8") == picture()


def test_a_node_carries_publishing_and_draining_one_after_the_other() -> None:
    node = capacity_of(measured(), "postgres", ASSUMED)

    assert node.carried == pytest.approx(6_000.0)
    assert node.per_day == pytest.approx(6_000.0 / 4 * 86_400)
    assert node.nodes == 7


def test_what_was_measured_from_end_to_end_counts_instead() -> None:
    results = measured()
    run = Run(figures={"offered": 4_000.0})
    results.add(part("redrive_postgres", "latency_at_half"), run)

    node = capacity_of(results, "postgres", ASSUMED)

    assert node.carried == 8_000.0
    assert "measured: 2 x 4,000" in computed(results, folder="scaling")


def test_an_event_is_kept_longer_than_its_delivery() -> None:
    assert capacity_of(measured(), "postgres").byte_days == 400.0 * 30 + 600.0 * 1


@pytest.mark.parametrize(
    ("assumed", "first"),
    [
        (Assumptions(disk_bytes=1e9), "room on the disk, with the retention there is by default"),
        (Assumptions(disk_bytes=1e18, disk_bytes_per_second=1e6), "writing to the disk"),
        (Assumptions(disk_bytes=1e18), "processor and commits"),
        (Assumptions(disk_bytes=1e18, connections=25), "connections for workers"),
    ],
)
def test_what_ends_first_comes_first(assumed: Assumptions, first: str) -> None:
    bounds = capacity_of(measured(), "postgres", assumed).bounds()

    assert bounds[0].what == first
    assert sorted(one.per_day for one in bounds) == [one.per_day for one in bounds]


def test_what_was_not_measured_is_said_to_be_so() -> None:
    text = computed(measured(), folder="scaling")

    assert "**7 nodes**" in computed(measured(), folder="scaling", assumed=ASSUMED)
    assert "- **SQLite**: not measured, so nothing can be said." in text
    assert capacity_of(measured(), "sqlite") == Capacity(store="sqlite")


def test_the_page_is_written_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "scaling.md"
    page.write_text(f"above\n{MARKERS.begin}\nbefore\n{MARKERS.end}\nbelow\n", "utf-8")

    for _ in range(2):
        write_scaling(measured(), page)

    written = page.read_text("utf-8")
    assert (written.startswith("above\n"), written.endswith("\nbelow\n")) == (True, True)
    assert "\nbefore\n" not in written
    assert f"(scaling/{PICTURE})" in written
    drawn = (tmp_path / "scaling" / PICTURE).read_text("utf-8")
    assert "4 x the mean" in [one.text for one in ET.fromstring(drawn).iter()]  # noqa: S314 - ours


def test_catching_up_with_an_even_load_is_what_a_queue_would_take() -> None:
    """What came in two hours, at twice the speed it goes on coming: two hours more."""
    assert hours_behind(peak=1.0, capacity=2.0, outage=2.0) == pytest.approx(2.0, abs=0.05)


def test_catching_up_takes_longer_before_the_busiest_hour() -> None:
    morning = hours_behind(peak=2.0, capacity=2.5, outage=1.0, begins=9.0)
    night = hours_behind(peak=2.0, capacity=2.5, outage=1.0, begins=21.0)

    assert morning is not None
    assert night is not None
    assert morning > 2 * night


def test_who_can_do_no_more_than_the_mean_never_catches_up() -> None:
    assert hours_behind(peak=2.0, capacity=1.0, outage=1.0) is None


def test_few_large_keys_load_one_node_more_than_many_equal_ones() -> None:
    equal, skewed = (
        busiest_share(nodes=8, keys=5_000, exponent=one, seeds=range(3)) for one in (0.0, 1.0)
    )

    assert 1.0 <= equal < 1.2
    assert skewed > 1.3
