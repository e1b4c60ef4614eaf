"""Findings: what the doctor saw, and what of it needs attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from redrive.cli.show.words import counted, safe
from redrive.store import Finding, Level

__all__ = ["attention", "findings"]

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}


def findings(found: Sequence[Finding]) -> Iterator[RenderableType]:
    """Show everything that was looked at, then a word on the whole."""
    yield _list(found)
    yield ""
    errors = sum(one.level is Level.ERROR for one in found)
    warnings = sum(one.level is Level.WARNING for one in found)
    if errors or warnings:
        yield Text(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}.")
    else:
        yield Text("All is well.")


def attention(found: Sequence[Finding]) -> RenderableType:
    """Show only what needs attention, or that nothing does."""
    serious = [one for one in found if one.level is not Level.OK]
    if not serious:
        return Text("Nothing needs attention.", style="green")
    return Group(Text("Needs attention", style="bold"), _list(serious))


def _list(found: Sequence[Finding]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for one in found:
        table.add_row(Text(one.level, style=_STYLES[one.level]), _sentences(one))
    return table


def _sentences(finding: Finding) -> RenderableType:
    what = Text(safe(finding.what))
    if not finding.advice:
        return what
    return Group(what, Text(safe(finding.advice), style="dim"))
