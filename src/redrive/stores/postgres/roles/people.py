"""The figures that people look at."""

from __future__ import annotations

from redrive.store import Figures, Workload
from redrive.stores.postgres import counting
from redrive.stores.postgres.core import Core

__all__ = ["FiguresRole"]


class FiguresRole(Core):
    """The figures of `Inspection`."""

    async def figures(self) -> Figures:
        return await self._read(lambda link, now: counting.figures(link, now=now))

    async def workload(self) -> Workload:
        return counting.workload(await self._query(counting.WORKLOAD))
