"""Destinations: how each one stands, what holds it, and the acts that let it go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from redrive.errors import UsageError, not_found
from redrive.model.gate import Closed, GateFigures, Open, Pause
from redrive.store import DestinationFigures, Figures
from redrive.web.pages.page import Moved, Page, Step, Visit
from redrive.web.pages.rendering import counted

__all__ = [
    "DestinationRow",
    "Destinations",
    "act_on_all",
    "destination_path",
    "gate_named",
    "known_of",
    "open_breaker",
    "pause",
    "pause_step",
    "reset_breaker",
    "reset_breakers",
    "reset_step",
    "resume",
    "resume_step",
    "row_of",
    "show_destinations",
]

_PER_PAGE = 100
_MOST_AT_ONCE = 1_000
_PLACES = {"overview": "/", "destinations": "/destinations", "projections": "/projections"}


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
    override: str = ""
    needs_attention: bool = False

    @property
    def name(self) -> str:
        """The destination's."""
        return self.figures.name

    @property
    def is_held(self) -> bool:
        """Whether something keeps its deliveries back."""
        return bool(self.holds)


class Known(NamedTuple):
    """What is known of a destination before a row is made of it: of thousands few are shown."""

    figures: DestinationFigures
    gate: GateFigures | None

    @property
    def needs_attention(self) -> bool:
        """Whether somebody should look at it."""
        gate = None if self.gate is None else self.gate.gate
        return bool(self.figures.failed) or (
            gate is not None and (gate.pause is not None or not isinstance(gate.breaker, Closed))
        )

    @property
    def is_paused(self) -> bool:
        """Whether somebody has stopped it."""
        return self.gate is not None and self.gate.gate.pause is not None

    @property
    def is_broken(self) -> bool:
        """Whether its breaker is not closed."""
        return self.gate is not None and not isinstance(self.gate.gate.breaker, Closed)

    @property
    def row(self) -> DestinationRow:
        """How it stands."""
        return row_of(self.figures, self.gate)


_SORTS: Mapping[str, Callable[[Known], tuple[object, ...]]] = {
    # Figures come in the order of names, and it is kept.
    "attention": lambda one: (not one.needs_attention,),
    "name": lambda one: (one.figures.name,),
    "pending": lambda one: (-one.figures.pending, one.figures.name),
    "retrying": lambda one: (-one.figures.retrying, one.figures.name),
    "failed": lambda one: (-one.figures.failed, one.figures.name),
    "oldest": lambda one: (
        one.figures.oldest_due is None,
        one.figures.oldest_due or 0,
        one.figures.name,
    ),
}


