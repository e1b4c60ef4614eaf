"""The log and the routes, each call in a transaction of its own or the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from redrive.model.destination import Destination, Routes
from redrive.model.event import Event, EventId
from redrive.store import Append, Entry, LoggedEvent, RoutesChanged
from redrive.stores.postgres import log
from redrive.stores.postgres.connection import Link
from redrive.stores.postgres.core import Core

__all__ = ["LogRole"]


class LogRole(Core):
    """`EventLog` and `Registry`."""

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        routes_version: int,
        all_or_nothing: bool,
        within: object = None,
    ) -> Append:
        async def job(link: Link, now: datetime) -> Append:
            return await log.append(
                link,
                entries,
                routes_version=routes_version,
                all_or_nothing=all_or_nothing,
                now=now,
            )

        if within is not None:
            return await self._join(within, job)
        appended = await self._write(job)
        if not isinstance(appended, RoutesChanged):
            self._bell.ring()
        return appended

    async def read_events(self, *, after: int = 0, limit: int = 100) -> Sequence[LoggedEvent]:
        return await self._read(lambda link, _: log.read_events(link, after=after, limit=limit))

    async def find_event(self, event_id: EventId) -> Event[msgspec.Raw] | None:
        return await self._read(lambda link, _: log.find_event(link, event_id))

    async def register(self, destinations: Sequence[Destination]) -> Routes:
        if not destinations:
            return await self.routes()
        return await self._write(lambda link, _: log.register(link, destinations))

    async def routes(self) -> Routes:
        return await self._read(lambda link, _: log.read_routes(link))
