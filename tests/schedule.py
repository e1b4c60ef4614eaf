"""In which order tests begin, so that the processes that share them end together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, zip_longest
from typing import TypeVar

__all__ = ["WAITING", "WORKING", "longest_first"]

T = TypeVar("T")

WAITING = (
    "tests/faults/",
    "tests/joining/test_kill.py",
    "tests/demo/",
    "tests/cli/test_worker",
)
"""Where the tests are that take long because they wait: for processes, leases, servers."""
WORKING = (
    "tests/proof/test_contract.py",
    "tests/proof/test_nth_call.py",
    "tests/docs/test_examples.py",
    "tests/simulation/",
    "tests/proof/",
)
"""Where those are that take long because they compute; the longest single tests come first."""


def longest_first(items: Iterable[T], path_of: Callable[[T], str]) -> list[T]:
    """Return the long ones first, those that wait between those that compute, then the rest.

    A long test that begins last keeps one process busy while the others have nothing left to do;
    and who only waits leaves a processor to somebody who does not.
    """
    waiting: list[tuple[int, T]] = []
    working: list[tuple[int, T]] = []
    rest: list[T] = []
    for item in items:
        path = path_of(item)
        if (place := _place(path, WAITING)) is not None:
            waiting.append((place, item))
        elif (place := _place(path, WORKING)) is not None:
            working.append((place, item))
        else:
            rest.append(item)
    pairs = zip_longest(_sorted(working), _sorted(waiting))
    return [*(one for one in chain.from_iterable(pairs) if one is not None), *rest]


def _place(path: str, places: tuple[str, ...]) -> int | None:
    return next((number for number, one in enumerate(places) if path.startswith(one)), None)


def _sorted(items: list[tuple[int, T]]) -> list[T]:
    return [item for _, item in sorted(items, key=lambda one: one[0])]
