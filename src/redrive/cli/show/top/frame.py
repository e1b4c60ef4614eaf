"""One frame of the picture: panels from top to bottom, as many rows of each as there is room."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.text import Text

from redrive.cli.show.top.grid import Panel, panel_lines
from redrive.cli.show.top.panels import PANELS, totals
from redrive.cli.show.top.view import Reading, View
from redrive.cli.show.words import first_line, safe
from redrive.model.duration import rough_duration, spell_duration
from redrive.operations.explain.diagnosis import diagnose
from redrive.store import Level

__all__ = ["frame"]

_OVERHEAD = 2
"""An empty line above each panel, and its headings."""
_LEAST_ROWS = 2


def frame(view: View, *, width: int, height: int | None = None, with_keys: bool = False) -> Text:
    """Draw a view within a width and a height; without a height, everything is drawn."""
    foot = [Text(), _keys(view)] if with_keys else []
    head = [_title(view, width), *_trouble(view)]
    body: list[Text] = []
    if view.reading is not None:
        head += totals(view, view.reading)
        panels = [
            panel for draw in PANELS if (panel := draw(view, view.reading, width)) is not None
        ]
        room = None if height is None else height - len(head) - len(foot)
        body += _absences(view.reading)
        if room is not None:
            room -= len(body)
        for panel, shown in zip(panels, _fitted(panels, room), strict=True):
            if shown:
                body += [Text(), *panel_lines(panel, shown=shown, width=width)]
    lines = [*head, *body]
    if height is not None:
        lines = lines[: height - len(foot)]
    lines += foot
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def _fitted(panels: Sequence[Panel], room: int | None) -> list[int]:
    """Return how many rows of each panel to show.

    The first panel takes what it needs, but leaves a place to each of the others; they take turns.
    """
    if room is None:
        return [len(panel.rows) for panel in panels]
    shown, left = [0] * len(panels), room
    kept = sum(_OVERHEAD + min(_LEAST_ROWS, len(panel.rows)) for panel in panels[1:])

    def take(place: int, *, leaving: int = 0) -> bool:
        """Show one more row of a panel, if there is one and room for it."""
        nonlocal left
        rows = panels[place].rows
        if shown[place] == len(rows):
            return False
        cost = rows[shown[place]].height + (0 if shown[place] else _OVERHEAD)
        if cost > left - leaving:
            return False
        shown[place] += 1
        left -= cost
        return True

    while panels and take(0, leaving=kept if shown[0] else 0):
        pass
    while sum(take(place) for place in range(1, len(panels))):
        pass
    while panels and take(0):
        pass
    return shown


def _title(view: View, width: int) -> Text:
    left = Text.assemble(("redrive top", "bold"), "  ", (_address(view.store), "dim"))
    right = Text(style="dim")
    if view.is_paused:
        right.append("paused  ", style="bold yellow")
    if view.reading is not None:
        right.append(f"{view.reading.figures.now:%Y-%m-%d %H:%M:%S} UTC")
    right.append(f"  every {spell_duration(view.every)}")
    left.truncate(max(0, width - right.cell_len - 2), overflow="ellipsis")
    return Text.assemble(left, " " * (width - left.cell_len - right.cell_len), right)


def _trouble(view: View) -> list[Text]:
    """Say what makes the rest of the picture old, or useless."""
    found = []
    if view.error:
        silence = rough_duration(view.silent_for)
        error = first_line(view.error)
        found.append(Text(f"No answer for {silence}: {error}", style="bold white on red"))
    if view.reading is not None:
        found += [
            Text(safe(one.what), style="bold red")
            for one in diagnose(view.reading.figures, view.reading.gates)
            if one.level is Level.ERROR
        ]
    return found


def _absences(reading: Reading) -> list[Text]:
    found = []
    if not reading.figures.destinations:
        found.append(Text("No destination yet; a worker registers those of its app."))
    if not reading.figures.workers:
        found.append(Text("No worker is running.", style="yellow"))
    return found


def _keys(view: View) -> Text:
    going = "go on" if view.is_paused else "pause"
    return Text(f"q quit  p {going}  s sort (by {view.sort})", style="dim")


def _address(store: str) -> str:
    """Show where the store is, without a password."""
    return re.sub(r"//[^/@]*@", "//…@", safe(store))
