"""What came of a proof: as a table for people, as JSON for programs, as a table of the docs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

__all__ = ["Proof", "Result", "in_docs", "read", "show", "write"]

BEGIN = "<!-- figures of make prove, begin -->"
END = "<!-- figures of make prove, end -->"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line: what was tried on which store, how often, and what was lost."""

    part: str
    what: str
    store: str
    tried: int
    lost: int = 0
    seconds: float = 0.0
    failure: str = ""
    ways: dict[str, int] = {}
    """How often each call of the store went which way, where there are several."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, and nothing else went wrong."""
        return not self.lost and not self.failure


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """All lines of one run."""

    at: datetime
    version: str
    results: tuple[Result, ...]

    @property
    def is_clean(self) -> bool:
        """Whether every line is."""
        return all(one.is_clean for one in self.results)


def write(proof: Proof, path: Path) -> None:
    """Write it as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(proof), indent=2) + b"\n")


def read(path: Path) -> Proof:
    """Read what `write` has written."""
    return msgspec.json.decode(path.read_bytes(), type=Proof)


def show(proof: Proof, console: Console) -> None:
    """Print it as a table."""
    table = Table(title="What was tried, and what was lost", title_justify="left")
    for name in ("part", "what", "store"):
        table.add_column(name)
    for name in ("tried", "lost", "seconds"):
        table.add_column(name, justify="right")
    for one in proof.results:
        lost = f"[bold red]{one.lost}[/]" if one.lost else "[green]0[/]"
        if one.failure:
            lost = "[bold red]FAILED[/]"
        table.add_row(
            *(one.part, one.what, one.store, f"{one.tried:,}", lost, f"{one.seconds:,.0f}")
        )
    console.print(table)
    for one in proof.results:
        if one.failure:
            console.print(f"[bold red]{one.part}, {one.store}:[/]")
            console.print(one.failure, markup=False, highlight=False)


def in_docs(page: str, proof: Proof) -> str:
    """Return a page with the figures between its marks replaced."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    lines = ["", "| what | store | tried | lost |", "|---|---|---:|---:|"]
    lines += [f"| {one.what} | {one.store} | {one.tried:,} | {one.lost} |" for one in proof.results]
    day = f"Redrive {proof.version}, {proof.at:%d %B %Y}."
    return f"{head}{BEGIN}\n" + "\n".join([*lines, "", day, ""]) + f"\n{END}{tail}"
