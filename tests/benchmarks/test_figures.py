"""Figures: the best of several runs, percentiles, and how they are spelled."""

from __future__ import annotations

import pytest

from benchmarks.figures import FIGURES, best, percentile


def test_the_best_is_the_highest_rate_and_the_shortest_time() -> None:
    assert best("per_second", [10.0, 30.0, 20.0]) == 30.0
    assert best("p99_ms", [10.0, 30.0, 20.0]) == 10.0


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)]
)
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], share) == expected


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 0.99) == 7.0


def test_figures_are_spelled_with_as_many_digits_as_they_mean() -> None:
    assert FIGURES["per_second"].spell(12345.6) == "12,346"
    assert FIGURES["us"].spell(12.345) == "12.35"
