"""The story as plain lines, for logs and for terminals that cannot draw."""

from __future__ import annotations

import textwrap
from types import TracebackType
from typing import Self, TextIO

from redrive.cli.show.top.holds import reasons
from redrive.demo.count import Count
from redrive.demo.narrator import SHOP, Playbill, Scene, View, spell_projection, spell_replay
from redrive.demo.venue import Venue
from redrive.model.gate import Closed
from redrive.store import DestinationFigures, Group, Replay

__all__ = ["Lines"]

_WIDTH = 78
_BAR = 30


class Lines:
    """Writes a few lines for each scene and two for each second of the story, in ASCII."""

    def __init__(self, out: TextIO, playbill: Playbill = SHOP) -> None:
        self._out = out
        self._playbill = playbill
        self._remains = "nothing is left behind"
        self._dashboard = ""
        self._act = 0
        self._second = 0
        self._causes: tuple[Group, ...] = ()
        self._replay: Replay | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return

    def begin(self, venue: Venue, *, dashboard: str = "") -> None:
        """Say what this is and where it plays."""
        self._remains, self._dashboard = venue.remains, dashboard
        self._write(
            *textwrap.wrap(
                f"Redrive demo: {self._playbill.title}, and {venue.place} between.", _WIDTH
            ),
            f"Type along in another terminal: {'; '.join(venue.exports)}",
        )

    def scene(self, scene: Scene) -> None:
        """Write the sentence, and what one would type."""
        if scene.act != self._act:
            self._act = scene.act
            acts = self._playbill.acts
            self._write("", f"Act {scene.act} of {len(acts)}: {acts[scene.act - 1]}")
        self._write(
            *textwrap.wrap(scene.sentence, _WIDTH),
            *(f"    $ {command}" for command in scene.commands),
            *([f"    see {self._dashboard}{scene.page}"] if self._dashboard else []),
        )

    def show(self, view: View) -> None:
        """Write two lines for each second, and the causes when there are others."""
        if int(view.elapsed) <= self._second:
            return
        self._second = int(view.elapsed)
        states = ", ".join(_state(one) for one in view.destinations)
        self._write(f"  {self._second:3d} s  delivered: {states}", *self._at_the_watched(view))
        if view.replay is not None and view.replay != self._replay:
            self._replay = view.replay
            self._write(f"         {spell_replay(view.replay)}")
        if view.projection is not None:
            self._write(f"         {spell_projection(view.projection)}")
        if [one.id for one in view.causes] != [one.id for one in self._causes]:
            self._causes = view.causes
            self._write(
                "         dead letters by cause:"
                if view.causes
                else "         no dead letters left",
                *(
                    f"         {cause.count:5d}  {cause.destination}: {cause.title}"
                    for cause in view.causes
                ),
            )

    def stop(self) -> None:
        """Say that nothing is left behind."""
        self._write("", f"Stopped before the end; {self._remains}.")

    def end(self, count: Count) -> None:
        """Write the table, the verdict and what does not add up."""
        books = self._playbill
        self._write("", f"  {'':18}{books.publisher:>12}{books.receivers:>14}{'the store':>12}")
        for what, *figures in count.table:
            publisher, receivers, store = figures
            self._write(f"  {what:18}{publisher:>12}{receivers:>14}{store:>12}".rstrip())
        self._write("", f"  lost: {len(count.lost)}", "")
        if count.adds_up:
            self._write("Everything that was published has arrived.")
        else:
            self._write("The count does not add up:", *(f"- {one}" for one in count.problems))

    def _at_the_watched(self, view: View) -> list[str]:
        """Draw what a service saw in the last second, against its limit, and what holds it."""
        if not view.arrivals or not view.limit or view.now is None:
            return []
        seen = view.arrivals[-1]
        bar = "#" * min(_BAR, round(_BAR * seen / view.limit))
        watched = self._playbill.watched
        lines = [f"         {watched} sees {seen:3d}/s |{bar:<{_BAR}}| limit {view.limit}/s"]
        known = {one.name: one for one in view.destinations}
        for gate in view.gates:
            if isinstance(gate.gate.breaker, Closed) or gate.destination not in known:
                continue
            held = reasons(gate, known[gate.destination], now=view.now)
            lines += [f"         {gate.destination}: {one.plain}" for one in held]
        return lines

    def _write(self, *lines: str) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()


def _state(one: DestinationFigures) -> str:
    asides = [
        f"{number} {what}"
        for number, what in ((one.pending, "waiting"), (one.failed, "dead"))
        if number
    ]
    return f"{one.name} {one.delivered}" + (f" ({', '.join(asides)})" if asides else "")
