"""The lookout: reads what a frame shows, and finds a store again that went away."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from redrive.app.config import parse_store
from redrive.cli.session import refuse_empty, settings_of
from redrive.cli.show.top.panels import LETTER_GROUPS, STOPPED_LANES
from redrive.cli.show.top.view import Reading
from redrive.model.replay import ReplayState
from redrive.store import Figures, Group, LaneFigures

if TYPE_CHECKING:
    from redrive.cli.session import Operated

__all__ = ["Lookout"]

_LOOK_AGAIN = timedelta(seconds=10)
_LATEST_REPLAYS = 20
_GOING_ON = (ReplayState.RUNNING, ReplayState.PAUSED, ReplayState.STOPPED)
_Failures = tuple[tuple[str, int, int], ...]


class Lookout:
    """Reads the system through `Operations`: one status for each frame, the rest as it changes."""

    def __init__(self, app: Operated) -> None:
        self._app = app
        self._store: object = None
        self._failures: _Failures = ()
        self._looked_at: datetime | None = None
        self._groups: tuple[Group, ...] = ()
        self._lanes: tuple[LaneFigures, ...] = ()

    async def read(self) -> Reading:
        """Read everything a frame shows; what was opened is closed if that fails."""
        try:
            # A file that was moved away can still be read by those who have it open.
            store = await self._find()
            if store != self._store:
                await self._app.close()
                self._store = store
            return await self._read()
        except BaseException:
            self._store = self._looked_at = None
            await self._app.close()
            raise

    @property
    def address(self) -> str:
        """Where what it looks at is: a store, or a server."""
        settings = settings_of(self._app)
        return str(getattr(self._app, "server", "")) if settings is None else settings.store

    async def _find(self) -> object:
        """Return what tells the store from another that may take its place."""
        address = self.address
        if settings_of(self._app) is None:
            return address
        path = parse_store(address).path
        if path is None and self._store is not None:
            return self._store
        await refuse_empty(address, creates=False)
        if path is None:
            return address
        found = path.stat()
        return found.st_dev, found.st_ino

    async def _read(self) -> Reading:
        operations = self._app.operations
        figures = await operations.status()
        gates = tuple(await operations.gates())
        # Groups are counted from all dead letters, so they are only when those have changed.
        failures = tuple((one.name, one.failed, one.behind) for one in figures.destinations)
        if self._is_old(figures, failures):
            has_failed = any(one.failed for one in figures.destinations)
            has_behind = any(one.behind for one in figures.destinations)
            self._groups = tuple(await operations.groups(limit=LETTER_GROUPS)) if has_failed else ()
            self._lanes = (
                tuple(await operations.lanes(limit=STOPPED_LANES))
                if has_failed and has_behind
                else ()
            )
            self._failures, self._looked_at = failures, figures.now
        latest = await operations.replays(limit=_LATEST_REPLAYS)
        is_reading = any(one.is_projection for one in figures.destinations)
        return Reading(
            figures=figures,
            gates=gates,
            groups=self._groups,
            lanes=self._lanes,
            replays=tuple(one for one in latest if one.state in _GOING_ON),
            projections=tuple(await operations.projections()) if is_reading else (),
        )

    def _is_old(self, figures: Figures, failures: _Failures) -> bool:
        return (
            self._looked_at is None
            or failures != self._failures
            or abs(figures.now - self._looked_at) >= _LOOK_AGAIN
        )