class Destinations(msgspec.Struct, frozen=True, kw_only=True):
    """Destinations, those that need somebody first unless asked for otherwise.

    `sought` is part of their names, and `number` the page of them; `found` counts all that fit, of
    which `broken` have a breaker that is not closed, and `paused` are.
    """

    rows: tuple[DestinationRow, ...]
    sought: str = ""
    only_needy: bool = False
    sort: str = "attention"
    number: int = 1
    found: int = 0
    broken: int = 0
    paused: int = 0

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return max(1, -(-self.found // _PER_PAGE))

    def address(self, **changed: object) -> str:
        """Return where the same is shown, but for what is changed."""
        given = {"name": self.sought, "sort": self.sort, "page": self.number}
        given |= {"show": "attention" if self.only_needy else ""} | changed
        usual = {"name": "", "show": "", "sort": "attention", "page": 1}
        said = {name: value for name, value in given.items() if value != usual[name]}
        return f"/destinations?{urlencode(said)}" if said else "/destinations"


def destination_path(name: str) -> str:
    """Return where a destination is shown."""
    return f"/destinations/{quote(name, safe='')}"


def known_of(
    figures: Figures, gates: Sequence[GateFigures], *, sort: str = "attention"
) -> list[Known]:
    """Return what is known of each destination, by default those that need somebody first."""
    by_name = {one.destination: one for one in gates}
    known = [Known(one, by_name.get(one.name)) for one in figures.destinations if _is_shown(one)]
    return sorted(known, key=_SORTS[sort])


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
    sort = visit.asked("sort") or "attention"
    if sort not in _SORTS:
        raise UsageError(f"sort is {sort[:50]!r}; it is one of {', '.join(_SORTS)}.")
    found = await _fitting(visit, sought, only_needy=only_needy, sort=sort)
    number = max(1, visit.number("page") or 1)
    model = Destinations(
        rows=tuple(one.row for one in found[(number - 1) * _PER_PAGE : number * _PER_PAGE]),
        sought=sought,
        only_needy=only_needy,
        sort=sort,
        number=number,
        found=len(found),
        broken=sum(one.is_broken for one in found),
        paused=sum(one.is_paused for one in found),
    )
    return Page(template="destinations.html", title="Destinations", model=model)


async def pause(visit: Visit) -> Moved:
    """Stop a destination."""
    await visit.operations.pause(visit.name, by=visit.by, why=visit.why)
    return _back(visit, f"{visit.name} is paused.")


async def resume(visit: Visit) -> Moved:
    """Let a paused destination go on."""
    is_new = await visit.operations.resume(visit.name, by=visit.by, why=visit.why)
    return _back(visit, f"{visit.name} {'goes on' if is_new else 'was not paused'}.")


async def open_breaker(visit: Visit) -> Moved:
    """Open a breaker by hand, until it is closed."""
    await visit.operations.open_breaker(visit.name, by=visit.by, why=visit.why)
    return _back(visit, f"The breaker of {visit.name} is open until somebody closes it.")


async def reset_breaker(visit: Visit) -> Moved:
    """Close a breaker by hand."""
    await visit.operations.reset_breaker(visit.name, by=visit.by, why=visit.why)
    return _back(visit, f"The breaker of {visit.name} is closed.")


async def reset_breakers(visit: Visit) -> Moved:
    """Close all breakers there are."""
    changed = await visit.operations.reset_breakers(by=visit.by, why=visit.why)
    return _back(visit, f"{counted(len(changed), 'breaker is', 'breakers are')} closed.")


def act_on_all(act: str) -> Callable[[Visit], Awaitable[Moved]]:
    """Return what pauses or resumes all destinations that a search has found."""

    async def view(visit: Visit) -> Moved:
        sought, only_needy = visit.form.get("sought", ""), visit.form.get("show") == "attention"
        found = await _fitting(visit, sought, only_needy=only_needy)
        if len(found) > _MOST_AT_ONCE:
            raise UsageError(
                f"These are {len(found):,} destinations, and {_MOST_AT_ONCE:,} are changed at "
                "once; narrow them by name."
            )
        does = visit.operations.pause if act == "pause" else visit.operations.resume
        changed = [await does(one.figures.name, by=visit.by, why=visit.why) for one in found]
        done = "paused" if act == "pause" else "resumed"
        said = counted(sum(changed), "destination was", "destinations were")
        return Moved("/destinations", f"{said} {done}.")

    return view


async def gate_named(visit: Visit) -> tuple[Figures, DestinationFigures, GateFigures | None]:
    """Return the destination that the path names, with its gate and with everybody's figures."""
    figures = await visit.operations.status()
    known = {one.name: one for one in figures.destinations}
    if visit.name not in known:
        raise not_found(visit.name, sorted(known), what="destination")
    gates = {one.destination: one for one in await visit.operations.gates()}
    return figures, known[visit.name], gates.get(visit.name)


def row_of(figures: DestinationFigures, seen: GateFigures | None) -> DestinationRow:
    """Return how a destination stands; without a gate it is held by nothing."""
    if seen is None:
        return DestinationRow(figures=figures, needs_attention=bool(figures.failed))
    gate, failure = seen.gate, seen.gate.last_failure
    is_closed = isinstance(gate.breaker, Closed)
    opened = "open" if isinstance(gate.breaker, Open) else "half-open"
    return DestinationRow(
        figures=figures,
        holds=tuple(one.label for one in seen.holds),
        until=seen.until,
        pause=gate.pause,
        breaker="closed" if is_closed else opened,
        last_error="" if failure is None else failure.error,
        last_error_at=None if failure is None else failure.at,
        step=next(_steps(figures.name, gate.pause, is_closed=is_closed), None),
        override="" if seen.override is None else seen.override.said,
        needs_attention=Known(figures, seen).needs_attention,
    )


async def _fitting(
    visit: Visit, sought: str, *, only_needy: bool, sort: str = "attention"
) -> list[Known]:
    known = known_of(await visit.operations.status(), await visit.operations.gates(), sort=sort)
    part = sought.lower()
    return [
        one
        for one in known
        if part in one.figures.name.lower() and (one.needs_attention or not only_needy)
    ]


def _steps(name: str, pause: Pause | None, *, is_closed: bool) -> Iterator[Step]:
    if pause is not None:
        yield resume_step(name, then="destinations")
    if not is_closed:
        yield reset_step(name, then="destinations")


def _back(visit: Visit, said: str) -> Moved:
    then = visit.form.get("then", "")
    return Moved(destination_path(visit.name) if then == "it" else _PLACES.get(then, "/"), said)


def _is_shown(one: DestinationFigures) -> bool:
    return not one.is_removed or bool(one.pending or one.in_flight or one.failed)
