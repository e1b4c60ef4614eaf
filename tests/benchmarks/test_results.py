"""Results: pieces that outlive a broken-off run, and the best of them."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contender import Run
from benchmarks.results import Results
from tests.benchmarks.campaigns import a_rate, part


def test_the_best_of_the_runs_counts() -> None:
    results = Results()
    a_rate(results, part("pgqueuer"), 10.0, 30.0, 20.0)

    assert results.best("postgres", "drain", "pgqueuer", "per_second") == 30.0
    assert results.best("postgres", "drain", "pgqueuer", "p50_ms") is None
    assert results.best("postgres", "bulk", "pgqueuer", "per_second") is None


def test_points_are_kept_apart_and_in_their_order() -> None:
    results = Results()
    of = part("redrive_postgres", "backlog", "growth")
    a_rate(results, of, 10.0, 11.0, point="100")
    a_rate(results, of, 9.0, point="1000")

    assert results.points("growth", "backlog", "redrive_postgres") == ["100", "1000"]
    assert results.best("growth", "backlog", "redrive_postgres", "per_second", "100") == 11.0
    assert results.best("growth", "backlog", "redrive_postgres", "per_second", "1000") == 9.0


def test_the_middle_of_the_rounds_is_what_a_study_says() -> None:
    results = Results()
    of = part("redrive_postgres", "backlog", "growth")
    a_rate(results, of, 10.0, 30.0, 12.0, point="100")
    a_rate(results, of, 9.0, 15.0, point="1000")

    assert results.middle("growth", "backlog", "redrive_postgres", "per_second", "100") == 12.0
    assert results.middle("growth", "backlog", "redrive_postgres", "per_second", "1") is None
    of_it = ("growth", "backlog", "redrive_postgres", "per_second")
    assert results.ratio(*of_it, of="1000", to="100") == 0.7
    assert results.ratio(*of_it, of="1000", to="1") is None


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    results = Results(machine={"cores": "2"}, plan="full", settings={"pgqueuer": {"batch": "500"}})
    a_rate(results, part("pgqueuer"), 10.0, 20.0)
    results.add(part("pgqueuer", "latency"), Run(figures={"p50_ms": 1.5}, way="two processes"))
    results.write_about(tmp_path)
    for one in results.runs:
        results.write(one, tmp_path)

    read = Results.read(tmp_path)

    assert read == results
    assert Results.from_document(results.document()) == results


def test_a_run_that_was_broken_off_leaves_what_it_had(tmp_path: Path) -> None:
    results = Results(plan="full")
    results.write_about(tmp_path)
    a_rate(results, part("pgqueuer"), 10.0)
    results.write(part("pgqueuer"), tmp_path)
    a_rate(results, part("raw_postgres"), 30.0)

    assert list(Results.read(tmp_path).runs) == [part("pgqueuer")]


def test_all_words_must_fit_to_choose_a_part() -> None:
    one = part("pgqueuer")

    assert one.is_meant_by([])
    assert one.is_meant_by(["postgres"])
    assert one.is_meant_by(["drain", "postgres"])
    assert not one.is_meant_by(["postgres", "bulk"])
    assert not one.is_meant_by(["sqlite"])
