"""Tables whose words give way where room is short; their figures never do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table

__all__ = ["Listing"]

_SHORT, _SHORTEST = 12, 8
"""To how few characters words are cut, and to how few at last."""
_HEADING = 6
"""To how few a heading is; what stands below it is never."""
_ENDLESS = 2**31


class Listing(Table):
    """A table without lines, as wide as what is in it, or as the terminal if that is less."""

    def __init__(self, *, gap: int = 2, header_style: str = "bold") -> None:
        super().__init__(
            box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style=header_style
        )
        self._gap = gap
        self._words: list[int] = []

    def add_figures(self, *headings: str, is_text: bool = False) -> None:
        """Add columns of counts, or of what else must be read to its end, such as instants."""
        for heading in headings:
            self.add_column(heading, justify="left" if is_text else "right", no_wrap=True)

    def add_words(self, *headings: str, lines: Literal["one", "cut", "folded"] = "one") -> None:
        """Add columns of names or sentences, which without room end in an ellipsis.

        Or they go on below: by words, long ones `cut`, or `folded`, so that nothing is lost.
        """
        for heading in headings:
            self._words.append(len(self.columns))
            self.add_column(
                heading,
                no_wrap=lines == "one",
                overflow="fold" if lines == "folded" else "ellipsis",
            )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        endless = options.update(width=_ENDLESS)

        def widest(*cells: RenderableType) -> int:
            return max((Measurement.get(console, endless, one).maximum for one in cells), default=0)

        least = [max(_HEADING, widest(*column.cells)) for column in self.columns]
        widths = [widest(column.header, *column.cells) for column in self.columns]
        figures = [place for place in range(len(widths)) if place not in self._words]
        room, gaps = options.max_width, len(widths) - 1
        _shrink(widths, self._words, dict.fromkeys(self._words, _SHORT), room - self._gap * gaps)
        gap = self._gap if sum(widths) + self._gap * gaps <= room else 1
        _shrink(widths, figures, dict(enumerate(least)), room - gap * gaps)
        _shrink(widths, self._words, dict.fromkeys(self._words, _SHORTEST), room - gap * gaps)
        self.padding = (0, gap, 0, 0)
        for column, width in zip(self.columns, widths, strict=True):
            column.width = width
        yield from super().__rich_console__(console, options.update(width=sum(widths) + gap * gaps))


def _shrink(widths: list[int], places: list[int], least: Mapping[int, int], room: int) -> None:
    """Make the widest of these columns narrower, step by step, until there is room for all."""
    while sum(widths) > room:
        wide = [place for place in places if widths[place] > least[place]]
        if not wide:
            return
        widths[max(wide, key=lambda place: widths[place])] -= 1
