"""What is measured of tracking: small, and to the last event."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.contender import Arena, Place, Run, Workload, find_contender
from benchmarks.results import Part, Results
from benchmarks.studies.tracked import (
    ALONE,
    BUSY_ALONE,
    BUSY_WITH,
    PUBLISHED,
    STUDY,
    TRACKED,
    WITH,
)
from benchmarks.study import Scale
from benchmarks.targets import Word, judge

SMALL = Scale(rounds=1, large=1_000, sample=10, seconds=0.0)
PROMISES = Part(section="promises", workload="tracked", contender="redrive_sqlite")


async def test_handlers_and_events_are_measured_and_all_of_them_arrive(tmp_path: Path) -> None:
    place = Place(folder=tmp_path)

    runs = [run async for run in STUDY.measure(SMALL, Arena.SQLITE, place)]

    assert {one.point for one in runs} == {
        *(ALONE, WITH, BUSY_ALONE, BUSY_WITH, TRACKED, PUBLISHED)
    }
    assert all(value > 0 for one in runs for value in one.figures.values())
    assert {name for one in runs for name in one.figures} == set(STUDY.figures)


def test_an_event_and_a_log_record_are_handed_over(tmp_path: Path) -> None:
    for module in ("redrive_tracking", "raw_logging"):
        measure = find_contender(module).workloads[Workload.TRACK]

        assert measure(400, Place(folder=tmp_path)).figures["us"] > 0


@pytest.mark.parametrize(
    ("alone", "tracks", "name"),
    [(ALONE, WITH, "p99 of a web handler"), (BUSY_ALONE, BUSY_WITH, "p99 of such a handler")],
)
def test_a_handler_may_be_slower_by_three_milliseconds_or_by_noise(
    alone: str, tracks: str, name: str
) -> None:
    def word(without: float, with_it: float) -> Word:
        results = Results(plan="full")
        runs = [
            Run(figures={"p99_ms": without}, point=alone),
            Run(figures={"p99_ms": with_it}, point=tracks),
        ]
        results.runs[PROMISES] = runs
        [verdict] = [one for one in judge(results) if one.name.startswith(name)]
        return verdict.word

    assert word(10.0, 12.9) is Word.MET
    assert word(40.0, 45.9) is Word.MET
    assert word(10.0, 13.1) is Word.MISSED
