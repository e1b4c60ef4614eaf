"""Projections: how far each is, what is parked, and beginning anew."""

from __future__ import annotations

import msgspec

from redrive.errors import not_found
from redrive.model.gate import Pause
from redrive.store import Checkpoint, ProjectionFigures
from redrive.web.pages.page import Moved, Page, Visit
from redrive.web.pages.rendering import counted

__all__ = [
    "ProjectionRow",
    "Projections",
    "drop_projection",
    "reset_projection",
    "show_projections",
    "swap_projection",
]

_PATIENCE = "5s"


class ProjectionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A projection, whether it goes on, and what it lags behind, the most first."""

    figures: ProjectionFigures
    level: str
    state: str
    lag: tuple[tuple[str, int], ...] = ()
    pause: Pause | None = None

    @property
    def name(self) -> str:
        """The projection's."""
        return self.figures.checkpoint.projection


class Projections(msgspec.Struct, frozen=True, kw_only=True):
    """All projections, those that need somebody first."""

    rows: tuple[ProjectionRow, ...]


async def show_projections(visit: Visit) -> Page:
    """Show how far each projection is."""
    found = await visit.operations.projections()
    pauses = {one.destination: one.gate.pause for one in await visit.operations.gates()}
    rows = [_row(one, pauses.get(one.checkpoint.projection)) for one in found]
    rows.sort(key=lambda one: (one.level == "ok", one.name))
    return Page(
        template="projections.html", title="Projections", model=Projections(rows=tuple(rows))
    )


async def reset_projection(visit: Visit) -> Moved:
    """Have a projection begin anew, from the start of the log or behind a position."""
    one = await _chosen(visit)
    removed = await visit.operations.reset_projection(
        one.name,
        by=visit.by,
        why=visit.why,
        version=one.version,
        after=visit.form.get("after", "").strip() or None,
    )
    gone = counted(removed, "delivery was", "deliveries were")
    return Moved("/projections", f"{visit.name} begins anew; {gone} removed.")


async def swap_projection(visit: Visit) -> Moved:
    """Give readers a version of a projection, if it is ready now."""
    one = await _chosen(visit)
    await visit.operations.swap_projection(
        one.name, by=visit.by, why=visit.why, version=one.version, timeout=_PATIENCE
    )
    return Moved("/projections", f"Readers of {one.name} have version {one.version}.")


async def drop_projection(visit: Visit) -> Moved:
    """Forget a projection that no worker reads for."""
    one = await _chosen(visit)
    removed = await visit.operations.drop_projection(
        one.name, by=visit.by, why=visit.why, version=one.version
    )
    gone = counted(removed, "delivery was", "deliveries were")
    return Moved("/projections", f"{visit.name} is forgotten; {gone} removed.")


async def _chosen(visit: Visit) -> Checkpoint:
    """Return the version of a projection that is the destination named in the address."""
    known = [one.checkpoint for one in await visit.operations.projections()]
    for one in known:
        if one.projection == visit.name:
            return one
    raise not_found(visit.name, [one.projection for one in known], what="projection")


def _row(figures: ProjectionFigures, pause: Pause | None) -> ProjectionRow:
    if pause is not None:
        level, state = "warning", "paused"
    elif figures.parked_keys:
        level, state = "error", counted(figures.parked_keys, "key parked", "keys parked")
    elif figures.is_caught_up:
        level, state = "ok", "caught up"
    else:
        level, state = "warning", "behind"
    lag = sorted(figures.lag.items(), key=lambda one: (-one[1], one[0]))
    return ProjectionRow(figures=figures, level=level, state=state, lag=tuple(lag), pause=pause)
