"""The story as a live picture in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from redrive.cli.show.spark import chart, sparkline
from redrive.cli.show.top.holds import light, reasons
from redrive.demo.count import Count
from redrive.demo.narrator import SHOP, Playbill, Scene, View, spell_projection, spell_replay
from redrive.demo.venue import Venue
from redrive.model.gate import Closed

__all__ = ["Picture", "can_show_picture"]

_LEAST_WIDTH, _LEAST_HEIGHT = 76, 24
_WIDEST = 96
_SENTENCE_LINES = 3
_FLOW_WIDTH = 22
_FULL_FLOW = 12.0
_CHART_LINES = 3


def can_show_picture() -> bool:
    """Tell whether there is a terminal on standard output that is able and large enough."""
    console = Console()
    return (
        console.is_terminal
        and not console.is_dumb_terminal
        and console.encoding.lower().startswith("utf")
        and console.width >= _LEAST_WIDTH
        and console.height >= _LEAST_HEIGHT
    )


class Picture:
    """Draws on the terminal's other screen while the story runs, and the last view at the end."""

    def __init__(self, console: Console | None = None, playbill: Playbill = SHOP) -> None:
        self._playbill = playbill
        self._console = console or Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._exports: tuple[str, ...] = ()
        self._remains = "nothing is left behind"
        self._dashboard = ""
        self._scene = Scene(act=1, sentence="")
        self._view = View()

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def begin(self, venue: Venue, *, dashboard: str = "") -> None:
        """Remember where it plays."""
        self._exports, self._remains = venue.exports, venue.remains
        self._dashboard = dashboard

    def scene(self, scene: Scene) -> None:
        """Draw the next scene."""
        self._scene = scene
        self._draw()

    def show(self, view: View) -> None:
        """Draw the present moment."""
        self._view = view
        self._draw()

    def stop(self) -> None:
        """Say that nothing is left behind."""
        self._console.print(f"Stopped before the end; {self._remains}.")

    def end(self, count: Count) -> None:
        """Draw the last view with the count, where it stays."""
        picture = Group(
            self._title(),
            Text(),
            _destinations(self._view),
            Text(),
            _final_count(count, self._playbill),
            _verdict(count),
        )
        self._console.print(picture, width=self._width)

    @property
    def _width(self) -> int:
        return min(self._console.width, _WIDEST)

    def _draw(self) -> None:
        picture = Group(
            self._title(),
            _acts(self._scene.act, self._playbill),
            Text(),
            self._steady(Text(self._scene.sentence), lines=_SENTENCE_LINES),
            Text(),
            _destinations(self._view),
            _holds(self._view),
            _arrivals(self._view, self._width - 2, of=self._playbill.watched),
            _causes(self._view),
            *self._commands(),
        )
        self._live.update(Padding(Constrain(picture, self._width - 2), (0, 1)), refresh=True)

    def _title(self) -> RenderableType:
        title = Text("Redrive demo", style="bold")
        title.append(f"  {self._playbill.title}", style="dim")
        clock = Text(f"{self._view.events} events   {self._view.elapsed:.0f} s", style="dim")
        return _left_and_right(title, clock)

    def _commands(self) -> list[Text]:
        typed = (*self._exports, *self._scene.commands)
        page = f"{self._dashboard}{self._scene.page}"
        return [
            *([Text.assemble(("See it at ", "dim"), (page, "cyan"))] if self._dashboard else []),
            Text("Type along in another terminal:", style="dim"),
            *(Text.assemble(("  $ ", "dim"), (one, "cyan"), overflow="fold") for one in typed),
        ]

    def _steady(self, text: Text, *, lines: int) -> Text:
        """Wrap a text and fill it up, so that what is below it does not jump."""
        wrapped = list(text.wrap(self._console, self._width - 2))
        wrapped += [Text()] * (lines - len(wrapped))
        return Text("\n").join(wrapped[:lines])


def _left_and_right(left: Text, right: Text) -> Table:
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(left, right)
    return grid


