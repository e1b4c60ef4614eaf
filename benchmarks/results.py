"""What was measured: one piece for each part, written as soon as it is there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.contender import Run
from benchmarks.figures import best

__all__ = ["Part", "Results"]


@dataclass(frozen=True, kw_only=True, order=True)
class Part:
    """What can be measured by itself; words of it choose it with `ONLY`."""

    section: str
    workload: str
    contender: str

    @property
    def words(self) -> frozenset[str]:
        """What it can be called by."""
        return frozenset((self.section, self.workload, self.contender))

    def is_meant_by(self, only: Iterable[str]) -> bool:
        """Whether each of the words is one of its own; no words mean everything."""
        return all(word in self.words for word in only)

    @property
    def file_name(self) -> str:
        """The name of its piece."""
        return f"{self.section}.{self.workload}.{self.contender}.json"


@dataclass(kw_only=True)
class Results:
    """Every run of every part; kept in a folder, a file for each part."""

    machine: dict[str, str] = field(default_factory=dict)
    plan: str = ""
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    runs: dict[Part, list[Run]] = field(default_factory=dict)

    def add(self, part: Part, run: Run) -> None:
        """Keep one more run."""
        self.runs.setdefault(part, []).append(run)

    def values(
        self, section: str, workload: str, contender: str, figure: str, point: str = ""
    ) -> list[float]:
        """Return what all runs came to, in their order."""
        part = Part(section=section, workload=workload, contender=contender)
        return [
            run.figures[figure]
            for run in self.runs.get(part, ())
            if run.point == point and figure in run.figures
        ]

    def best(
        self, section: str, workload: str, contender: str, figure: str, point: str = ""
    ) -> float | None:
        """Return the best of all runs, or nothing where there is none."""
        values = self.values(section, workload, contender, figure, point)
        return best(figure, values) if values else None

    def middle(
        self, section: str, workload: str, contender: str, figure: str, point: str = ""
    ) -> float | None:
        """Return the median of all runs, or nothing where there is none."""
        values = self.values(section, workload, contender, figure, point)
        return median(values) if values else None

    def ratio(
        self, section: str, workload: str, contender: str, figure: str, *, of: str, to: str
    ) -> float | None:
        """Return the median, over the rounds of a study, of one point's figure to another's."""
        pairs = zip(
            self.values(section, workload, contender, figure, of),
            self.values(section, workload, contender, figure, to),
            strict=False,  # a round that was broken off has not both
        )
        ratios = [one / other for one, other in pairs if other]
        return median(ratios) if ratios else None

    def points(self, section: str, workload: str, contender: str) -> list[str]:
        """Return the points at which a part was measured, in their order."""
        part = Part(section=section, workload=workload, contender=contender)
        return list(dict.fromkeys(run.point for run in self.runs.get(part, ())))

    def way(self, section: str, workload: str, contender: str) -> str:
        """Return how it was done."""
        part = Part(section=section, workload=workload, contender=contender)
        return next((run.way for run in self.runs.get(part, ()) if run.way), "")

    def write(self, part: Part, folder: Path) -> None:
        """Write the piece of one part."""
        _write(
            folder / "pieces" / part.file_name,
            {**asdict(part), "runs": [asdict(run) for run in self.runs[part]]},
        )

    def write_about(self, folder: Path) -> None:
        """Write what is known of the machine and of everyone's settings."""
        _write(folder / "about.json", self._about())

    def document(self) -> dict[str, Any]:
        """Return everything as one document."""
        parts = [
            {**asdict(part), "runs": [asdict(run) for run in runs]}
            for part, runs in sorted(self.runs.items())
        ]
        return {**self._about(), "parts": parts}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Results:
        """Return what `document` returned."""
        results = cls(**{name: document[name] for name in _ABOUT})
        for part in document["parts"]:
            results.take_in(part)
        return results

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Return what a run has left in its folder, whether or not it came to its end."""
        about = json.loads((folder / "about.json").read_text("utf-8"))
        pieces = sorted((folder / "pieces").glob("*.json"))
        parts = [json.loads(one.read_text("utf-8")) for one in pieces]
        return cls.from_document({**about, "parts": parts})

    def take_in(self, piece: Mapping[str, Any]) -> None:
        """Add the runs of a piece."""
        part = Part(**{name: piece[name] for name in ("section", "workload", "contender")})
        for run in piece["runs"]:
            self.add(part, Run(**run))

    def _about(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _ABOUT}


_ABOUT = ("machine", "plan", "settings", "left_out")


def _write(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A broken-off run leaves the old piece or the new one, and never half of one.
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)
