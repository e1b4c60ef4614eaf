"""Destinations: how each one stands, what holds it, and the acts that let it go on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.model.gate import Closed, GateFigures, Open, Pause
from redrive.store import DestinationFigures, Figures
from redrive.web.pages.page import Moved, Page, Step, Visit

__all__ = [
    "DestinationRow",
    "Destinations",
    "pause",
    "pause_step",
    "reset_breaker",
    "reset_step",
    "resume",
    "resume_step",
    "rows_of",
    "show_destinations",
]

_PLACES = {"overview": "/", "destinations": "/destinations"}


class DestinationRow(msgspec.Struct, frozen=True, kw_only=True):
    """One destination in numbers, what holds it and until when, and what may be done."""

    figures: DestinationFigures
    holds: tuple[str, ...] = ()
    until: datetime | None = None
    pause: Pause | None = None
    breaker: str = "closed"
    last_error: str = ""
    last_error_at: datetime | None = None
    step: Step | None = None

    @property
    def name(self) -> str:
        """The destination's."""
        return self.figures.name

    @property
    def is_held(self) -> bool:
        """Whether something keeps its deliveries back."""
        return bool(self.holds)

    @property
    def needs_attention(self) -> bool:
        """Whether somebody should look at it."""
        return bool(self.figures.failed or self.pause) or self.breaker != "closed"


class Destinations(msgspec.Struct, frozen=True, kw_only=True):
    """Destinations, those that need somebody first; `sought` is part of their names."""

    rows: tuple[DestinationRow, ...]
    sought: str = ""
    only_needy: bool = False


def rows_of(figures: Figures, gates: Sequence[GateFigures]) -> tuple[DestinationRow, ...]:
    """Return how each destination stands, those that need somebody first."""
    known = {one.destination: one for one in gates}
    rows = [_row(one, known.get(one.name)) for one in figures.destinations if _is_shown(one)]
    return tuple(sorted(rows, key=lambda one: (not one.needs_attention, one.name)))


def resume_step(name: str, *, then: str) -> Step:
    """Return the step that ends a pause."""
    fields = {"name": name, "then": then}
    return Step(label="Resume", to="/destinations/resume", operation="resume", fields=fields)


def reset_step(name: str, *, then: str) -> Step:
    """Return the step that closes a breaker."""
    fields = {"name": name, "then": then}
    return Step(
        label="Close breaker", to="/breakers/reset", operation="reset_breaker", fields=fields
    )


def pause_step(name: str, *, then: str) -> Step:
    """Return the step that stops a destination."""
    fields = {"name": name, "then": then}
    return Step(label="Pause", to="/destinations/pause", operation="pause", fields=fields)


async def show_destinations(visit: Visit) -> Page:
    """Show how each destination stands."""
    sought, only_needy = visit.asked("name") or "", visit.asked("show") == "attention"
    rows = rows_of(await visit.operations.status(), await visit.operations.gates())
    found = tuple(
        one
        for one in rows
        if sought.lower() in one.name.lower() and (one.needs_attention or not only_needy)
    )
    model = Destinations(rows=found, sought=sought, only_needy=only_needy)
    return Page(template="destinations.html", title="Destinations", model=model)


async def pause(visit: Visit) -> Moved:
    """Stop a destination."""
    await visit.operations.pause(_name(visit), by=visit.by, why=visit.why)
    return _back(visit)


async def resume(visit: Visit) -> Moved:
    """Let a paused destination go on."""
    await visit.operations.resume(_name(visit), by=visit.by, why=visit.why)
    return _back(visit)


async def reset_breaker(visit: Visit) -> Moved:
    """Close a breaker by hand."""
    await visit.operations.reset_breaker(_name(visit), by=visit.by, why=visit.why)
    return _back(visit)


def _name(visit: Visit) -> str:
    return visit.form.get("name", "")


def _back(visit: Visit) -> Moved:
    return Moved(_PLACES.get(visit.form.get("then", ""), "/destinations"))


def _is_shown(one: DestinationFigures) -> bool:
    return not one.is_removed or bool(one.pending or one.in_flight or one.failed)


def _row(figures: DestinationFigures, seen: GateFigures | None) -> DestinationRow:
    if seen is None:
        return DestinationRow(figures=figures)
    gate, failure = seen.gate, seen.gate.last_failure
    is_closed = isinstance(gate.breaker, Closed)
    name = figures.name
    if gate.pause is not None:
        step = resume_step(name, then="destinations")
    elif not is_closed:
        step = reset_step(name, then="destinations")
    else:
        step = pause_step(name, then="destinations")
    opened = "open" if isinstance(gate.breaker, Open) else "half-open"
    return DestinationRow(
        figures=figures,
        holds=tuple(one.label for one in seen.holds),
        until=seen.until,
        pause=gate.pause,
        breaker="closed" if is_closed else opened,
        last_error="" if failure is None else failure.error,
        last_error_at=None if failure is None else failure.at,
        step=step,
    )
