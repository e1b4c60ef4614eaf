"""Measure on this machine: `make bench`, or with `QUICK=1` for a first impression."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.campaign import Campaign
from benchmarks.contender import find_contenders
from benchmarks.machine import describe_machine
from benchmarks.plan import FULL, QUICK
from benchmarks.report import print_report
from benchmarks.results import Results
from benchmarks.servers import Servers

__all__ = ["main"]

RESULTS = Path(__file__).with_name("results")


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign and return the exit code."""
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
    given = parser.parse_args(arguments)
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    plan = QUICK if given.quick else FULL

    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / ".gitignore").write_text("*\n", encoding="utf-8")
    earlier = sorted(one for one in RESULTS.iterdir() if (one / "about.json").exists())
    if given.is_continued and earlier:
        folder, results = earlier[-1], Results.read(earlier[-1])
    else:
        folder, results = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}", Results(plan=plan.name)
    folder.mkdir(exist_ok=True)
    results.machine = describe_machine(folder)
    if results.machine["file system"] in {"tmpfs", "ramfs"}:
        progress.print("This folder is in memory, so commits are free, and no figure means much.")
    only = given.only.replace(",", " ").split()
    with Servers(folder) as servers:
        Campaign(plan, results, only=only, folder=folder, progress=progress).run(servers)
    console.print()
    print_report(results, find_contenders(), console)
    written = folder / "results.json"
    written.write_text(json.dumps(results.document(), indent=1) + "\n", encoding="utf-8")
    console.print(f"written to {os.path.relpath(written)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
