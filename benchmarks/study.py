"""The contract of a study: how a figure of ours changes with something else.

To add one, add a module to `benchmarks.studies` with a `STUDY` in it. Its points take turns within
one process, round after round, so that a slow minute of the machine hits all of them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from benchmarks.contender import Arena, Place, Run

__all__ = ["Scale", "Section", "Study", "engine_of", "find_studies", "find_study", "turns"]

P = TypeVar("P")
V = TypeVar("V")


class Section(StrEnum):
    """What a study is about."""

    FEATURES = "features"
    GROWTH = "growth"
    PROMISES = "promises"
    RESOURCES = "resources"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a study is: `large` is its largest point, `sample` what is timed at each.

    `small` is the least backlog that is looked at, and `seconds` how long rest is watched.
    """

    rounds: int
    large: int
    sample: int
    seconds: float
    small: int = 10_000

    @property
    def sizes(self) -> list[int]:
        """The points of a study of size: powers of ten up to the largest."""
        return sorted({self.small, max(self.small, self.large // 10), self.large})


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is varied, and what is looked at."""

    title: str
    section: Section
    axis: str
    figures: Sequence[str]
    measure: Callable[[Scale, Arena, Place], AsyncIterator[Run]]
    arenas: Sequence[Arena] = (Arena.POSTGRES, Arena.SQLITE)
    is_quick: bool = True
    """Whether it takes part when there is little time; large stores take long to fill."""


def turns(points: Mapping[P, V], rounds: int) -> Iterator[tuple[P, V]]:
    """Return all points, round after round; every other round goes backwards.

    So no point always comes after the same one, and each round has each of them once.
    """
    for number in range(rounds):
        items = list(points.items())
        yield from reversed(items) if number % 2 else items


def engine_of(arena: Arena) -> str:
    """Return the module of our own contender there."""
    return f"redrive_{arena}"


def find_study(module: str) -> Study:
    """Return the study of one module of `benchmarks.studies`."""
    found = importlib.import_module(f"benchmarks.studies.{module}").STUDY
    if not isinstance(found, Study):
        raise TypeError(f"STUDY of benchmarks.studies.{module} is no Study: {found!r}.")
    return found


def find_studies() -> dict[str, Study]:
    """Return all studies by the name of their module."""
    folder = Path(__file__).with_name("studies")
    modules = sorted(one.name for one in pkgutil.iter_modules([str(folder)]))
    return {module: find_study(module) for module in modules}
