"""The camera: takes a view of the shop several times a second."""

from __future__ import annotations

from collections import deque

from redrive.demo.narrator import Narrator, View
from redrive.demo.service import Service
from redrive.demo.tempo import Tempo
from redrive.model.destination import NOTHING
from redrive.operations import Operations
from redrive.store import Group

__all__ = ["Camera"]

_FRAME_SECONDS = 0.12
_BUCKET_SECONDS = 0.5
_BUCKETS = 40
_ARRIVAL_SECONDS = 40


class Camera:
    """Looks at the store through `Operations`, as a dashboard would, and at a service's book."""

    def __init__(
        self,
        operations: Operations,
        narrator: Narrator,
        pace: Tempo,
        *,
        service: Service,
        limit: int,
    ) -> None:
        self._operations = operations
        self._narrator = narrator
        self._pace = pace
        self._service = service
        self._limit = limit
        self._flows: dict[str, deque[float]] = {}
        self._delivered: dict[str, int] = {}
        self._bucket_began = 0.0
        self._causes: tuple[Group, ...] = ()
        self._failed = 0

    async def roll(self) -> None:
        """Show view after view, until cancelled."""
        while True:
            await self.shoot()
            await self._pace.sleep(_FRAME_SECONDS)

    async def shoot(self) -> View:
        """Show the present moment."""
        figures = await self._operations.status()
        gates = tuple(await self._operations.gates())
        failed = sum(one.failed for one in figures.destinations)
        if failed != self._failed:
            self._causes, self._failed = tuple(await self._operations.groups()), failed
        replays = await self._operations.replays(limit=1)
        projections = await self._operations.projections()
        now = self._pace.elapsed
        span = now - self._bucket_began
        if span >= _BUCKET_SECONDS:
            for one in figures.destinations:
                flow = self._flows.setdefault(one.name, deque(maxlen=_BUCKETS))
                flow.append((one.delivered - self._delivered.get(one.name, 0)) / span)
                self._delivered[one.name] = one.delivered
            self._bucket_began = now
        view = View(
            elapsed=now,
            now=figures.now,
            events=figures.events,
            destinations=tuple(one for one in figures.destinations if one.patterns != NOTHING),
            gates=gates,
            flows={name: tuple(flow) for name, flow in self._flows.items()},
            arrivals=self._service.per_second(until=now, seconds=_ARRIVAL_SECONDS),
            limit=self._limit,
            causes=self._causes,
            replay=replays[0] if replays else None,
            projection=projections[0] if projections else None,
        )
        self._narrator.show(view)
        return view
