"""Measure on this machine: `python -m benchmarks`, or with `--quick` for a first impression."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.campaign import FULL, QUICK, run_campaign
from benchmarks.machine import describe_machine
from benchmarks.report import print_report, write_json

__all__ = ["main"]

RESULTS = Path(__file__).with_name("results")


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and once: a first impression")
    parser.add_argument(
        "--folder",
        type=Path,
        default=RESULTS,
        help="where the databases are made; the disk decides the figures (default: %(default)s)",
    )
    given = parser.parse_args(arguments)
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    plan = QUICK if given.quick else FULL

    given.folder.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(given.folder)
    if machine["file system"] in {"tmpfs", "ramfs"}:
        progress.print("This folder is in memory, so commits are free: name another with --folder.")
    results = run_campaign(plan, given.folder, progress)
    console.print()
    print_report(results, machine, console)
    written = write_json(results, machine, plan, RESULTS)
    console.print(f"written to {os.path.relpath(written)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