def _acts(current: int, playbill: Playbill) -> Text:
    line = Text()
    for number, name in enumerate(playbill.acts, start=1):
        if number > 1:
            line.append(" ─ ", style="dim")
        if number < current:
            line.append(f"✓ {name}", style="green")
        elif number == current:
            line.append(f"● {name}", style="bold cyan")
        else:
            line.append(f"○ {name}", style="dim")
    return line


def _destinations(view: View) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("destination", no_wrap=True)
    table.add_column("flow", no_wrap=True, min_width=_FLOW_WIDTH)
    for heading in ("/s", "delivered", "in flight", "waiting", "dead"):
        table.add_column(heading, justify="right", no_wrap=True)
    gates = {one.destination: one for one in view.gates}
    for one in view.destinations:
        flow = view.flows.get(one.name, ())
        table.add_row(
            Text.assemble(light(gates.get(one.name)), " ", (one.name, "bold")),
            _flow(flow),
            Text(f"{sum(flow[-2:]) / 2:.0f}" if flow else "", style="dim"),
            _figure(one.delivered, "green"),
            _figure(one.in_flight, "cyan"),
            _figure(one.pending, "yellow"),
            _figure(one.failed, "red"),
        )
    return table


def _flow(flow: Sequence[float]) -> Text:
    shown = [None] * max(0, _FLOW_WIDTH - len(flow)) + list(flow[-_FLOW_WIDTH:])
    return Text(sparkline(shown, full=_FULL_FLOW), style="cyan")


def _holds(view: View) -> Text:
    """Say what holds a destination, or how far the read model is; always one line."""
    known = {one.name: one for one in view.destinations}
    for gate in view.gates:
        is_shut = not isinstance(gate.gate.breaker, Closed)
        if is_shut and gate.destination in known and view.now is not None:
            held = reasons(gate, known[gate.destination], now=view.now)
            return Text.assemble(f"  {gate.destination}: ", Text(" · ").join(held))
    if view.projection is not None:
        return Text(f"  {spell_projection(view.projection)}", style="cyan")
    return Text()


def _arrivals(view: View, width: int, *, of: str) -> Group:
    """Draw the requests of each second as bars, with the limit as a line above them."""
    limit = f"{view.limit:3d}/s "
    room = max(1, (width - len(limit)) // 2)
    shown = view.arrivals[-room:]
    bars = chart(shown, full=view.limit, lines=_CHART_LINES)
    line = Text.assemble(
        (limit, "dim"),
        ("┄" * (2 * len(shown)), "yellow"),
        (" the limit" if 2 * len(shown) + len(limit) + 10 <= width else "", "dim"),
    )
    rows = [Text.assemble(" " * len(limit), (bar, "cyan")) for bar in bars]
    return Group(Text(f"requests at {of}, each second", style="dim"), line, *rows)


def _figure(value: int, style: str) -> Text:
    return Text(f"{value}", style=style if value else "dim")


def _causes(view: View) -> Panel:
    line = Text("none", style="dim")
    if view.causes:
        cause = view.causes[0]
        more = f" and {len(view.causes) - 1} other groups" if len(view.causes) > 1 else ""
        line = Text.assemble(
            (f"{cause.count}  ", "red"), (f"{cause.destination}  ", "bold"), cause.title, more
        )
    line.no_wrap, line.overflow = True, "ellipsis"
    return Panel(
        line,
        title="dead letters by cause",
        title_align="left",
        subtitle=None if view.replay is None else Text(spell_replay(view.replay)),
        subtitle_align="right",
        border_style="red" if view.causes else "dim",
    )


def _final_count(count: Count, playbill: Playbill) -> Panel:
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("")
    for heading in (playbill.publisher, playbill.receivers, "the store"):
        table.add_column(heading, justify="right")
    for row in count.table:
        table.add_row(*row)
    return Panel(table, title="the count", title_align="left", border_style="dim")


def _verdict(count: Count) -> Text:
    if count.adds_up:
        return Text.assemble(
            ("✓ lost: 0", "bold green"), "   Everything that was published has arrived."
        )
    problems = "\n".join(f"- {one}" for one in count.problems)
    return Text.assemble(
        (f"✗ lost: {len(count.lost)}   The count does not add up:\n", "bold red"), problems
    )
