"""The narrator: whoever shows the story, and what there is to show at each moment."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import Protocol

import msgspec

from redrive.demo.count import Count
from redrive.demo.venue import Venue
from redrive.model.gate import GateFigures
from redrive.store import DestinationFigures, Group, Replay

__all__ = ["ACTS", "Narrator", "Scene", "View", "spell_replay"]

ACTS = ("orders", "kill -9", "an outage", "dead letters", "replay", "the count")


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an act: what one is seeing, and what one would type in its place."""

    act: int
    sentence: str
    commands: tuple[str, ...] = ()


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The shop at one moment.

    `flows` are deliveries per second, the latest last; `arrivals` the requests that the warehouse
    has seen in each of the last seconds, by its own book, and `limit` what it should see at most.
    `replay` is the latest replay of a group.
    """

    elapsed: float = 0.0
    now: datetime | None = None
    events: int = 0
    destinations: tuple[DestinationFigures, ...] = ()
    gates: tuple[GateFigures, ...] = ()
    flows: dict[str, tuple[float, ...]] = {}
    arrivals: tuple[int, ...] = ()
    limit: int = 0
    causes: tuple[Group, ...] = ()
    replay: Replay | None = None


def spell_replay(replay: Replay) -> str:
    """Say in one line how far a replay has come."""
    return (
        f"replay {replay.id} {replay.state}: {replay.sent} of {replay.selected} sent, "
        f"{replay.delivered} delivered, {replay.failed} failed again"
    )


class Narrator(Protocol):
    """Shows the story; entered before it begins and left when it is over or broken off."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def begin(self, venue: Venue) -> None:
        """Say where it plays."""

    def scene(self, scene: Scene) -> None:
        """Go on to the next scene."""

    def show(self, view: View) -> None:
        """Show the present moment; called several times a second."""

    def stop(self) -> None:
        """Say that the story was broken off."""

    def end(self, count: Count) -> None:
        """Show the final count, after the narrator was left."""
