"""A campaign: every contender at every workload, round after round."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.contender import Arena, Contender, Place, Run, Workload, find_contenders
from benchmarks.environment import ROOT, PeerUnavailableError, interpreter_for
from benchmarks.figures import FIGURES
from benchmarks.plan import Plan
from benchmarks.results import Part, Results
from benchmarks.servers import Servers

__all__ = ["Campaign"]


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
            except subprocess.CalledProcessError as error:
                self._progress.print(f"{title} [red]failed[/] ({error.returncode})")
                self._results.left_out[f"{part.contender} {workload}"] = "it failed"
                return
        run = Run(**answer)
        self._results.add(part, run)
        self._results.write(part, self._folder)
        said = ", ".join(
            f"{FIGURES[name].spell(value)} {FIGURES[name].unit}"
            for name, value in run.figures.items()
        )
        self._progress.print(f"{title} {said}", soft_wrap=True)


def _ask(python: str, place: Place, **task: object) -> list[Any]:
    given = {**task, "folder": str(place.folder), "url": place.url}
    done = subprocess.run(
        [python, "-m", "benchmarks.child", json.dumps(given)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]
