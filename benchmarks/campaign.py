"""A campaign: every contender at every workload, round after round."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from benchmarks.contender import Arena, Contender, Place, Run, Workload, find_contenders
from benchmarks.environment import ROOT, PeerUnavailableError, interpreter_for
from benchmarks.figures import FIGURES
from benchmarks.plan import Plan
from benchmarks.results import Part, Results
from benchmarks.servers import Servers
from benchmarks.study import Study, engine_of, find_studies

__all__ = ["Campaign"]


class RunFailedError(Exception):
    """A run ended with an error; the others go on."""


class Campaign:
    """Measures what is wanted; contenders take turns, so that a slow minute hits all."""

    def __init__(
        self,
        plan: Plan,
        results: Results,
        *,
        only: Collection[str],
        folder: Path,
        progress: Console,
    ) -> None:
        self._plan = plan
        self._results = results
        self._only = only
        self._folder = folder
        self._progress = progress
        self._pythons: dict[str, str] = {}

    def run(self, servers: Servers) -> None:
        """Measure everything that is wanted and not yet there."""
        contenders = find_contenders()
        for arena in Arena:
            parts = {
                Part(section=arena, workload=workload.name.lower(), contender=module): workload
                for workload in self._plan.sizes
                for module, one in contenders.items()
                if one.arena is arena and workload in one.workloads
                if one.is_quick or not self._plan.is_quick
            }
            wanted = {
                part: workload
                for part, workload in parts.items()
                if part.is_meant_by(self._only)
                and len(self._results.runs.get(part, ())) < self._plan.rounds
            }
            for module in dict.fromkeys(part.contender for part in wanted):
                self._prepare(module, contenders[module], servers)
            for number in range(self._plan.rounds):
                self._round(number, wanted, contenders, servers)
        for module, study in find_studies().items():
            for arena in study.arenas:
                part = Part(section=study.section, workload=module, contender=engine_of(arena))
                if part.is_meant_by(self._only) and part not in self._results.runs:
                    self._study(part, study, arena, servers)

    def _study(self, part: Part, study: Study, arena: Arena, servers: Servers) -> None:
        title = f"{part.section:9} {study.title:40} {arena:14}"
        with self._progress.status(title), servers.place(arena) as place:
            task = {"do": "study", "module": part.workload, "arena": arena}
            try:
                for answer in _answers(
                    sys.executable, place, **task, scale=asdict(self._plan.scale)
                ):
                    run = Run(**answer)
                    self._results.add(part, run)
                    self._tell(f"{title} {run.point:14}", run)
            except RunFailedError as error:
                self._fail(part, title, f"{study.title}, {arena}", error)
                self._results.runs.pop(part, None)
                return
        # Only a whole study can be compared within itself, so none is written before its end.
        self._results.write(part, self._folder)

    def _prepare(self, module: str, contender: Contender, servers: Servers) -> None:
        with self._progress.status(f"preparing {contender.name}"):
            try:
                self._pythons[module] = interpreter_for(contender)
            except PeerUnavailableError as error:
                self._results.left_out[contender.name] = str(error)
                return
            with servers.place(contender.arena) as place:
                (said,) = _ask(self._pythons[module], place, do="describe", module=module)
        self._results.settings[module] = said
        self._results.write_about(self._folder)

    def _round(
        self,
        number: int,
        wanted: Mapping[Part, Workload],
        contenders: Mapping[str, Contender],
        servers: Servers,
    ) -> None:
        for workload in dict.fromkeys(wanted.values()):
            parts = [part for part, one in wanted.items() if one is workload]
            # Who begins changes, so that nobody always comes after the same one.
            first = number % len(parts)
            for part in parts[first:] + parts[:first]:
                if part.contender in self._pythons and self._lacks(part, number):
                    self._measure(part, workload, contenders[part.contender], servers)

    def _lacks(self, part: Part, number: int) -> bool:
        return len(self._results.runs.get(part, ())) <= number

    def _measure(
        self, part: Part, workload: Workload, contender: Contender, servers: Servers
    ) -> None:
        size = min(self._plan.sizes[workload], contender.most or self._plan.sizes[workload])
        python = self._pythons[part.contender]
        title = f"{part.section:9} {workload:40} {contender.name:14}"
        with self._progress.status(title), servers.place(contender.arena) as place:
            try:
                (answer,) = _ask(
                    python, place, do="measure", module=part.contender, workload=workload, size=size
                )
            except RunFailedError as error:
                self._fail(part, title, f"{contender.name}, {workload}", error)
                return
        run = Run(**answer)
        self._results.add(part, run)
        self._results.write(part, self._folder)
        self._tell(title, run)

    def _tell(self, title: str, run: Run) -> None:
        said = ", ".join(
            f"{FIGURES[name].spell(value)} {FIGURES[name].unit}"
            for name, value in run.figures.items()
        )
        self._progress.print(f"{title} {said}", soft_wrap=True)

    def _fail(self, part: Part, title: str, name: str, error: RunFailedError) -> None:
        why = str(error).strip().splitlines()[-1]
        self._progress.print(f"{title} [red]failed[/]: {escape(why)}", soft_wrap=True)
        self._results.left_out[name] = why
        (self._folder / f"{part.file_name}.failed").write_text(str(error), "utf-8")


def _ask(python: str, place: Place, **task: object) -> list[Any]:
    return list(_answers(python, place, **task))


def _answers(python: str, place: Place, **task: object) -> Iterator[Any]:
    given = {**task, "folder": str(place.folder), "url": place.url}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [python, "-m", "benchmarks.child", json.dumps(given)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                yield json.loads(line)
        finally:
            child.stdout.close()
            code = child.wait()
        if code:
            errors.seek(0)
            raise RunFailedError(errors.read() or f"it ended with {code}")
