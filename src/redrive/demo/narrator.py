"""The narrator: whoever shows the story, and what there is to show at each moment."""

from __future__ import annotations

from datetime import datetime
from types import TracebackType
from typing import Protocol

import msgspec

from redrive.demo.count import Count
from redrive.demo.venue import Venue
from redrive.model.gate import GateFigures
from redrive.store import DestinationFigures, Group, ProjectionFigures, Replay

__all__ = ["SHOP", "Narrator", "Playbill", "Scene", "View", "spell_projection", "spell_replay"]


class Playbill(msgspec.Struct, frozen=True, kw_only=True):
    """What a story is about, its acts, the service whose requests are watched, and whose books."""

    title: str
    acts: tuple[str, ...]
    watched: str
    publisher: str
    receivers: str


SHOP = Playbill(
    title="a small shop, two HTTP services",
    acts=("orders", "kill -9", "an outage", "dead letters", "replay", "the count"),
    watched="the warehouse",
    publisher="the shop",
    receivers="its services",
)


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an act: what one is seeing, and what one would type in its place.

    `page` is where the dashboard shows it, if there is one.
    """

    act: int
    sentence: str
    commands: tuple[str, ...] = ()
    page: str = "/"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The system at one moment.

    `flows` are deliveries per second, the latest last; `arrivals` the requests that the service
    that is watched has seen in each of the last seconds, by its own book, and `limit` what it
    should see at most.
    `replay` is the latest replay of a group, and `projection` how far the read model is.
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
    projection: ProjectionFigures | None = None


def spell_projection(projection: ProjectionFigures) -> str:
    """Say in one line how far a read model has come."""
    done = projection.checkpoint.count
    name = projection.checkpoint.name
    behind = projection.events_behind
    return f"{name}: {done} events read, " + (f"{behind} to go" if behind else "caught up")


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

    def begin(self, venue: Venue, *, dashboard: str = "") -> None:
        """Say where it plays, and where its dashboard is, if there is one."""

    def scene(self, scene: Scene) -> None:
        """Go on to the next scene."""

    def show(self, view: View) -> None:
        """Show the present moment; called several times a second."""

    def stop(self) -> None:
        """Say that the story was broken off."""

    def end(self, count: Count) -> None:
        """Show the final count, after the narrator was left."""
