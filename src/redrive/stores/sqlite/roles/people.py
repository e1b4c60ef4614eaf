"""The figures that people look at."""

from __future__ import annotations

from redrive.store import Figures, Workload
from redrive.stores.sqlite import counting
from redrive.stores.sqlite.core import Core

__all__ = ["FiguresRole"]


class FiguresRole(Core):
    """The figures of `Inspection`."""

    async def figures(self) -> Figures:
        now = self._clock.now()
        return await self._reader.call(lambda c: counting.figures(c, now=now))

    async def workload(self) -> Workload:
        now = self._clock.now()
        return await self._reader.call(lambda c: counting.workload(c, now=now))
