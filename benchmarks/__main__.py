"""Measure on this machine: `make bench`, or with `QUICK=1` for a first impression."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.agenda import agenda
from benchmarks.campaign import Campaign
from benchmarks.contender import find_contenders
from benchmarks.environment import ROOT
from benchmarks.machine import describe_machine
from benchmarks.page import write_page
from benchmarks.plan import FULL, PLANS, QUICK
from benchmarks.report import print_report
from benchmarks.results import Results
from benchmarks.scaling import PAGE as SCALING
from benchmarks.scaling import write_scaling
from benchmarks.servers import Servers
from benchmarks.study import find_studies

__all__ = ["main"]

RESULTS = Path(__file__).with_name("results")
PAGE = ROOT / "docs" / "performance.md"


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign and return the exit code."""
    given = _parser().parse_args(arguments)
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    plan = QUICK if given.quick else FULL
    only = given.only.replace(",", " ").split()

    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / ".gitignore").write_text("*\n", encoding="utf-8")
    earlier = sorted(one for one in RESULTS.iterdir() if (one / "about.json").exists())
    if (given.is_continued or given.is_report) and earlier:
        folder, results = earlier[-1], Results.read(earlier[-1])
        plan = PLANS.get(results.plan, plan)
    else:
        folder, results = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}", Results(plan=plan.name)
    contenders, studies = find_contenders(), find_studies()
    if not given.is_report:
        errands = agenda(plan, contenders, studies, only=only, results=results)
        if not errands:
            progress.print(f"Nothing is left to measure for {given.only or 'this run'!r}.")
        folder.mkdir(exist_ok=True)
        results.machine = describe_machine(folder)
        if results.machine["file system"] in {"tmpfs", "ramfs"}:
            progress.print("This folder is in memory, so commits are free: no figure means much.")
        results.left_out.clear()
        results.write_about(folder)
        campaign = Campaign(
            plan,
            results,
            contenders=contenders,
            studies=studies,
            folder=folder,
            progress=progress,
        )
        try:
            with Servers(folder) as servers:
                campaign.run(errands, servers)
        except KeyboardInterrupt:
            progress.print("Broken off; nothing is lost: make bench CONTINUE=1 goes on from here.")
            return 130
        results.write_about(folder)
        document = json.dumps(results.document(), indent=1) + "\n"
        (folder / "results.json").write_text(document, encoding="utf-8")
        console.print()
    print_report(results, contenders, studies, console)
    console.print(f"the figures are in {os.path.relpath(folder)}")
    is_whole = plan is FULL and not only and not given.is_report
    if is_whole or given.is_published:
        write_page(results, contenders, studies, PAGE)
        write_scaling(results, SCALING)
        written = f"{os.path.relpath(PAGE)} and {os.path.relpath(SCALING)}"
        console.print(f"the tables and pictures are in {written}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller, and the main peers only")
    parser.add_argument(
        "--only",
        default="",
        help="words that name parts: sections, workloads, contenders; all of them must fit",
    )
    parser.add_argument(
        "--continue",
        dest="is_continued",
        action="store_true",
        help="take the last run up again where it was broken off",
    )
    parser.add_argument(
        "--report",
        dest="is_report",
        action="store_true",
        help="measure nothing, report on the last run",
    )
    parser.add_argument(
        "--publish",
        dest="is_published",
        action="store_true",
        help="write the page of the documentation, as a whole run does by itself",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
