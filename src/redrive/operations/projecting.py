"""Projections: how far they are, waiting for one, and beginning anew."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from redrive.errors import ResultTimeoutError, TransactionError, UsageError, not_found
from redrive.model.audit import Actor
from redrive.model.delivery import Status
from redrive.model.duration import Duration, duration
from redrive.model.event import EventId
from redrive.model.limits import Rate, read_rate
from redrive.model.position import LOG_START, LogPosition
from redrive.operations.looking import Looking
from redrive.store import ProjectionFigures, Query, Swapping

__all__ = ["Projecting"]

_FIRST_LOOK_SECONDS = 0.005
_LAST_LOOK_SECONDS = 0.25
_GROWTH = 1.5
_BETWEEN_SWAPS_SECONDS = 0.05
_LIVELY = timedelta(seconds=30)
"""Who was heard of within this time may still read."""


class Projecting(Looking):
    """Look at projections, wait for them, and have them begin anew."""

    async def projections(self) -> Sequence[ProjectionFigures]:
        """Return how far each projection is, and what is parked of it."""
        return await (await self._store()).projections()

    async def projection(self, name: str, *, version: int | None = None) -> ProjectionFigures:
        """Return how far one projection is: the version that readers have, or the one named."""
        found = await self._versions(name)
        if version is None:
            return next((one for one in found if one.is_serving), found[0])
        return _of_version(name, version, found)

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
        served = figures.checkpoint.projection
        event = await store.find_event(EventId(event_id))
        if event is None:
            raise TransactionError(
                f"The event {event_id} is not stored: the transaction that it was published in "
                "has not committed, or was rolled back. Wait for it after the commit."
            )
        if not figures.checkpoint.wants(event.type):
            return
        pause = _FIRST_LOOK_SECONDS
        while not await store.has_applied(served, EventId(event_id)):
            rest = end - self._clock.monotonic()
            if rest <= 0:
                raise ResultTimeoutError(await self._how_far(event_id, served))
            await self._clock.sleep(min(pause, rest))
            pause = min(pause * _GROWTH, _LAST_LOOK_SECONDS)

    async def reset_projection(
        self,
        name: str,
        *,
        by: str,
        why: str = "",
        version: int | None = None,
        after: LogPosition | str | None = None,
    ) -> int:
        """Have a projection begin anew, from the start of the log or behind a position.

        What it had handed over is removed, and returned as a number. Its read model is emptied
        together with the first events that are applied to it; until then readers have the old one.
        From the start, nothing begins when events have gone from the log already.
        """
        actor = Actor(by, why)
        place = LogPosition.parse(after) if isinstance(after, str) else after
        return await self._begin_anew("reset_projection", name, version, place, actor)

    async def rebuild_projection(
        self,
        name: str,
        *,
        by: str,
        why: str = "",
        version: int | None = None,
        after: LogPosition | str | None = None,
        rate: Rate | str | None = None,
        strict: bool = False,
    ) -> int:
        """Have a version made anew from the log, at most at a rate such as `"500/s"`.

        It goes on past events that fail, and `projection` tells how far it is, what has failed, and
        which events it applied as people had edited them. If it is `strict`, it waits at each event
        that fails until somebody has dealt with it. Else it is as `reset_projection`.
        """
        actor = Actor(by, why)
        place = LogPosition.parse(after) if isinstance(after, str) else after
        pace = read_rate(rate, name="rate")
        return await self._begin_anew(
            "rebuild_projection",
            name,
            version,
            place,
            actor,
            rate=None if pace is None else pace.per_second,
            is_strict=strict,
        )

    async def cancel_rebuild(
        self, name: str, *, by: str, why: str = "", version: int | None = None
    ) -> None:
        """Have a version that is rebuilt beside the one that readers have apply nothing more.

        It can be rebuilt from the start again, or dropped.
        """
        actor = Actor(by, why)
        chosen = await self._one_version(name, version)
        number = chosen.checkpoint.version
        if chosen.is_serving:
            raise UsageError(
                f"Readers have version {number} of the projection {name!r}, and would be left with "
                "a part of it; let its rebuild finish."
            )
        store = await self._to_change()
        if not await store.cancel_rebuild(chosen.checkpoint.projection, actor=actor):
            raise UsageError(f"Version {number} of the projection {name!r} is not being rebuilt.")
        self._done("cancel_rebuild", [], actor)

    async def _begin_anew(
        self,
        action: str,
        name: str,
        version: int | None,
        place: LogPosition | None,
        actor: Actor,
        *,
        rate: float | None = None,
        is_strict: bool = False,
    ) -> int:
        chosen = await self._one_version(name, version)
        if place is None and (await self.status()).pruned_events:
            raise UsageError(await self._what_is_left(name))
        store = await self._to_change()
        removed = await store.reset_projection(
            chosen.checkpoint.projection,
            to=place or LOG_START,
            actor=actor,
            rate=rate,
            is_strict=is_strict,
        )
        self._done(action, [], actor)
        return removed

    async def swap_projection(
        self,
        name: str,
        *,
        by: str,
        why: str = "",
        version: int | None = None,
        parked: bool = False,
        timeout: Duration = "10s",  # noqa: ASYNC109 - it is part of what is asked
    ) -> ProjectionFigures:
        """Give readers another version of a projection in one step, once it has caught up.

        By default that is the one that they do not have, if there is one. It must have read all
        that was in the log by now, and nothing of it may have failed, unless `parked` says so.
        Nobody who reads waits for longer than a tenth of a second. Raises `UsageError` if it is not
        ready in time, or if something that hangs on the readers' views would be lost.
        """
        actor = Actor(by, why)
        store = await self._to_change()
        end = self._clock.monotonic() + duration(timeout, name="timeout").total_seconds()
        target = (await self._version_to_swap(name, version)).checkpoint
        through = await store.end_of_log()
        while True:
            swapping = await store.swap_projection(
                target.projection, through=through, accepts_parked=parked, actor=actor
            )
            if swapping is Swapping.SWAPPED:
                break
            figures = await self.projection(name, version=target.version)
            if swapping is Swapping.PARTIAL or self._clock.monotonic() >= end:
                raise UsageError(_why_not(swapping, figures))
            await self._clock.sleep(_BETWEEN_SWAPS_SECONDS)
        self._done("swap_projection", [], actor)
        return await self.projection(name, version=target.version)

    async def drop_projection(
        self, name: str, *, by: str, why: str = "", version: int | None = None
    ) -> int:
        """Forget a version that no worker reads for, and let its events go when it is time.

        What it had handed over is removed, and returned as a number. If readers have another
        version, its tables go, too; else its read model stays.
        """
        actor = Actor(by, why)
        target = (await self._one_version(name, version)).checkpoint.projection
        store = await self._to_change()
        removed = await store.drop_projection(target, lease=_LIVELY, actor=actor)
        await store.unregister(target, actor=actor)
        self._done("drop_projection", [], actor)
        return removed

    async def _versions(self, name: str) -> Sequence[ProjectionFigures]:
        """Return the versions of a projection, or the one that a destination is."""
        known = await self.projections()
        found = [one for one in known if one.checkpoint.name == name]
        found = found or [one for one in known if one.checkpoint.projection == name]
        if not found:
            names = sorted({one.checkpoint.name for one in known})
            raise not_found(name, names, what="projection")
        return found

    async def _one_version(self, name: str, version: int | None) -> ProjectionFigures:
        """Return the version to change: the one named, or the only one."""
        found = await self._versions(name)
        if version is not None:
            return _of_version(name, version, found)
        if len(found) > 1:
            raise UsageError(
                f"The projection {name!r} has {_listed(found)}; say which one with version."
            )
        return found[0]

    async def _version_to_swap(self, name: str, version: int | None) -> ProjectionFigures:
        if version is not None:
            return await self.projection(name, version=version)
        found = await self._versions(name)
        if len(found) == 1:
            raise UsageError(
                f"The projection {name!r} has {_listed(found)}, which readers have; declare "
                "another one with @app.projection(version=2), and let a worker build it."
            )
        beside = [one for one in found if not one.is_serving]
        if len(beside) > 1:
            raise UsageError(
                f"The projection {name!r} has {_listed(found)}; say which one with version."
            )
        return beside[0]

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


def _of_version(name: str, version: int, found: Sequence[ProjectionFigures]) -> ProjectionFigures:
    for one in found:
        if one.checkpoint.version == version:
            return one
    raise UsageError(
        f"The projection {name!r} has {_listed(found)}, and no version {version}; a worker begins "
        "it when its app declares it."
    )


def _listed(found: Sequence[ProjectionFigures]) -> str:
    numbers = [str(one.checkpoint.version) for one in found]
    return f"version {numbers[0]}" if len(numbers) == 1 else f"versions {', '.join(numbers)}"


def _why_not(swapping: Swapping, figures: ProjectionFigures) -> str:
    """Say why readers have the version that they had."""
    version, name = figures.checkpoint.version, figures.checkpoint.name
    who = f"Version {version} of the projection {name!r}"
    match swapping:
        case Swapping.PARKED:
            return (
                f"{who} has {figures.handed_over:,} events that have failed or wait behind those "
                "that did; mend and replay them, or say with parked that readers may do without."
            )
        case Swapping.PARTIAL:
            return (
                f"{who} lacks events that had gone from the log before it began; if that may be "
                "so, say from where with: redrive projection rebuild --from."
            )
        case Swapping.BUSY:
            return (
                f"{who} was not swapped in: somebody has had the readers' views in a transaction "
                "all the time. Try again when it has ended."
            )
        case _:
            behind = f"{figures.events_behind:,}{'+' if figures.is_at_least else ''}"
            reader = "" if figures.seen_at else ", and no worker reads for it"
            return f"{who} has not caught up: it is {behind} events behind{reader}."
