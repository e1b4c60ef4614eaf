"""`make prove`: try everything for as long as it is given, and say what was lost."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.status import Status

from tests.proof.parts import PARTS, Order
from tests.proof.results import Proof, Result, in_docs, read, show, write

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
FIGURES = PAGE.with_suffix(".json")
_FIXED_MINUTES = 13
"""About what the parts take that try a fixed number of things."""


def main(arguments: list[str] | None = None) -> int:
    """Run the parts that are named, or all of them; 1 if anything was lost or failed."""
    given = _parser().parse_args(arguments)
    console = Console()
    if given.docs:
        write(read(given.json), FIGURES)
        PAGE.write_text(in_docs(PAGE.read_text("utf-8"), read(FIGURES)), "utf-8")
        console.print(f"The figures of {given.json} are in {PAGE.name}.")
        return 0
    chosen = [one for one in PARTS if not given.parts or one.name in given.parts]
    divided = max(1.0, given.minutes - given.soak - _FIXED_MINUTES) * 60
    shares = sum(one.share for one in chosen) or 1
    results: list[Result] = []
    for part in chosen:
        begun = time.monotonic()
        with console.status(f"{part.name}: {part.about}") as status:
            order = Order(
                seconds=divided * part.share / shares,
                start=given.start,
                seeds=given.seeds,
                soak_seconds=given.soak * 60,
                fault_every=given.fault_every,
                kills=given.kills,
                told=_progress(part.name, status),
            )
            for result in part.run(order):
                results.append(result)
                mark = "[green]lost 0[/]" if result.is_clean else "[bold red]FAILED[/]"
                console.print(f"{result.what} · {result.store} · {result.tried:,} · {mark}")
                if result.ways:
                    ways = ", ".join(f"{way} {times:,}" for way, times in result.ways.items())
                    console.print(f"[dim]{ways}[/]")
        console.print(f"[dim]{part.name} took {time.monotonic() - begun:,.0f} s[/]")
    proof = Proof(at=datetime.now(UTC), version=version("redrive"), results=tuple(results))
    show(proof, console)
    write(proof, given.json)
    if proof.is_clean:
        console.print(f"[bold green]prove: nothing was lost[/]; the figures are in {given.json}")
        return 0
    console.print("[bold red]prove: FAILED[/], the lines above say what and how to repeat it")
    return 1


def _progress(name: str, status: Status) -> Callable[[str], None]:
    return lambda text: status.update(f"{name}: {text}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    names = [one.name for one in PARTS]
    parser.add_argument("parts", nargs="*", choices=[*names, []], help="all unless named")
    parser.add_argument("--minutes", type=float, default=30, help="about how long in all")
    parser.add_argument("--soak", type=float, default=10, help="minutes of the soak")
    parser.add_argument("--fault-every", type=float, default=60, help="seconds between its faults")
    parser.add_argument("--kills", type=int, default=30, help="how often processes are killed")
    parser.add_argument("--seeds", type=int, help="how many to simulate; else by the time")
    parser.add_argument("--start", type=int, default=1, help="the first seed of random steps")
    parser.add_argument("--json", type=Path, default=Path("build/proof.json"), metavar="FILE")
    parser.add_argument("--docs", action="store_true", help="put the figures of --json in the docs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
