"""Columns of text: each row is one line, as wide as it is told to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from rich.text import Text

__all__ = ["Column", "Panel", "Row", "panel_lines"]

_GAP = 1
_LEAST_FLEXIBLE = 8


class Column(msgspec.Struct, frozen=True):
    """One column; the flexible one gets the width that the others leave."""

    heading: str
    justify: Literal["left", "right"] = "left"
    most: int = 40
    is_flexible: bool = False


class Row(msgspec.Struct, frozen=True):
    """The cells of one row, and a line below it if there is more to say."""

    cells: Sequence[Text]
    below: Text | None = None

    @property
    def height(self) -> int:
        """How many lines it takes."""
        return 1 if self.below is None else 2


class Panel(msgspec.Struct, frozen=True):
    """One part of the picture: what it is about, in rows, the most important first.

    `has_more` says that there may be rows that were not even read.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    has_more: bool = False


def panel_lines(panel: Panel, *, shown: int, width: int) -> list[Text]:
    """Draw the headings and as many rows as are shown; the first heading says if some are not."""
    first = panel.columns[0].heading
    if shown < len(panel.rows) or panel.has_more:
        first += f" {shown}/{len(panel.rows)}{'+' if panel.has_more else ''}"
    headings = Row([Text(first), *(Text(column.heading) for column in panel.columns[1:])])
    widths = _widths(panel.columns, [headings, *panel.rows], width)
    lines = [_line(panel, headings.cells, widths, width)]
    lines[0].stylize("bold")
    for row in panel.rows[:shown]:
        lines.append(_line(panel, row.cells, widths, width))
        if row.below is not None:
            lines.append(_cut(Text.assemble("  ", row.below), width))
    return lines


def _widths(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[int]:
    natural = [
        min(column.most, max(row.cells[place].cell_len for row in rows))
        for place, column in enumerate(columns)
    ]
    fixed = sum(
        each for each, column in zip(natural, columns, strict=True) if not column.is_flexible
    )
    rest = width - fixed - _GAP * (len(natural) - 1)
    return [
        max(_LEAST_FLEXIBLE, rest) if column.is_flexible else each
        for each, column in zip(natural, columns, strict=True)
    ]


def _line(panel: Panel, cells: Sequence[Text], widths: Sequence[int], width: int) -> Text:
    line = Text()
    for cell, column, each in zip(cells, panel.columns, widths, strict=True):
        if line:
            line.append(" " * _GAP)
        padded = cell.copy()
        padded.truncate(each, overflow="ellipsis")
        missing = " " * (each - padded.cell_len)
        line.append_text(
            Text.assemble(missing, padded)
            if column.justify == "right"
            else Text.assemble(padded, missing)
        )
    return _cut(line, width)


def _cut(line: Text, width: int) -> Text:
    line.rstrip()
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line
