"""A campaign: every errand of an agenda, one after the other, each leaving its piece."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from benchmarks.agenda import Errand
from benchmarks.asking import RunFailedError, ask, ask_for_all
from benchmarks.contender import Contender, Run, Workload
from benchmarks.environment import PeerUnavailableError, interpreter_for
from benchmarks.figures import FIGURES
from benchmarks.plan import Plan
from benchmarks.results import Part, Results
from benchmarks.servers import Servers
from benchmarks.study import Study

__all__ = ["Campaign"]


class Campaign:
    """Measures, tells how it goes, and writes down each part as soon as it is there."""

    def __init__(
        self,
        plan: Plan,
        results: Results,
        *,
        contenders: Mapping[str, Contender],
        studies: Mapping[str, Study],
        folder: Path,
        progress: Console,
    ) -> None:
        self._plan = plan
        self._results = results
        self._contenders = contenders
        self._studies = studies
        self._folder = folder
        self._progress = progress
        self._pythons: dict[str, str] = {}

    def run(self, errands: Sequence[Errand], servers: Servers) -> None:
        """Do all of them, or as many as there is time for."""
        began = time.monotonic()
        end = began + self._plan.longest
        for module in dict.fromkeys(one.part.contender for one in errands if one.workload):
            self._prepare(module, servers)
        for number, errand in enumerate(errands, start=1):
            done = f"{number:3}/{len(errands)}"
            if time.monotonic() > end:
                self._results.left_out["what came after"] = f"no time was left at {done.strip()}"
                return
            if errand.workload is None:
                self._study(done, errand, servers)
            elif errand.part.contender in self._pythons:
                self._measure(done, errand.part, errand.workload, servers)
        self._progress.print(f"All of it took {(time.monotonic() - began) / 60:.1f} minutes.")

    def _prepare(self, module: str, servers: Servers) -> None:
        contender = self._contenders[module]
        with self._progress.status(f"preparing {contender.name}"):
            try:
                python = interpreter_for(contender)
                with servers.place(contender.arena) as place:
                    said = ask(
                        python, place, patience=self._plan.patience, do="describe", module=module
                    )
            except (PeerUnavailableError, RunFailedError) as error:
                self._results.left_out[contender.name] = _last_line(error)
                return
        self._pythons[module] = python
        self._results.settings[module] = said
        self._results.write_about(self._folder)

    def _measure(self, done: str, part: Part, workload: Workload, servers: Servers) -> None:
        contender = self._contenders[part.contender]
        size = min(self._plan.sizes[workload], contender.most or self._plan.sizes[workload])
        title = f"{done} {part.section:9} {workload:40} {contender.name:14}"
        with self._progress.status(title), servers.place(contender.arena) as place:
            try:
                answer = ask(
                    self._pythons[part.contender],
                    place,
                    patience=self._plan.patience,
                    do="measure",
                    module=part.contender,
                    workload=workload,
                    size=size,
                )
            except RunFailedError as error:
                self._fail(part, title, f"{contender.name}, {workload}", error)
                return
        run = Run(**answer)
        self._results.add(part, run)
        self._results.write(part, self._folder)
        self._tell(title, run)

    def _study(self, done: str, errand: Errand, servers: Servers) -> None:
        part, study = errand.part, self._studies[errand.part.workload]
        title = f"{done} {part.section:9} {study.title:40} {errand.arena:14}"
        with self._progress.status(title), servers.place(errand.arena) as place:
            try:
                for answer in ask_for_all(
                    sys.executable,
                    place,
                    patience=self._plan.patience,
                    do="study",
                    module=part.workload,
                    arena=errand.arena,
                    scale=asdict(self._plan.scale),
                ):
                    run = Run(**answer)
                    self._results.add(part, run)
                    self._tell(f"{title} {run.point:15}", run)
            except RunFailedError as error:
                # Only a whole study can be compared within itself.
                self._results.runs.pop(part, None)
                self._fail(part, title, f"{study.title}, {errand.arena}", error)
                return
        self._results.write(part, self._folder)

    def _tell(self, title: str, run: Run) -> None:
        said = ", ".join(
            f"{FIGURES[name].spell(value)} {FIGURES[name].unit}"
            for name, value in run.figures.items()
        )
        self._progress.print(f"{title} {said}", soft_wrap=True)

    def _fail(self, part: Part, title: str, name: str, error: RunFailedError) -> None:
        why = _last_line(error)
        self._progress.print(f"{title} [red]failed[/]: {escape(why)}", soft_wrap=True)
        self._results.left_out[name] = why
        (self._folder / f"{part.file_name}.failed").write_text(str(error), "utf-8")


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]
