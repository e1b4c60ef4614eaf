"""Projections: how far they are, waiting for one, and beginning anew."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from redrive.errors import ResultTimeoutError, TransactionError, UsageError, not_found
from redrive.model.audit import Actor
from redrive.model.delivery import Status
from redrive.model.duration import Duration, duration
from redrive.model.event import EventId
from redrive.model.position import LOG_START, LogPosition
from redrive.operations.looking import Looking
from redrive.store import ProjectionFigures, Query

__all__ = ["Projecting"]

_FIRST_LOOK_SECONDS = 0.005
_LAST_LOOK_SECONDS = 0.25
_GROWTH = 1.5
_LIVELY = timedelta(seconds=30)
"""Who was heard of within this time may still read."""


class Projecting(Looking):
    """Look at projections, wait for them, and have them begin anew."""

    async def projections(self) -> Sequence[ProjectionFigures]:
        """Return how far each projection is, and what is parked of it."""
        return await (await self._store()).projections()

    async def projection(self, name: str) -> ProjectionFigures:
        """Return how far one projection is."""
        found = {one.checkpoint.projection: one for one in await self.projections()}
        if name not in found:
            raise not_found(name, sorted(found), what="projection")
        return found[name]

    async def reached(
        self,
        event_id: str,
        projection: str,
        *,
        timeout: Duration = "30s",  # noqa: ASYNC109 - it is part of what is asked
    ) -> None:
        """Wait until a projection has applied an event; not at all for one that it does not want.

        Raises `ResultTimeoutError` if that takes longer, and says where it stands.
        """
        store = await self._to_change()
        end = self._clock.monotonic() + duration(timeout, name="timeout").total_seconds()
        figures = await self.projection(projection)
        event = await store.find_event(EventId(event_id))
        if event is None:
            raise TransactionError(
                f"The event {event_id} is not stored: the transaction that it was published in "
                "has not committed, or was rolled back. Wait for it after the commit."
            )
        if not figures.checkpoint.wants(event.type):
            return
        pause = _FIRST_LOOK_SECONDS
        while not await store.has_applied(projection, EventId(event_id)):
            rest = end - self._clock.monotonic()
            if rest <= 0:
                raise ResultTimeoutError(await self._how_far(event_id, projection))
            await self._clock.sleep(min(pause, rest))
            pause = min(pause * _GROWTH, _LAST_LOOK_SECONDS)

    async def reset_projection(
        self,
        name: str,
        *,
        by: str,
        why: str = "",
        after: LogPosition | str | None = None,
    ) -> int:
        """Have a projection begin anew, from the start of the log or behind a position.

        What it had handed over is removed, and returned as a number. Its read model is emptied
        together with the first events that are applied to it; until then readers have the old one.
        From the start, nothing begins when events have gone from the log already.
        """
        actor = Actor(by, why)
        place = LogPosition.parse(after) if isinstance(after, str) else after
        await self.projection(name)
        if place is None and (await self.status()).pruned_events:
            raise UsageError(await self._what_is_left(name))
        store = await self._to_change()
        removed = await store.reset_projection(name, to=place or LOG_START, actor=actor)
        self._done("reset_projection", [], actor)
        return removed

    async def drop_projection(self, name: str, *, by: str, why: str = "") -> int:
        """Forget a projection that no worker reads for, and let its events go when it is time.

        What it had handed over is removed, and returned as a number. Its read model stays.
        """
        actor = Actor(by, why)
        await self.projection(name)
        store = await self._to_change()
        removed = await store.drop_projection(name, lease=_LIVELY, actor=actor)
        await store.unregister(name, actor=actor)
        self._done("drop_projection", [], actor)
        return removed

    async def _what_is_left(self, name: str) -> str:
        gone = (
            f"The projection {name!r} cannot begin at the start of the log: events have gone from "
            "it already."
        )
        left = await self.events(limit=1)
        if not left:
            return f"{gone} Say with after= from where it is to begin."
        first = LogPosition(left[0].position.time, left[0].position.number - 1)
        return f"{gone} What is left of it comes behind {first}; begin there with after=."

    async def _how_far(self, event_id: str, projection: str) -> str:
        figures = await self.projection(projection)
        query = Query(status=None, event_id=event_id, destination=projection)
        found = (await (await self._store()).find(query, limit=1)).deliveries
        waited = f"The projection {projection!r} has not applied the event {event_id}"
        if found and found[0].status is not Status.DELIVERED:
            one = found[0]
            return f"{waited}: it was handed over as delivery {one.id}, which is {one.status}."
        return f"{waited}: it is {figures.events_behind:,} events behind."
